"""A close call is made on several pairs of processes, and the findings of all of them count. A program whose times
alone are doubted is judged again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from configs.schema import LimitsConfig
from evaluators.compile.cache import BuildCache
from evaluators.host.cpu_device import CpuDevice
from evaluators.judge.demands import Demands
from evaluators.judge.judgement import Judgement
from evaluators.judge.slot import MeasuringSlot
from evaluators.records import Estimate, Finding, Outcome, Timing
from evaluators.tasks import TaskProgram, find_task
from evaluators.timing.presets import preset_named

pytestmark = pytest.mark.measures

PRESET = replace(preset_named("fast"), pairs_of_processes=3)
SECONDS = Estimate(1e-5, 1e-5, 1e-5, 16)


@pytest.fixture
def slot(limits: LimitsConfig, monkeypatch, tmp_path) -> Iterator[MeasuringSlot]:
    """The slot of a device on which processes differ by 1 %."""
    monkeypatch.setattr(CpuDevice, "spread", lambda self, seconds: 0.01)
    made = MeasuringSlot(CpuDevice(), limits, BuildCache(tmp_path), tmp_path, Demands())
    yield made
    made.close()


def judgement(value: float, *findings: Finding) -> Judgement:
    timing = Timing(SECONDS, SECONDS, 16, "interval", 0.0)
    return Judgement(Outcome.OK, "", None, Estimate(value, value - 1e-3, value + 1e-3, 16), timing, findings)


def judge(slot: MeasuringSlot, monkeypatch, *answers: Judgement) -> tuple[Judgement, int]:
    """The slot's judgement, given those of single pairs of processes, and the number of pairs it asked."""
    queue = [replace(answer, containment=("rlimits",)) for answer in answers]
    monkeypatch.setattr(slot._processes, "judge", lambda *_, **__: queue.pop(0))
    program = TaskProgram(find_task("level1/softmax"))
    found = slot.judge(program, "", PRESET, None)
    assert found.containment == ("rlimits",)
    return found, len(answers) - len(queue)


def test_the_median_of_three_pairs_decides_a_close_call(slot, monkeypatch) -> None:
    found, asked = judge(slot, monkeypatch, judgement(1.04), judgement(1.0), judgement(1.01))
    assert asked == 3
    assert found.speedup.value == 1.01
    assert found.speedup.n == 48
    assert found.speedup.low < 1.0 < found.speedup.high
    assert "fresh_processes" in found.cost


@pytest.mark.parametrize("value", [0.5, 0.9, 1.1, 4.0])
def test_one_pair_is_enough_for_a_clear_call(slot, monkeypatch, value) -> None:
    found, asked = judge(slot, monkeypatch, judgement(value), judgement(1.0), judgement(1.0))
    assert asked == 1
    assert found.speedup.value == value
    assert found.speedup.high - found.speedup.low > 0.03 * value  # processes differ, even if one pair does not show it


def test_one_pair_is_enough_if_processes_are_alike(slot, monkeypatch) -> None:
    monkeypatch.setattr(CpuDevice, "spread", lambda self, seconds: 0.001)
    assert judge(slot, monkeypatch, judgement(1.0), judgement(1.0))[1] == 1


def test_a_program_that_fails_in_one_pair_has_failed(slot, monkeypatch) -> None:
    wrong = Judgement(Outcome.WRONG, "relative error 1")
    found, asked = judge(slot, monkeypatch, judgement(1.0), judgement(1.0), wrong)
    assert asked == 3
    assert found.outcome is Outcome.WRONG
    assert found.speedup is None


def test_findings_of_a_later_pair_count(slot, monkeypatch) -> None:
    hint, doubt = Finding("shapes", "hint", "first"), Finding("floor", "suspect", "third")
    found, _ = judge(slot, monkeypatch, judgement(1.0, hint), judgement(1.0), judgement(1.0, doubt))
    assert sorted(finding.message for finding in found.findings) == ["first", "third"]


def test_a_hint_does_not_replace_a_suspicion_of_its_kind(slot, monkeypatch) -> None:
    hint, doubt = Finding("flags", "hint", "set back"), Finding("flags", "suspect", "set in a call")
    found, _ = judge(slot, monkeypatch, judgement(1.0, hint), judgement(1.0, doubt), judgement(1.0))
    assert sorted(finding.severity for finding in found.findings) == ["hint", "suspect"]


LATE, OTHERS = Finding("clocks", "suspect", "late"), Finding("neighbours", "suspect", "slow")


@pytest.mark.parametrize(("first", "second"), [(2.0, 3.0), (3.0, 2.0)])
def test_a_program_whose_times_are_doubted_once_is_paid_the_lower_of_two_speedups(
    slot, monkeypatch, first, second
) -> None:
    found, asked = judge(slot, monkeypatch, judgement(first, LATE, OTHERS), judgement(second))
    assert asked == 2
    assert (found.speedup.value, found.doubts) == (2.0, ())
    assert [finding.kind for finding in found.findings] == ["clocks", "neighbours"]
    assert "judged_again" in found.cost


def test_a_doubt_of_times_that_repeats_itself_stands(slot, monkeypatch) -> None:
    found, asked = judge(slot, monkeypatch, judgement(2.0, LATE), judgement(2.0, OTHERS), judgement(2.0))
    assert asked == 2
    assert found.doubts == (OTHERS,)


def test_a_program_that_fails_when_it_is_judged_again_has_failed(slot, monkeypatch) -> None:
    found, _ = judge(slot, monkeypatch, judgement(2.0, LATE), Judgement(Outcome.WRONG, "relative error 1"))
    assert (found.outcome, found.speedup) == (Outcome.WRONG, None)


@pytest.mark.parametrize("kinds", [("integrity",), ("weights", "clocks"), ("floor",), ("hidden_work",)])
def test_no_other_doubt_is_measured_away(slot, monkeypatch, kinds) -> None:
    doubts = [Finding(kind, "suspect", kind) for kind in kinds]
    found, asked = judge(slot, monkeypatch, judgement(2.0, *doubts), judgement(2.0))
    assert (asked, found.doubts) == (1, tuple(doubts))


def test_the_papers_protocol_judges_once(slot, monkeypatch) -> None:
    monkeypatch.setattr(f"{__name__}.PRESET", preset_named("paper"))
    found, asked = judge(slot, monkeypatch, judgement(2.0, LATE), judgement(2.0))
    assert (asked, found.doubts) == (1, (LATE,))


@pytest.mark.slow
def test_real_processes_settle_a_close_call(slot) -> None:
    task = find_task("level1/softmax")
    source = task.source.replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")
    found = slot.judge(TaskProgram(task), source, PRESET, None)
    assert found.outcome is Outcome.OK, found.message or found.guard
    assert found.speedup is not None
    assert "rlimits" in found.containment
    pairs = found.timing.pairs
    assert found.speedup.n > pairs if "fresh_processes" in found.cost else found.speedup.n == pairs
