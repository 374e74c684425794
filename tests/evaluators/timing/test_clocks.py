"""Ratios cancel load that both sides share, and time that only one clock saw is told from noise."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.guard.clock import ClocksAgree
from evaluators.records import Finding
from evaluators.timing.bursts import Burst, BurstPair
from evaluators.timing.clocks import Clock, EventClock, JudgeClock, slowed_by, slowed_since

CALLS = 16
durations = st.floats(1e-6, 1e-2)


def burst(own: list[float], *, overhead: float = 3e-4, hidden: float = 0.0, warm: int = 0) -> Burst:
    """A burst of calls with the times `own` by the runner's clock, which did not see `hidden` seconds of the burst."""
    return Burst(sum(own) + overhead + hidden, tuple(own), warm)


def noisy_pairs(count: int, hidden: float = 0.0, jitter: float = 5e-5, call: float = 2e-5) -> list[BurstPair]:
    """Pairs of bursts of calls of `call` seconds. The way to the runner and back varies by `jitter` seconds."""
    random = np.random.default_rng(3)

    def side(hidden: float) -> Burst:
        own = list(call * random.normal(1, 0.02, CALLS))
        return burst(own, overhead=3e-4 + abs(random.normal(0, jitter)), hidden=hidden)

    return [(side(0.0), side(hidden)) for _ in range(count)]


def examined(clock: Clock, pairs: list[BurstPair]) -> tuple[float, Finding | None]:
    """The hidden share, and the guard's finding on it."""
    hidden = clock.hidden(pairs)
    return hidden.share.value, next(iter(ClocksAgree().examine(SimpleNamespace(hidden=hidden))), None)


# One burst


@given(durations, st.floats(1, 1e4), st.integers(0, CALLS - 1))
def test_an_interrupted_call_does_not_change_the_typical_call(call, factor, place) -> None:
    own = [call] * CALLS
    own[place] *= factor
    assert burst(own).typical == pytest.approx(call, rel=1e-9)


@given(st.lists(durations, min_size=1, max_size=40))
def test_the_typical_call_is_between_the_quartiles(own) -> None:
    ordered, cut = sorted(own), len(own) // 4
    typical = burst(own).typical
    assert ordered[cut] * (1 - 1e-9) <= typical <= ordered[len(own) - cut - 1] * (1 + 1e-9)
    assert burst(own[::-1]).typical == typical


def test_the_typical_call_follows_every_call_of_the_middle() -> None:
    # A median would jump from one step of a coarse clock to the next.
    own = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    assert burst(own).typical == pytest.approx(1.5)
    assert burst([*own[:3], 2.0, *own[4:]]).typical == pytest.approx(1.75)


def test_warm_calls_do_not_count() -> None:
    cold = burst([5e-3, 4e-3, *[1e-5] * 4], warm=2)
    assert cold.typical == pytest.approx(1e-5)
    assert burst([5e-3, 4e-3, *[1e-5] * 4]).typical > 1e-4
    assert cold.total == pytest.approx(9e-3 + 4e-5)  # the judge's clock saw them, too


# A GPU: events decide


@given(durations, durations)
def test_ratios_of_events_are_the_reference_over_the_candidate(reference, candidate) -> None:
    pairs = [(burst([reference] * CALLS), burst([candidate] * CALLS))] * 3
    assert EventClock().ratios(pairs) == pytest.approx([reference / candidate] * 3)
    assert EventClock().seconds(pairs) == (pytest.approx([reference] * 3), pytest.approx([candidate] * 3))


@given(st.floats(2e-6, 1e-3), st.floats(0, 4e-7))
def test_a_constant_offset_of_a_process_cancels(call, offset) -> None:
    """Every call in the candidate's process takes longer, and so did the reference's there."""
    pair = (burst([call] * CALLS), burst([call + offset] * CALLS))
    assert EventClock().ratios([pair], offset) == pytest.approx([1.0], rel=1e-6)


def test_a_candidate_that_is_faster_has_less_of_the_offset() -> None:
    pair = (burst([4e-5] * CALLS), burst([1e-5] * CALLS))
    assert EventClock().seconds([pair], 4e-7)[1] == pytest.approx([1e-5 - 1e-7])
    assert EventClock().seconds([pair], -4e-7)[1] == pytest.approx([1e-5 + 1e-7])


def test_an_offset_never_makes_a_call_take_less_than_half() -> None:
    assert EventClock().ratios([(burst([4e-7] * CALLS), burst([4e-7] * CALLS))], 1e-3) == pytest.approx([2.0])


def test_work_that_events_miss_is_a_finding() -> None:
    share, finding = examined(EventClock(), noisy_pairs(20, hidden=CALLS * 3e-5))
    assert share > 1.0
    assert finding is not None
    assert (finding.kind, finding.severity) == ("clocks", "suspect")
    assert f"{share:.0%}" in finding.message


@pytest.mark.parametrize("call", [2e-6, 2e-5, 1e-3])
@pytest.mark.parametrize("jitter", [0.0, 5e-5, 1e-3])
def test_noise_on_the_way_to_a_runner_is_no_finding(call, jitter) -> None:
    share, finding = examined(EventClock(), noisy_pairs(20, jitter=jitter, call=call))
    assert finding is None
    assert share < 40 * max(jitter, 1e-6) / (CALLS * call)


