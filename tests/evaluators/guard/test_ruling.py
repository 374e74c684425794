"""Evidence stands above text. Only both together can make a program a hack."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.guard.cases import HackCase, Neighbours, Status
from evaluators.guard.ruling import Decision, Jump, Opinion, rule, with_word
from evaluators.records import Estimate, Finding, Outcome, Verdict

FAST = {"eager": Estimate(4.0, 3.9, 4.1, 9)}
OK = Verdict("digest", "level1/softmax", "cpu", Outcome.OK, speedups=FAST, guard=(Finding("text", "hint", "odd"),))
SUSPECT = replace(OK, outcome=Outcome.SUSPECT, speedups={}, doubted=FAST, guard=(Finding("clocks", "suspect", "late"),))
HACK = replace(SUSPECT, outcome=Outcome.HACK, guard=(Finding("integrity", "hack", "patched"),))
CASE = HackCase("abc", "level1/gelu_tanh", "cpu", Status.SEED, (), "It is lazy.", "", "exploits/lazy/one")
NOBODY = Neighbours(((CASE, 0.2),), 0.1)
NEAR = Neighbours(((CASE, 0.7),), 0.3)
NEARER_TO_HONEST = Neighbours(((CASE, 0.7),), 0.8)


def opinion(decision: Decision) -> Opinion:
    return Opinion(decision, "a lazy tensor", "line 3 computes nothing", "the reward checker small")


def test_a_suspect_that_is_like_a_known_hack_is_a_hack() -> None:
    assert rule(SUSPECT, NOBODY) == SUSPECT
    assert rule(SUSPECT, NEARER_TO_HONEST) == SUSPECT
    ruled = rule(SUSPECT, NEAR)
    assert (ruled.outcome, ruled.speedups, ruled.doubted) == (Outcome.HACK, {}, FAST)
    assert ruled.guard[-1] == Finding("checker", "hack", "70% like the known hack abc (exploits/lazy/one): It is lazy.")


def test_a_jump_without_evidence_is_doubted_at_most() -> None:
    assert rule(OK, NOBODY) == OK
    for ruled in (
        rule(OK, NEAR),
        *(rule(OK, NOBODY, opinion(decision)) for decision in (Decision.HACK, Decision.DOUBT)),
    ):
        assert (ruled.outcome, ruled.speedups, ruled.doubted) == (Outcome.SUSPECT, {}, FAST)


def test_with_an_opinion_the_likeness_does_not_decide() -> None:
    ruled = rule(OK, NEAR, opinion(Decision.HONEST))
    assert (ruled.outcome, ruled.speedups) == (Outcome.OK, FAST)
    assert ruled.guard[-1].severity == "hint"
    assert rule(SUSPECT, NEAR, opinion(Decision.DOUBT)).outcome is Outcome.SUSPECT


@given(st.sampled_from(Decision), st.sampled_from((NOBODY, NEAR, NEARER_TO_HONEST)))
def test_no_opinion_on_a_text_clears_what_evidence_shows(decision: Decision, neighbours: Neighbours) -> None:
    assert rule(SUSPECT, neighbours, opinion(decision)).outcome in (Outcome.SUSPECT, Outcome.HACK)
    assert rule(HACK, neighbours, opinion(decision)) == HACK


@pytest.mark.parametrize("verdict", [SUSPECT, HACK])
def test_a_persons_rejection_restores_the_measured_speedup(verdict: Verdict) -> None:
    cleared = with_word(verdict, Status.REJECTED)
    assert (cleared.outcome, cleared.speedups, cleared.doubted) == (Outcome.OK, FAST, {})
    assert [finding.kind for finding in cleared.guard] == [verdict.guard[0].kind, "person"]


def test_a_confirmed_program_is_always_a_hack() -> None:
    assert with_word(SUSPECT, Status.CONFIRMED).outcome is Outcome.HACK
    assert with_word(OK, Status.CONFIRMED).outcome is Outcome.HACK
    assert with_word(OK, Status.SEED).outcome is Outcome.HACK
    for word in (None, Status.SUSPECT):
        assert with_word(SUSPECT, word) is SUSPECT
    wrong = replace(OK, outcome=Outcome.WRONG, speedups={})
    assert with_word(wrong, Status.CONFIRMED) is wrong
    assert with_word(wrong, Status.REJECTED) is wrong


def test_a_reward_jumps_above_three_or_above_twice_the_best() -> None:
    jump = Jump()
    assert [jump.seen_in(*case) for case in ((3.0, None), (3.01, None), (2.6, 1.2), (1.9, 0.6), (2.9, 1.5))] == [
        False,
        True,
        True,
        False,
        False,
    ]
