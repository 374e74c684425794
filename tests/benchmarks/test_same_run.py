"""Two runs are the same if their prompts, samples and losses are equal in every bit, whatever the times they took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.same_run import main
from learners.records import Rollout
from orchestration.run.directory import RunDirectory

ROLLOUT = Rollout(
    "level1/softmax", "g", "a prompt", "a response", (1, 2), (3, 4), (-0.5, -0.25), 1,
    candidate_digest="abc", outcome="ok", reward=1.5, advantage=0.5,
)  # fmt: skip
METRICS = {"train/loss": 0.25, "train/kl": float("nan"), "reward": 1.5}

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a run of an assessment and two steps; `changed` replaces fields of the last step's second rollout."""

    def made(name: str, changed: dict[str, Any] | None = None, metrics: dict[str, float] | None = None) -> Path:
        run = RunDirectory(tmp_path, name)
        run.samples.write("assess/base", 0, [ROLLOUT])
        run.metrics.write("assess/base", 0, {"reward": 1.0})
        for step in range(2):
            second = replace(ROLLOUT, **(changed or {})) if step else ROLLOUT
            run.samples.write("1-contrastive_rl", step, [ROLLOUT, second])
            run.metrics.write("1-contrastive_rl", step, {**METRICS, **((metrics or {}) if step else {})})
        return tmp_path / name

    return made


def compared(capsys: pytest.CaptureFixture[str], *runs: Path, steps: bool = False) -> tuple[int, list[str]]:
    code = main([*map(str, runs), *(["--steps"] if steps else [])])
    return code, [line for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_equal_runs_are_identical_whatever_time_they_took(make: Make, capsys) -> None:
    slow = {"step_seconds": 9.0, "train/seconds": 9.0, "tokens_per_second": 1.0, "utilisation/learner": 0.1}
    code, lines = compared(capsys, make("before"), make("after", metrics=slow))
    assert code == 0
    assert lines[-1].startswith("The runs are identical")
    assert lines[2].split() == ["assess/base", "1", "1", "1", "1", "0", "0", "0", "yes"]
    assert lines[3].split() == ["1-contrastive_rl", "2", "4", "4", "4", "0", "0", "0", "yes"]


@pytest.mark.parametrize(
    ("changed", "row", "sentence"),
    [
        ({"prompt": "a promise"}, "3 4 0 0 0", "prompt from character 6 on: 'pt' and 'ise'"),
        ({"response_ids": (3, 5)}, "4 3 0 0 0", "response_ids from entry 1 on: [4] and [5]"),
        ({"logprobs": (-0.5, -0.75)}, "4 4 0.5 0 0", "logprobs from entry 1 on: [-0.25] and [-0.75]"),
        ({"reward": 2.5}, "4 4 0 1 0", "reward: 1.5 and 2.5"),
        ({"reward": None}, "4 4 0 inf 0", "reward: 1.5 and None"),
        ({"advantage": 0.5 + 1e-15}, "4 4 0 0 0", "advantage: 0.5 and 0.500000000000001"),
        ({"candidate_digest": "abd"}, "4 4 0 0 0", "candidate_digest from character 2 on: 'c' and 'd'"),
        ({"outcome": "wrong"}, "4 4 0 0 0", "outcome from character 0 on: 'ok' and 'wrong'"),
    ],
)
def test_any_difference_of_a_sample_is_named(make: Make, capsys, changed, row: str, sentence: str) -> None:
    code, lines = compared(capsys, make("before"), make("after", changed))
    assert code == 1
    assert lines[3].split() == ["1-contrastive_rl", "2", "4", *row.split(), "no"]
    assert lines[-2] == "1 of 3 steps differ. The first difference:"
    assert lines[-1] == f"1-contrastive_rl step 1: rollout 1 of level1/softmax, {sentence}"


@pytest.mark.parametrize("name", ["train/loss", "train/gradient_norm", "stragglers"])
def test_any_difference_of_a_metric_is_named(make: Make, capsys, name: str) -> None:
    code, lines = compared(capsys, make("before", metrics={name: 1.0}), make("after", metrics={name: 1.25}), steps=True)
    assert code == 1
    loss = "0.25" if name.startswith("train/") else "0"
    assert lines[4].split() == ["1-contrastive_rl", "1", "2", "2", "2", "0", "0", loss, "no"]
    assert lines[-1] == f"1-contrastive_rl step 1: metric {name}: 1.0 and 1.25"


@pytest.mark.parametrize("changed", [{}, {"response_ids": (3, 6)}])
def test_another_order_is_a_difference_that_hides_no_other(make: Make, capsys, tmp_path: Path, changed) -> None:
    runs = make("before"), make("after")
    second = replace(ROLLOUT, task_id="level1/gelu_tanh", prompt_ids=(1, 7))
    RunDirectory(tmp_path, "before").samples.write("1-contrastive_rl", 1, [ROLLOUT, second])
    RunDirectory(tmp_path, "after").samples.write("1-contrastive_rl", 1, [replace(second, **changed), ROLLOUT])
    code, lines = compared(capsys, *runs)
    assert code == 1
    assert lines[3].split()[2:5] == ["4", "4", "3" if changed else "4"]
    sentence = "rollout 1 of level1/gelu_tanh, response_ids from entry 1 on: [4] and [6]"
    order = "the rollouts are stored in another order"
    assert lines[-1] == f"1-contrastive_rl step 1: {sentence if changed else order}"


def test_a_step_that_one_run_lacks_is_a_difference(make: Make, capsys, tmp_path: Path) -> None:
    longer = make("longer")
    RunDirectory(tmp_path, "longer").samples.write("1-contrastive_rl", 2, [ROLLOUT])
    code, lines = compared(capsys, make("before"), longer)
    assert code == 1
    assert lines[-1] == "1-contrastive_rl step 2: only the second run has this step"


def test_a_folder_without_steps_is_refused(make: Make, capsys, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(make("before")), str(tmp_path)])
    assert ended.value.code == 2
    assert "give a run directory" in capsys.readouterr().err
