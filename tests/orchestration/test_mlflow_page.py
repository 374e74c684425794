"""Five runs side by side in MLflow's own UI, in a real browser, beside what `warpsmith compare` says of them.

The runs are the published ones: MLflow gets the figures that their drivers recorded, and `warpsmith compare` computes
them from the rows of samples and verdicts. With MLFLOW_PICTURE=FILE the picture of the page is written there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from configs.schema import RunConfig
from orchestration.commands.main import app
from orchestration.report.keys import ASSESSMENT, is_training, run_order
from orchestration.report.observed import Metrics
from orchestration.report.published import restore
from orchestration.run.mlflow_runs import tracking_uri
from orchestration.run.tracking import Tracker
from tests.orchestration.mlflow_figures import figures_in_report
from tests.orchestration.report.browser import CHROMIUM, Browser, browser
from tests.ports import free_port

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
NAMES = ("coder", "half-hour", "hour", "rehearsed", "right-alone")
EXPERIMENT = "published"
PREFIXES = {"Training tasks": "", "Held-out tasks": "held_out/"}
STEP_FIGURES = ("success_rate", "mean_speedup")
PATIENCE = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracked")


@pytest.fixture(scope="module")
def parents(root: Path) -> dict[str, str]:
    """The MLflow run of each published run, tracked as its driver tracked it: steps and assessments, in their order."""
    found = {}
    for name in NAMES:
        run = restore(PUBLISHED / name, root)
        config = replace(run.read_config(), name=name, root=str(root))
        config.tracking.uri, config.tracking.experiment, config.tracking.system_metrics = "", EXPERIMENT, False
        metrics = Metrics(run.metrics.read().to_pylist())
        with Tracker(config, run) as tracker:
            for version, key in enumerate(sorted(metrics.phases, key=run_order)):
                if key.startswith(ASSESSMENT):
                    tracker.log_assessment(key.removeprefix(ASSESSMENT), metrics.of(key)[0], version)
                elif is_training(key):
                    for step, figures in enumerate(metrics.of(key)):
                        chosen = {name: figures[name] for name in STEP_FIGURES if name in figures}
                        tracker.log_metrics(key, chosen, step)
        found[name] = str(tracker.ids["parent"])
    return found


@pytest.fixture(scope="module")
def address(root: Path, parents: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MLflow's server as `make mlflow` starts it, on a port of its own."""
    port, log = free_port(), tmp_path_factory.mktemp("server") / "log"
    database = tracking_uri(RunConfig(name="any", root=str(root)))
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--workers", "1"], cwd=root, env=environment, stdout=output, stderr=output
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not answers(f"http://127.0.0.1:{port}/health"):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    done = CliRunner().invoke(app, ["compare", *(str(PUBLISHED / name) for name in NAMES), "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def last_figures(compared: dict[str, Any], name: str) -> dict[str, float]:
    """What `warpsmith compare` says of the last stage of a run, under MLflow's names."""
    figures = {}
    for group in compared["groups"]:
        *_, stage = group["runs"][name]["stages"].values()
        figures |= figures_in_report(stage, PREFIXES[group["title"]])
    return {f"{ASSESSMENT}{key}": value for key, value in figures.items()}


METRICS = """
(() => {
  const grids = [...document.querySelectorAll(".ReactVirtualized__Grid")];
  const at = grids.findIndex((grid) => grid.innerText.includes("assess/"));
  if (at < 0 || !grids[at + 1]) return null;
  const cells = (grid) => [...grid.querySelector(".ReactVirtualized__Grid__innerScrollContainer").children]
    .map((cell) => [parseInt(cell.style.top), parseInt(cell.style.left), cell.innerText.trim()]);
  const [names, values] = [cells(grids[at]), cells(grids[at + 1])];
  const all = grids[at + 1], ends = all.scrollTop + all.clientHeight >= all.scrollHeight - 1;
  all.scrollTop += 0.6 * all.clientHeight;
  return { names, values, ends };
})()
"""
"""The rows of the table of metrics that are in sight, and the next ones are brought there: it makes no others."""


FOR_PICTURE = """
(() => {
  const buttons = [...document.querySelectorAll("[role=button], button")];
  buttons.find((each) => each.innerText.trim() === "Parameters")?.click();
  buttons.find((each) => /close/i.test(`${each.ariaLabel} ${each.dataset.componentId}`))?.click();
})()
"""
"""Folds the parameters, above the metrics, and closes what stands beside the comparison."""


def shoot(shown: Browser, file: Path) -> None:
    """A picture of the page as it comes up: its two halves of the table may be scrolled apart by now."""
    shown.run("window.isOld = true; location.reload()")
    deadline = time.monotonic() + PATIENCE
    while not shown.run("window.isOld !== true && (document.body?.innerText ?? '').includes('assess/')"):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    shown.resize(1800, 1420)
    shown.run(FOR_PICTURE)
    time.sleep(2.0)  # for the page to fold
    shown.shoot(file)


def metrics_in(shown: Browser) -> dict[str, list[str]]:
    """The table of metrics as the page shows it: by metric, the text of each run's cell."""
    found: dict[str, dict[int, str]] = {}
    deadline, ends = time.monotonic() + PATIENCE, 0
    while ends < 2:  # once more, when the last ones have had the time to appear
        assert time.monotonic() < deadline, shown.run("document.body?.innerText")
        seen = shown.run(METRICS)
        if seen is not None:
            names = {top: name for top, _, name in seen["names"]}
            for top, left, text in seen["values"]:
                if name := names.get(top):
                    found.setdefault(name, {})[left] = text
            ends += seen["ends"]
        time.sleep(0.3)
    return {name: [of_run[left] for left in sorted(of_run)] for name, of_run in found.items()}


def test_the_comparison_of_five_runs_in_the_browser_has_the_numbers_of_the_command(
    shown: Browser, address: str, root: Path, parents: dict[str, str], compared: dict[str, Any], tmp_path: Path
) -> None:
    client = MlflowClient(tracking_uri(RunConfig(name="any", root=str(root))))
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    runs, experiments = json.dumps([parents[name] for name in NAMES]), json.dumps([experiment.experiment_id])
    shown.resize(2000, 1250)  # wide enough for five columns, of which it makes only those in sight
    shown.wait_for_load(f"{address}/#/compare-runs?runs={quote(runs)}&experiments={quote(experiments)}")
    cells = metrics_in(shown)
    assert {len(texts) for texts in cells.values()} == {len(NAMES)}, cells
    checked = 0
    for index, name in enumerate(NAMES):
        for key, value in last_figures(compared, name).items():
            if key not in cells or (text := cells[key][index]) in ("", "NaN"):
                continue  # that version of the run did not record it
            digits = len(re.sub(r"^-?\d+\.?", "", text))
            assert float(text) == pytest.approx(value, abs=0.5 * 10.0**-digits + 1e-9), (name, key)
            checked += 1
    assert checked > 25, cells
    picture = Path(os.environ.get("MLFLOW_PICTURE", tmp_path / "mlflow.png")).absolute()
    shoot(shown, picture)
    assert picture.stat().st_size > 20_000
