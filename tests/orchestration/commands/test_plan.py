"""`warpsmith plan` through its front door."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import Result

ROOT = Path(__file__).parents[3]
CODER = str(ROOT / "docs" / "results" / "coder")
PRICES = """
currency: EUR
gpus:
  H200: {price: 3.0, source: a test, date: 2026-11-01}
  L40S: {price: 0.8, source: a test, date: 2026-11-01}
"""
RATES = "L40S: {evaluations_an_hour: 900, preset: fast, source: a test}"


@pytest.fixture
def plan(warpsmith, tmp_path: Path):
    (tmp_path / "prices.yaml").write_text(PRICES)
    (tmp_path / "rates.yaml").write_text(RATES)

    def invoke(*arguments: str) -> Result:
        return warpsmith("plan", "local", "evaluator.arch=H200", *arguments)

    return invoke


def refused(done: Result) -> str:
    assert done.exit_code == 2, done.output
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


def test_a_plan_shows_mix_step_time_and_cost_and_writes_nothing(plan, tmp_path: Path) -> None:
    words = ["--step-seconds", "60", "--types", "H200,L40S", "--prices", "prices.yaml", "--rates", "rates.yaml"]
    before = sorted(tmp_path.iterdir())
    done = plan("rollout.engines=4", "--like", CODER, *words)
    assert done.exit_code == 0, done.output
    for shown in (
        "to rent for steps of at most 60 s",
        "measured: ",
        "rate: a test",
        "EUR in all",
        "1-contrastive_rl",
        "missing: ",
    ):
        assert shown in done.stdout, done.stdout
    assert sorted(tmp_path.iterdir()) == before


def test_json_holds_the_same_plan(plan) -> None:
    done = plan("--like", CODER, "--json")
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert made["unit"] == "GPU-hours"
    (option,) = made["options"]
    assert option["cost"] == pytest.approx(option["hours"] * option["gpus"])
    assert [stage["key"] for stage in option["stages"]][-1] == "assessments"


def test_the_types_of_the_cluster_are_compared_by_default(plan) -> None:
    nodes = "cluster.gpu_nodes=['H200x8:0-4@kind=a','L40Sx4:0-8@kind=b']"
    words = ["--step-seconds", "60", "--like", CODER, "--prices", "prices.yaml", "--rates", "rates.yaml", "--json"]
    done = plan(nodes, "rollout.engines=4", *words)
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert [one["accelerator"] for one in made["types"]] == ["H200", "L40S"]
    assert {name for option in made["options"] for name in option["nodes"]} <= {"H200x8", "L40Sx4"}


def test_what_is_missing_is_named_with_its_remedy(plan) -> None:
    two = ["--step-seconds", "60", "--types", "H200,L40S"]
    assert "--prices FILE" in refused(plan("rollout.engines=4", "--like", CODER, *two, "--rates", "rates.yaml"))
    assert "--rates FILE" in refused(plan("evaluator.arch=B200"))
    assert "--step-seconds" in refused(plan("--types", "L40S"))
    assert "not a run directory" in refused(plan("--like", "nowhere"))
    assert "absent.yaml: cannot be read" in refused(plan("--prices", "absent.yaml"))
    assert "judged by cpu alone" in refused(plan("evaluator.arch=cpu", "--step-seconds", "60", "--types", "H200"))
    assert "are on H200, too" in refused(plan("placement.share=all", "--training-type", "L40S"))
    assert "tasks.include" in refused(plan("tasks.include=[nothing]"))


def test_the_guide_shows_what_the_command_prints(plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "118")
    guide = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```\n(GPU types\n.*?)\n```", guide, re.DOTALL)
    done = plan("rollout.engines=4", "--like", CODER, "--step-seconds", "60")
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    assert printed.startswith(shown)
