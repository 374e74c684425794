"""A speed-up that jumps is confirmed by another device before it is believed, if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.evaluation import SameDevice
from configs.schema import EvaluatorConfig, GuardConfig
from evaluators.failures import Unbuilt
from evaluators.guard.cases import HackCases
from evaluators.records import HINT, SUSPECT, Artifact, Candidate, Estimate, Finding, Outcome, Verdict
from evaluators.shared.extension import ExtensionRequest
from evaluators.stored.verdicts import CONFIRMED_BY, DEVICE, REUSED_FROM
from orchestration.fleet.arch_pools import confirms_jumps
from orchestration.step.gathering import Gathering
from orchestration.step.judging import Judging
from orchestration.step.review import Reviewer
from tests.orchestration.step.scripted import SOFTMAX, Pool, compiling, program

CANDIDATE = Candidate.propose(SOFTMAX.id, program("fast"), "test")


class Stand:
    """Judging with evaluators that answer with these: (speed-up or outcome, device), or something else as it is."""

    def __init__(
        self, folder: Path, answers: Sequence[Any], *, most: int = 0, confirms: bool = True, half: float = 0.05
    ) -> None:
        self._answers, self._half = iter(answers), half
        self.builders, self.evaluators = Pool(lambda _: Artifact("a", "torch", "/built", "cpu")), Pool(self._answer)
        self.reviewer = Reviewer(GuardConfig(), HackCases(folder / "hacks.parquet"), {})
        pools: Any = (self.builders, self.evaluators)
        self.judging = Judging(
            [SOFTMAX], *pools, self.reviewer, builders_look=False, remeasure_best=most, confirms_jumps=confirms
        )

    def _answer(self, request: Any) -> Any:
        answer = next(self._answers)
        if not isinstance(answer, tuple):
            return answer
        result, device = answer
        settings = {"preset": request.preset, DEVICE: device} if device else {"preset": request.preset}
        outcome = result if isinstance(result, Outcome) else Outcome.OK
        speedups = (
            {"eager": Estimate(result, result - self._half, result + self._half, 9)} if outcome is Outcome.OK else {}
        )
        return Verdict(
            request.candidate.digest, SOFTMAX.id, "H200", outcome, speedups=speedups, evaluator=settings,
            cost={"total": 2.0},
        )  # fmt: skip

    def judge(self, candidate: Candidate = CANDIDATE) -> Verdict:
        gathering = Gathering((), samples=0, temperature=0.0, preset="fast")
        self.judging.propose(candidate, gathering)
        while self.judging.advance():
            pass
        return gathering.result.verdicts[candidate.digest]

    @property
    def asked(self) -> list[tuple[bool, str, tuple[int, ...]]]:
        return [(one.again, one.not_on, one.avoid) for one in self.evaluators.requests]


def test_a_jump_that_another_device_confirms_is_believed(tmp_path: Path) -> None:
    stand = Stand(tmp_path, [(3.5, "a"), (3.3, "b")])
    verdict = stand.judge()
    assert (verdict.outcome, verdict.speedup, verdict.guard) == (Outcome.OK, pytest.approx(3.3), ())
    assert [one.value for one in verdict.measurements] == [3.5, 3.3]
    assert (verdict.evaluator[DEVICE], verdict.evaluator[CONFIRMED_BY]) == ("b", "a")
    assert verdict.cost["total"] == 4.0
    assert stand.asked == [(False, "", ()), (True, "a", ())]
    assert stand.reviewer.best_of(SOFTMAX.id) == pytest.approx(3.3)


def test_the_other_device_is_the_repetition_of_what_seems_the_fastest(tmp_path: Path) -> None:
    """A third measurement would say nothing that these two do not."""
    stand = Stand(tmp_path, [(3.5, "a"), (3.3, "b")], most=3)
    assert stand.judge().speedup == pytest.approx(3.3)
    assert stand.asked == [(False, "", ()), (True, "a", ())]


def test_devices_that_differ_are_a_doubt_however_wide_their_intervals_are(tmp_path: Path) -> None:
    """A program that makes its own times noisy must not win by that."""
    verdict = Stand(tmp_path, [(4.2, "a"), (3.4, "b")], half=0.6).judge()
    assert (verdict.outcome, verdict.speedups) == (Outcome.SUSPECT, {})


@pytest.mark.parametrize(("third", "outcome"), [(3.5, Outcome.OK), (5.0, Outcome.SUSPECT)])
def test_what_further_repetitions_come_to_must_agree_with_both_devices(
    tmp_path: Path, third: float, outcome: Outcome
) -> None:
    """Their interval reaches below the best, 1, so the program is measured a third time. No device may have seen less
    than what is paid."""
    stand = Stand(tmp_path, [(3.6, "a"), (3.4, "b"), (third, "a")], most=2, half=2.7)
    verdict = stand.judge()
    assert [again for again, _, _ in stand.asked] == [False, True, True]
    assert verdict.outcome is outcome, verdict.guard
    assert (verdict.evaluator[DEVICE], verdict.evaluator[CONFIRMED_BY]) == ("a", "b")


def test_a_jump_that_another_device_does_not_see_is_suspect_and_earns_nothing(tmp_path: Path) -> None:
    stand = Stand(tmp_path, [(3.5, "a"), (3.1, "b")])
    verdict = stand.judge()
    assert (verdict.outcome, verdict.speedups, verdict.doubted["eager"].value) == (Outcome.SUSPECT, {}, 3.1)
    assert verdict.guard[-1] == Finding("confirmation", SUSPECT, "a second H200 measured 3.50x, not 3.10x")
    assert stand.reviewer.best_of(SOFTMAX.id) is None


def test_twice_the_best_so_far_is_a_jump_and_less_is_none(tmp_path: Path) -> None:
    stand = Stand(tmp_path, [(1.2, "a"), (2.5, "a"), (2.4, "b"), (2.9, "a")])
    for name in ("first", "twice", "less than twice"):
        stand.judge(Candidate.propose(SOFTMAX.id, program(name), "test"))
    assert [again for again, _, _ in stand.asked] == [False, False, True, False]


def test_evaluators_with_the_same_device_are_passed_over_until_all_have_been_asked(tmp_path: Path) -> None:
    stand = Stand(tmp_path, [(4.0, "a"), SameDevice(1), SameDevice(0), (4.0, "b")])
    assert stand.judge().evaluator[DEVICE] == "b"
    assert [avoid for _, _, avoid in stand.asked] == [(), (), (1,), (1, 0)]


def test_without_another_device_a_jump_stands_and_says_that_it_is_not_confirmed(tmp_path: Path) -> None:
    verdict = Stand(tmp_path, [(4.0, "a"), SameDevice(0), SameDevice(0)]).judge()
    assert (verdict.outcome, verdict.speedup) == (Outcome.OK, 4.0)
    assert verdict.guard == (Finding("confirmation", HINT, "4.00x is not confirmed: no verdict of a second H200"),)


def test_a_second_verdict_that_fails_decides_unless_the_failure_is_ours(tmp_path: Path) -> None:
    assert Stand(tmp_path, [(4.0, "a"), (Outcome.WRONG, "b")]).judge().outcome is Outcome.WRONG
    ours = Stand(tmp_path, [(4.0, "a"), (Outcome.INFRA, "b")]).judge()
    assert (ours.outcome, ours.guard[-1].severity) == (Outcome.OK, HINT)
    assert "no verdict of a second H200" in ours.guard[-1].message


def test_without_another_device_what_seems_the_fastest_is_measured_again_on_its_own(tmp_path: Path) -> None:
    stand = Stand(tmp_path, [(4.0, "a"), SameDevice(0), SameDevice(0), (3.6, "a"), (3.5, "a")], most=1)
    verdict = stand.judge()
    assert [one.value for one in verdict.measurements] == [4.0, 3.6]
    assert verdict.speedup == pytest.approx(3.6)
    assert [finding.kind for finding in verdict.guard] == ["confirmation"]
    assert [again for again, _, _ in stand.asked] == [False, True, True, True]


def test_a_second_device_may_ask_for_what_has_to_be_built(tmp_path: Path) -> None:
    missing = Unbuilt(ExtensionRequest("late", (("main.cpp", "int f();"),)))
    stand = Stand(tmp_path, [(4.0, "a"), SameDevice(1), missing, (4.0, "b")])
    verdict = stand.judge(Candidate.propose(SOFTMAX.id, compiling(1), "test"))
    assert verdict.evaluator[DEVICE] == "b"
    assert stand.asked[-1] == (True, "a", (1,))
    assert len(stand.builders.requests) == 2


def test_what_is_given_up_meanwhile_is_judged_from_the_beginning(tmp_path: Path) -> None:
    stand = Stand(tmp_path, [(4.0, "a"), (4.0, "b"), (1.1, "b")])
    gathering = Gathering((), samples=0, temperature=0.0, preset="fast")
    stand.judging.propose(CANDIDATE, gathering)
    stand.judging.advance()
    stand.judging.give_up([CANDIDATE.digest], gathering)
    assert stand.judge().speedup == 1.1
    assert stand.asked[-1] == (False, "", ())


def test_an_evaluator_that_has_nobody_to_ask_is_no_answer(tmp_path: Path) -> None:
    """At the preset `paper` each evaluator says so itself, whoever else is in the run."""
    first = Stand(tmp_path, [(4.0, "a")], confirms=False).judge()
    hint = Finding("confirmation", HINT, "4.00x is not confirmed: no verdict of a second H200")
    stand = Stand(tmp_path, [replace(first, guard=(hint,)), (3.9, "b")])
    verdict = stand.judge()
    assert (verdict.evaluator[CONFIRMED_BY], len(stand.asked)) == ("a", 2)
    assert (verdict.speedup, verdict.guard) == (pytest.approx(3.9), ())


@pytest.mark.parametrize("settings", [{DEVICE: "a", REUSED_FROM: "earlier"}, {}], ids=["reused", "unknown device"])
def test_only_what_was_measured_now_on_a_known_device_is_confirmed(tmp_path: Path, settings: dict[str, str]) -> None:
    verdict = Verdict(CANDIDATE.digest, SOFTMAX.id, "H200", Outcome.OK, speedups={"eager": Estimate(4.0, 3.9, 4.1, 9)})
    stand = Stand(tmp_path, [Verdict(**{**vars(verdict), "evaluator": {"preset": "fast", **settings}})])
    assert stand.judge().speedup == 4.0
    assert len(stand.asked) == 1


def test_a_run_may_do_without(tmp_path: Path) -> None:
    stand = Stand(tmp_path, [(4.0, "a")], confirms=False)
    assert stand.judge().guard == ()


@pytest.mark.parametrize(
    ("choice", "arch", "workers", "expected"),
    [
        ("auto", "H200", 2, True),
        ("auto", "H200", 1, False),
        ("auto", "cpu", 2, False),
        ("always", "cpu", 1, True),
        ("never", "H200", 8, False),
    ],
)
def test_jumps_are_confirmed_where_there_are_several_gpus_unless_asked_for(
    choice: str, arch: str, workers: int, expected: bool
) -> None:
    assert confirms_jumps(EvaluatorConfig(arch=arch, workers=workers, confirm_jumps=choice)) is expected
