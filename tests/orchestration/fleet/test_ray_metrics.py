"""What a run does can be scraped from Ray's agent while it runs, and the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

import pytest
import ray

import cluster
from orchestration.fleet.ray_metrics import RayMetrics, RoleFigures

DASHBOARD = Path(cluster.__file__).parent / "grafana.json"
_SAMPLE = re.compile(r"^(ray_warpsmith_\w+)\{(.*)\} (\S+)$")


def scraped() -> dict[str, dict[str, float]]:
    """The values of a run's metrics by the values of those tags that tell them apart, by name."""
    (node,) = ray.nodes()
    try:
        with urlopen(f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics", timeout=30) as answer:
            text = answer.read().decode()
    except OSError:  # Ray's agent starts after Ray
        return {}
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if (sample := _SAMPLE.match(line)) and 'run="seen"' in sample[2]:
            tags = dict(re.findall(r'(\w+)="([^"]*)"', sample[2]))
            key = " ".join(tags[name] for name in ("role", "outcome", "result", "phase", "arch") if tags.get(name))
            found.setdefault(sample[1], {})[key] = float(sample[3])
    return found


@pytest.fixture(scope="module")
def seen(local_ray: None) -> dict[str, dict[str, float]]:
    """The metrics of a run with one evaluator pool after three samples and a step, as Prometheus gets them."""
    counts: Counter[tuple[str, ...]] = Counter(
        {("verdicts", "ok"): 3, ("verdicts", "wrong"): 1, ("builds", "refused"): 2}
    )
    busy = [0.0]
    figures = lambda: [RoleFigures("evaluators", "H200", 7, 2, 3, 4, busy[0])]  # noqa: E731
    metrics = RayMetrics("seen", "H200", figures, counts.copy)
    metrics.sample()
    counts["verdicts", "ok"] += 2
    counts["reused_verdicts",] += 5
    busy[0] = 1e6  # more than all actors can have worked since
    metrics.sample()
    metrics.sample()
    metrics.step("1-sft", 4, 12.5)
    deadline = time.monotonic() + 240.0
    while len(found := scraped()) < 10 and time.monotonic() < deadline:
        metrics.sample()  # nothing more has happened
        metrics.step("1-sft", 4, 12.5)
        time.sleep(1.0)
    return found


def test_a_role_shows_its_queue_and_its_actors(seen: dict[str, dict[str, float]]) -> None:
    shown = {name.removeprefix("ray_warpsmith_"): values for name, values in seen.items()}
    assert shown["queued"] == {"evaluators H200": 7.0}
    assert shown["in_work"] == {"evaluators H200": 2.0}
    assert shown["actors_ready"] == {"evaluators H200": 3.0}
    assert shown["actors"] == {"evaluators H200": 4.0}
    assert 0.0 <= shown["utilisation"]["evaluators H200"] <= 1.0


def test_what_has_happened_is_counted_once(seen: dict[str, dict[str, float]]) -> None:
    assert seen["ray_warpsmith_verdicts_total"] == {"ok H200": 5.0, "wrong H200": 1.0}
    assert seen["ray_warpsmith_builds_total"] == {"refused H200": 2.0}
    assert seen["ray_warpsmith_reused_verdicts_total"] == {"H200": 5.0}


def test_a_step_shows_how_far_its_phase_is(seen: dict[str, dict[str, float]]) -> None:
    assert seen["ray_warpsmith_step"] == {"1-sft": 4.0}
    assert seen["ray_warpsmith_step_seconds"] == {"1-sft": 12.5}


def test_the_dashboard_asks_for_what_there_is_and_for_all_of_it(seen: dict[str, dict[str, float]]) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {name for panel in panels for target in panel["targets"] for name in re.findall(r"ray_\w+", target["expr"])}
    assert asked == set(seen)
    assert all('run=~"$run"' in target["expr"] for panel in panels for target in panel["targets"])


def test_what_is_read_may_fail_and_sampling_goes_on(local_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.fleet.ray_metrics._SECONDS", 0.01)
    asked: list[int] = []

    def figures() -> list[RoleFigures]:
        asked.append(1)
        raise RuntimeError("dictionary changed size during iteration")

    metrics = RayMetrics("failing", "cpu", figures, Counter)
    metrics.start()
    deadline = time.monotonic() + 60.0
    while len(asked) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    metrics.close()
    assert len(asked) >= 3
