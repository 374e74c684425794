"""A busy machine excuses doubts of times, and nothing else does."""

from __future__ import annotations

import pytest

from evaluators.records import Estimate, Finding, Outcome, Verdict
from tests.evaluators import outcomes
from tests.evaluators.outcomes import assert_doubted, assert_ok, speedup_of
from tests.evaluators.patience import patience, stalled

EAGER = {"eager": Estimate(1.0, 0.9, 1.1, 10)}


def doubted(*kinds: str) -> Verdict:
    verdict = Verdict("a", "t", "cpu", Outcome.OK, speedups=EAGER)
    for kind in kinds:
        verdict = verdict.doubted_by(Finding(kind, "suspect", kind))
    return verdict


@pytest.mark.parametrize(("slower", "waited"), [(1.0, 0.0), (5.0, 0.0), (1.0, 0.5)])
def test_only_doubts_of_times_are_excused_and_only_on_a_busy_machine(monkeypatch, slower: float, waited: float) -> None:
    monkeypatch.setattr(outcomes, "patience", lambda: slower)
    monkeypatch.setattr(outcomes, "stalled", lambda: waited)
    assert_ok(doubted())
    for kinds in (("weights",), ("clocks", "weights"), ("clocks",), ("clocks", "variance")):
        excused = (slower > outcomes.BUSY or waited > outcomes.STALLED) and set(kinds) <= outcomes.OF_TIMES
        if excused:
            assert_ok(doubted(*kinds))
        else:
            with pytest.raises(AssertionError, match=kinds[0]):
                assert_ok(doubted(*kinds))
        if excused or kinds == ("weights",):
            assert_doubted(doubted("weights", *kinds), "weights")
        else:
            with pytest.raises(AssertionError):
                assert_doubted(doubted("text", *kinds), "text")
        with pytest.raises(AssertionError):
            assert_doubted(doubted(*kinds), "text")
    with pytest.raises(AssertionError):
        assert_ok(Verdict("a", "t", "cpu", Outcome.WRONG))
    assert speedup_of(doubted("clocks")) == speedup_of(doubted()) == EAGER["eager"]


def test_patience_is_at_least_one() -> None:
    assert 1.0 <= patience() < 100.0
    assert 0.0 <= stalled() <= 1.0
