"""What is read of an earlier run: from its directory, and from published results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from configs.load import ConfigError, load_config
from evaluators.records import Outcome, Verdict
from orchestration.plan.earlier import Judged, read_earlier
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import RunDirectoryError

ROOT = Path(__file__).parents[3]
METRICS = {
    "rollouts": 32.0, "measured": 24.0, "generated_tokens": 6400.0, "generate_seconds": 20.0, "pipeline_seconds": 30.0,
    "sync_seconds": 1.0, "step_seconds": 39.0,
}  # fmt: skip


def verdict(seconds: float | None, outcome: Outcome = Outcome.OK, **about: str) -> Verdict:
    cost = {} if seconds is None else {"total": seconds}
    return Verdict("c", "level1/softmax", "H100", outcome, evaluator={"preset": "fast", **about}, cost=cost)


def look(seconds: float) -> Verdict:
    one = verdict(seconds, Outcome.RUNTIME_ERROR)
    return Verdict(
        one.candidate, one.task, one.arch, one.outcome, evaluator=one.evaluator, cost={"look": seconds, **one.cost}
    )


def make_run(root: Path, verdicts: list[Verdict], metrics: dict[str, float], *overrides: str) -> str:
    run = RunDirectory(root, "earlier")
    run.write_config(load_config("local", ["name=earlier", "evaluator.arch=H100", *overrides]))
    run.verdicts.write("1-sft", 0, [verdict(100.0)])  # a teacher's, and no candidate of a policy
    run.verdicts.write("1-contrastive_rl", 0, verdicts)
    run.metrics.write("1-contrastive_rl", 0, metrics)
    run.metrics.write("assess/base", 0, {**METRICS, "rollouts": 1000.0})
    return str(root / "earlier")


def test_verdicts_and_paces_of_a_run_are_read(tmp_path: Path) -> None:
    place = make_run(tmp_path, [verdict(2.0), verdict(4.0)], METRICS, "rollout.engines=2", "learner.ranks=4")
    run = read_earlier(place)
    assert run.judged == (
        Judged("level1/softmax", "H100", "fast", 2.0), Judged("level1/softmax", "H100", "fast", 4.0)
    )  # fmt: skip
    assert run.share == pytest.approx(0.75)
    assert run.pace is not None
    assert run.pace.engine_tokens == pytest.approx(6400 / 20 / 2)
    assert run.pace.response_tokens == pytest.approx(200.0)
    assert run.pace.learn_seconds == pytest.approx((39.0 - 30.0 - 1.0) * 4 / 32)
    assert run.pace.push_seconds == pytest.approx(1.0)


def test_a_verdict_that_several_steps_have_counts_in_the_first_alone(tmp_path: Path) -> None:
    taught = verdict(100.0)
    place = make_run(tmp_path, [verdict(2.0), taught, verdict(9.0, Outcome.RUNTIME_ERROR, judged_on="cpu")], METRICS)
    again = [verdict(2.0), verdict(4.0), verdict(9.0, Outcome.RUNTIME_ERROR, judged_on="cpu")]
    RunDirectory(tmp_path, "earlier").verdicts.write("1-contrastive_rl", 1, again)
    run = read_earlier(place)
    assert [one.seconds for one in run.judged] == [2.0, 4.0]
    assert run.share == pytest.approx(0.75 * 2 / 3)


def test_verdicts_that_needed_no_evaluator_do_not_count(tmp_path: Path) -> None:
    needless = [
        verdict(None),  # of an earlier version, which had no costs
        verdict(9.0, taken_over="another"),
        verdict(8.0, Outcome.INFRA),
        verdict(9.0, Outcome.RUNTIME_ERROR, judged_on="cpu"),
    ]
    run = read_earlier(make_run(tmp_path, [verdict(2.0), *needless], METRICS))
    assert [one.seconds for one in run.judged] == [2.0]
    assert run.share == pytest.approx(0.75 / 2)  # a half of the fresh ones ended on a CPU


def test_looks_of_builders_are_evaluators_work_unless_the_planned_run_has_them_too(tmp_path: Path) -> None:
    place = make_run(tmp_path, [verdict(2.0), look(1.0)], METRICS)
    assert [one.seconds for one in read_earlier(place).judged] == [2.0, 1.0]
    in_turns = read_earlier(place, builders_look=True)
    assert [one.seconds for one in in_turns.judged] == [2.0]
    assert in_turns.share == pytest.approx(0.75 / 2)


def test_a_run_that_sampled_nothing_has_no_pace(tmp_path: Path) -> None:
    run = read_earlier(make_run(tmp_path, [verdict(2.0)], {"loss": 1.0}))
    assert run.pace is None
    assert run.share is None


def test_published_results_are_read_like_a_run() -> None:
    run = read_earlier(str(ROOT / "docs/results/coder"))
    assert run.name == "coder"
    assert {one.arch for one in run.judged} == {"H200"}
    assert run.pace is not None
    assert run.pace.model.startswith("Qwen")
    assert 100.0 < run.pace.engine_tokens < 10_000.0


def test_a_run_without_measured_verdicts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no verdict that an evaluator measured"):
        read_earlier(make_run(tmp_path, [verdict(None)], METRICS))


def test_published_results_that_are_broken_are_refused(tmp_path: Path) -> None:
    for name in ("config.yaml", "verdicts.parquet"):
        shutil.copy(ROOT / "docs/results/coder" / name, tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"metrics\.parquet"):
        read_earlier(str(tmp_path))
    (tmp_path / "verdicts.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_earlier(str(tmp_path))


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        read_earlier(str(tmp_path))