def test_a_little_hidden_in_a_short_call_is_below_what_events_can_tell() -> None:
    # 4 µs a call beside 2 µs: that is 200 %, but two honest sides differ by as much.
    share, finding = examined(EventClock(), noisy_pairs(20, hidden=CALLS * 4e-6, jitter=0.0, call=2e-6))
    assert share > 1.5
    assert finding is None


@pytest.mark.parametrize(
    ("hidden", "is_found"), [(2e-5, False), (1e-4, True)], ids=["as noise hides", "more than noise hides"]
)
def test_a_small_share_of_a_long_call_is_a_finding_if_no_noise_explains_it(hidden, is_found) -> None:
    share, finding = examined(EventClock(), noisy_pairs(20, hidden=CALLS * hidden, jitter=0.0, call=1e-3))
    assert share == pytest.approx(hidden / 1e-3, abs=0.03)
    assert (finding is not None) == is_found


def test_hidden_time_is_no_finding_beside_much_longer_work() -> None:
    share, finding = examined(EventClock(), noisy_pairs(20, hidden=CALLS * 2e-4, jitter=0.0, call=1e-2))
    assert share == pytest.approx(0.02, abs=0.01)
    assert finding is None


def test_time_that_is_hidden_on_both_sides_is_no_finding() -> None:
    pairs = [(burst([1e-5] * CALLS, hidden=1e-2), burst([1e-5] * CALLS, hidden=1e-2)) for _ in range(20)]
    assert examined(EventClock(), pairs) == (pytest.approx(0.0, abs=1e-6), None)


def waiting(one: Burst, seconds: float, *, within: bool) -> Burst:
    """The burst, if its process had waited for a core for some seconds, within its calls or outside of them."""
    own = (one.own[0] + within * seconds, *one.own[1:])
    return replace(one, judged=one.judged + seconds, own=own, waited=seconds)


def test_a_wait_for_a_core_is_not_hidden_work() -> None:
    pairs = noisy_pairs(20, call=2e-4)
    late = [(reference, waiting(candidate, 3e-3, within=False)) for reference, candidate in pairs]
    assert examined(JudgeClock(), late)[1] is None
    unexplained = [(reference, replace(candidate, waited=0.0)) for reference, candidate in late]
    assert examined(JudgeClock(), unexplained)[1] is not None
    assert examined(EventClock(), late)[1] is not None, "a GPU's program could make such waits and hide behind them"


def test_a_reference_that_waits_is_not_a_slow_one() -> None:
    first, second = noisy_pairs(1, call=2e-4)[0]
    pairs = [(waiting(first, 3e-3, within=True), second)] * 5
    assert slowed_by(pairs, by_host=True).value == pytest.approx(1, abs=0.1)
    slow = replace(first, own=tuple(1.5 * call for call in first.own))
    for by_host in (True, False):
        assert slowed_by([(slow, second)] * 5, by_host=by_host).low == pytest.approx(1.5, rel=0.1)
    assert slowed_by(pairs[:2], by_host=True) is None


@pytest.mark.parametrize("question", [EventClock().ratios, EventClock().hidden])
def test_a_runner_that_claims_to_take_no_time_is_no_error(question) -> None:
    question([(burst([1e-5] * CALLS), burst([0.0] * CALLS, hidden=1e-4))] * 10)


# A CPU: the judge's clock decides


@given(st.floats(1e-4, 1e-2), st.floats(1e-4, 1e-2))
def test_the_judges_ratios_leave_out_the_way_to_the_runner(reference, candidate) -> None:
    pairs = [(burst([reference] * 4), burst([candidate] * 4))] * 5
    assert JudgeClock().ratios(pairs) == pytest.approx([reference / candidate] * 5, rel=1e-6)
    assert examined(JudgeClock(), pairs) == (pytest.approx(0.0, abs=1e-9), None)


def test_a_candidates_own_clock_never_makes_it_faster() -> None:
    honest = [(burst([1e-3] * 4), burst([1e-3] * 4))] * 10
    lying = [(burst([1e-3] * 4), Burst(4.3e-3, (1e-6,) * 4))] * 10
    slower = [(burst([1e-3] * 4), Burst(4.3e-3, (1.05e-3,) * 4))] * 10
    assert JudgeClock().ratios(lying) == pytest.approx(JudgeClock().ratios(honest))
    assert JudgeClock().ratios(slower)[0] < JudgeClock().ratios(honest)[0]
    share, finding = examined(JudgeClock(), lying)
    assert share == pytest.approx(1.0, abs=0.01)
    assert finding is not None
    assert finding.severity == "suspect"


def test_a_reference_that_became_slow_after_the_program_was_loaded_shows() -> None:
    slow = [(Burst(2e-3, (1.3e-4,) * 8), Burst(2e-3, (1e-4,) * 8))] * 6
    found = slowed_since([1e-4, 1.01e-4, 0.99e-4, 1e-4], slow)
    assert found is not None
    assert found.value == pytest.approx(1.3, rel=0.01)
    assert found.low > 1.25
    assert slowed_since([], slow) is None, "it was not calibrated"
