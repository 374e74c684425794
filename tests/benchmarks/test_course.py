"""The speed of fresh samples after each phase is read from a published run's rows, failures included."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from benchmarks.course import by_answer, by_stage
from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from evaluators.tasks.loader import load_variants
from learners.records import Rollout
from orchestration.report import build_report
from orchestration.report.publish import publish
from orchestration.report.published import published_baselines, restore
from orchestration.run.directory import RunDirectory

ANALYSIS = " ".join(re.findall(r"\w+", load_variants("level1/softmax")[0].analysis)[:8])
ANSWER = f"## Performance Analysis\nImplementation 1 at 1.52x: {ANALYSIS}, and no more.\n## Algorithm Design\n1."

PHASES = {  # speed-ups over eager by task, 0 for samples that are not right; level1/gelu_tanh is never trained on
    "assess/base": {"level1/softmax": [0.0, 1.0], "level2/7": [0.0, 0.0], "level1/gelu_tanh": [9.0, 9.0]},
    "assess/1-contrastive_rl": {"level1/softmax": [16.0, 0.0], "level2/7": [1.0, 0.5], "level1/gelu_tanh": [0.0, 0.0]},
    "assess/1-sft": {"level1/softmax": [4.0, 4.0], "level2/7": [0.0, 0.0], "level1/gelu_tanh": [9.0, 9.0]},
    "1-sft": {"level1/softmax": [4.0]},  # a lesson
    "1-self_supervised": {"level1/softmax": [32.0], "level2/7": [32.0]},
}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    run = RunDirectory(tmp_path, "small")
    config = RunConfig(name="small", root=str(tmp_path))
    config.evaluator.baselines = ["eager", "torch_compile"]
    run.write_config(config)
    run.write_held_out(["level1/gelu_tanh"])
    for phase, tasks in PHASES.items():
        rollouts, verdicts = [], []
        for task, value in ((task, value) for task, values in tasks.items() for value in values):
            digest = Candidate.propose(task, f"speed = {value}", "policy:1").digest
            outcome = Outcome.OK if value else Outcome.WRONG
            over = {"eager": value, "torch_compile": value / 3.0} if value else {}
            estimates = {name: Estimate(speedup, speedup, speedup, 5) for name, speedup in over.items()}
            verdicts.append(Verdict(digest, task, "cpu", outcome, speedups=estimates))
            rollouts.append(
                Rollout(
                    task,
                    "g",
                    "",
                    ANSWER,
                    (1,),
                    (2,),
                    (-1.0,),
                    1,
                    candidate_digest=digest,
                    outcome=str(outcome),
                    copy_of="",
                    fastest_shown=1.5 if phase == "1-self_supervised" else 1.0,
                )
            )
        if phase != "1-sft":
            run.samples.write(phase, 0, rollouts)
        run.verdicts.write(phase, 0, verdicts)
    return publish(build_report(run), run, tmp_path / "page").parent


def lines_of(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=160)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines() if line.strip()]


def test_a_sample_that_is_not_right_counts_as_the_reference(published: Path, tmp_path: Path) -> None:
    training, held_out = build_report(restore(published, tmp_path / "again")).groups
    assert lines_of(by_stage(training))[2:] == [
        "base 4 25.0% 0.0% 0.0% 0.0% 25.0% 0.0% 0.0% 1.00x (1.00-1.00)",
        # equal samples: no width over samples; of the two tasks only one is solved, by its lesson
        "sft 4 50.0% 0.0% 50.0% 100.0% 0.0% 50.0% 0.0% 2.00x (1.00-4.00) 2.00x (1.00-4.00) (2.00-2.00)",
        # the fourth root of 16 / 2
        "contrastive_rl 4 75.0% 0.0% 0.0% 0.0% 75.0% 25.0% 25.0% 1.68x (0.71-4.00) 0.84x (0.71-1.00) (0.35-2.00)",
        "reference 2 100.0% 100.0% 0.0% 0.0% 0.0% 0.0% 0.0% 1.00x (1.00-1.00)",
        "torch.compile 2 100.0% - 0.0% 0.0% - 100.0% - 3.00x (3.00-3.00)",
    ]
    assert lines_of(by_stage(held_out))[2].startswith("base 2 100.0%")


def test_baselines_of_other_runs_fill_what_a_run_did_not_measure(published: Path, tmp_path: Path) -> None:
    run = restore(published, tmp_path / "again")
    run.verdicts.write("assess/base", 0, [])
    for phase in ("1-sft", "assess/1-sft", "assess/1-contrastive_rl", "1-self_supervised"):
        run.verdicts.write(phase, 0, [])
    assert [stage.label for stage in build_report(run).groups[0].constants] == ["reference"]
    constants = build_report(run, published_baselines([published])).groups[0].constants
    assert [stage.label for stage in constants] == ["reference", "torch.compile"]
    assert constants[1].summary.over_eager.mean.value == pytest.approx(3.0)


def test_published_answers_are_read_for_exemplars_and_lessons(published: Path) -> None:
    variant = load_variants("level1/softmax")[0]
    assert len(variant.analysis.split()) >= 8
    assert lines_of(by_answer(published))[2:] == ["1-self_supervised 1 1 1 50%"], "level2/7 is not ours to publish"
