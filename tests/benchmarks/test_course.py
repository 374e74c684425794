"""The speed of fresh samples after each phase is read from a published run's rows, failures included."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.course import by_stage
from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from learners.records import Rollout
from orchestration.report import build_report
from orchestration.report.publish import publish
from orchestration.run.directory import RunDirectory

PHASES = {  # speed-ups over eager by task, 0 for samples that are not right; level1/gelu_tanh is never trained on
    "assess/base": {"level1/softmax": [0.0, 1.0], "level2/7": [0.0, 0.0], "level1/gelu_tanh": [9.0, 9.0]},
    "assess/1-contrastive_rl": {"level1/softmax": [16.0, 0.0], "level2/7": [1.0, 0.5], "level1/gelu_tanh": [0.0, 0.0]},
    "assess/1-sft": {"level1/softmax": [4.0, 4.0], "level2/7": [0.0, 0.0], "level1/gelu_tanh": [9.0, 9.0]},
    "1-self_supervised": {"level1/softmax": [32.0], "level2/7": [32.0]},
}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    run = RunDirectory(tmp_path, "small")
    run.write_config(RunConfig(name="small", root=str(tmp_path)))
    for phase, tasks in PHASES.items():
        rollouts, verdicts = [], []
        for task, value in ((task, value) for task, values in tasks.items() for value in values):
            digest = Candidate.propose(task, f"speed = {value}", "policy:1").digest
            outcome = Outcome.OK if value else Outcome.WRONG
            over = {"eager": Estimate(value, value, value, 5)} if value else {}
            verdicts.append(Verdict(digest, task, "cpu", outcome, speedups=over))
            rollouts.append(
                Rollout(task, "g", "", "", (1,), (2,), (-1.0,), 1, candidate_digest=digest, outcome=str(outcome))
            )
        run.samples.write(phase, 0, rollouts)
        run.verdicts.write(phase, 0, verdicts)
    return publish(build_report(run), run, tmp_path / "page").parent


def test_a_sample_that_is_not_right_counts_as_the_reference(published: Path) -> None:
    console = Console(file=io.StringIO(), width=140)
    console.print(by_stage(published))
    assert isinstance(console.file, io.StringIO)
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines() if "x (" in line]
    assert lines == [
        "base 4 25.0% 0.0% 1.00x (1.00-1.00)",
        "1-sft 4 50.0% 50.0% 2.00x (2.00-2.00) 2.00x (2.00-2.00)",  # equal samples: no width
        "1-contrastive_rl 4 75.0% 25.0% 1.68x (0.71-4.00) 0.84x (0.35-2.00)",  # the fourth root of 16 / 2
    ]
