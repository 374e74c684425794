"""Verdicts of earlier runs are reused only if they would be measured alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evaluators.evaluator import Evaluator
from evaluators.records import VERDICT_SCHEMA, Estimate, Outcome, Task, Verdict, verdict_table
from evaluators.stored.verdicts import REUSED_FROM, ReusableVerdicts
from evaluators.timing.presets import PRESETS

TASK = Task(
    "test/known",
    1,
    "known",
    "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def forward(self, x):\n"
    "        return torch.tanh(x) + torch.tanh(x)\n"
    "def get_inputs(): return [torch.randn(64, 64)]\ndef get_init_inputs(): return []\n",
)
ONCE, THRICE = (
    "import torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
    f"        return {times} * torch.tanh(x)\n"
    for times in (2, 3)
)
ABOUT = {"arch": "H200", "gpu": "NVIDIA H200", "driver": "580"}
ESTIMATE = Estimate(2.0, 1.9, 2.1, 24)


def verdict_of(outcome: Outcome = Outcome.OK, about: Mapping[str, str] = ABOUT, **changes: Any) -> Verdict:
    evaluator = {**about, "preset": "fast", "task_digest": "t", "containment": "rlimits"}
    speedups = {"eager": ESTIMATE, "torch_compile": ESTIMATE}
    made = Verdict("c", "level1/a", "H200", outcome, speedups=speedups, evaluator=evaluator, cost={"total": 2.0})
    return replace(made, **changes)


@pytest.fixture
def published(tmp_path: Path) -> Callable[..., str]:
    """Writes verdicts as a report publishes them, and returns the folder."""

    def write(*verdicts: Verdict, name: str = "earlier") -> str:
        (tmp_path / name).mkdir()
        columns = [column for column in VERDICT_SCHEMA.names if column != "message"]
        pq.write_table(verdict_table(verdicts).select(columns), tmp_path / name / "verdicts.parquet")
        return str(tmp_path / name)

    return write


def reusable(folder: str, about: Mapping[str, str] = ABOUT, baselines: tuple[str, ...] = ("eager",)) -> list[Verdict]:
    verdict = ReusableVerdicts([folder], about, baselines).known().get(("t", "c", "fast", "drop_in"))
    return [] if verdict is None else [verdict]


def test_a_verdict_is_reused_only_if_it_was_judged_as_strictly(published: Callable[..., str]) -> None:
    folder = published(verdict_of(), verdict_of(strict="values", candidate="d"))
    assert [verdict.candidate for verdict in reusable(folder)] == ["c"]
    by_values = ReusableVerdicts([folder], ABOUT, ("eager",), "values").known()
    assert by_values.get(("t", "d", "fast", "values")) is not None
    assert by_values.get(("t", "c", "fast", "drop_in")) is None


def test_a_reused_verdict_names_its_folder_and_costs_nothing(published: Callable[..., str]) -> None:
    (reused,) = reusable(published(verdict_of()))
    assert reused.evaluator[REUSED_FROM] == "earlier"
    assert (reused.speedups, reused.cost) == (verdict_of().speedups, {})
    again = published(reused, name="later")
    assert [verdict.evaluator[REUSED_FROM] for verdict in reusable(again)] == ["earlier"], "where it was measured"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_right_and_wrong_programs_are_reused(published: Callable[..., str], outcome: Outcome) -> None:
    assert bool(reusable(published(verdict_of(outcome)))) == (outcome in (Outcome.OK, Outcome.WRONG))


@pytest.mark.parametrize("other", [{"driver": "590"}, {"gpu": "NVIDIA H100"}, {"arch": "H100"}, {"torch": "2.12"}])
def test_other_versions_are_measured_anew(published: Callable[..., str], other: dict[str, str]) -> None:
    assert not reusable(published(verdict_of()), {**ABOUT, **other})


def test_verdicts_without_the_guard_are_not_reused(published: Callable[..., str]) -> None:
    assert not reusable(published(verdict_of(about={**ABOUT, "guard": "off"})))


def test_a_baseline_that_is_missing_is_measured_with_the_program(published: Callable[..., str]) -> None:
    folder = published(verdict_of())
    assert reusable(folder, baselines=("eager", "torch_compile"))
    assert not reusable(folder, baselines=("eager", "cuda_graph"))


def test_of_several_folders_the_last_counts(published: Callable[..., str]) -> None:
    folders = [
        published(verdict_of(speedups={"eager": replace(ESTIMATE, value=value)}), name=str(value))
        for value in (1.95, 2.05)
    ]
    reused = ReusableVerdicts(folders, ABOUT, ("eager",)).known().get(("t", "c", "fast", "drop_in"))
    assert reused is not None
    assert reused.speedup == 2.05


def test_a_folder_without_verdicts_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        reusable(str(tmp_path / "nothing"))


@pytest.mark.slow
def test_an_evaluator_measures_no_program_again_that_a_run_has_judged(tmp_path: Path, limits, monkeypatch) -> None:
    monkeypatch.setitem(PRESETS["cpu"], "thorough", replace(PRESETS["cpu"]["fast"], name="thorough"))  # in less time
    with Evaluator("cpu", limits=limits) as first:
        judged = [first.evaluate(TASK, source) for source in (ONCE, THRICE)]
    assert [verdict.outcome for verdict in judged] == [Outcome.OK, Outcome.WRONG], judged
    for step, verdict in enumerate(judged):  # in the layout of a run directory
        folder = tmp_path / "run" / "verdicts" / "phase=1-sft" / f"step={step:06d}"
        folder.mkdir(parents=True)
        pq.write_table(verdict_table([verdict]), folder / "verdicts.parquet")
    with Evaluator("cpu", limits=limits, verdicts_of=[str(tmp_path / "run")]) as second:
        for source, verdict in zip((ONCE, THRICE), judged, strict=True):
            again = second.evaluate(TASK, source)
            assert (again.outcome, again.timing) == (verdict.outcome, verdict.timing)
            assert again.evaluator[REUSED_FROM] == "run"
            assert second.look(TASK, source, preset="fast") == again
        assert second.look(TASK, ONCE, preset="fast", again=True) is None
        assert REUSED_FROM not in second.evaluate(TASK, ONCE, again=True).evaluator
        assert REUSED_FROM not in second.evaluate(TASK.with_sizes(), ONCE + "\n# another\nx = 1\n").evaluator
        assert REUSED_FROM not in second.evaluate(TASK, ONCE, preset="thorough").evaluator
    with Evaluator("cpu", limits=limits, verdicts_of=[str(tmp_path / "run")], guarded=False) as believing:
        assert REUSED_FROM not in believing.evaluate(TASK, ONCE).evaluator
