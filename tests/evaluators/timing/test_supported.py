"""What the judge's clock alone supports bounds what is paid, whatever a program does to other clocks or to what a burst
costs once. On simulated bursts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from evaluators.records import Estimate
from evaluators.timing.bursts import Burst, BurstPair
from evaluators.timing.clocks import JudgeClock
from evaluators.timing.supported import (
    Gates,
    bounded,
    is_launch_bound,
    supported_by_gates,
    supported_by_single_calls,
    supported_speedup,
)

CALL, ONCE, SHORT = 1e-4, 4e-4, 8


def pairs(
    count: int = 24,
    *,
    candidate: float = CALL,
    saved: float = 0.0,
    idle: float = 0.0,
    noise: float = 0.01,
    seed: int = 1,
) -> list[BurstPair]:
    """Bursts of both lengths. The candidate saves `saved` seconds of what each burst costs once, and idles for `idle`
    seconds in the short ones."""
    random = np.random.default_rng(seed)

    def burst(calls: int, seconds: float, once: float) -> Burst:
        own = seconds * random.normal(1, noise, calls)
        return Burst(float(own.sum()) + once * random.normal(1, noise), tuple(own.tolist()))

    made = []
    for calls in [length for _ in range(count // 2) for length in random.permutation([SHORT, 2 * SHORT])]:
        idling = idle if calls == SHORT else 0.0
        made.append((burst(calls, CALL, ONCE), burst(calls, candidate, ONCE - saved + idling)))
    return made


def paid(bursts: list[BurstPair]) -> float:
    clock = JudgeClock()
    value = float(np.median(clock.ratios(bursts)))
    return bounded(Estimate(value, value, value, len(bursts)), *clock.supported(bursts, [])).value


@pytest.mark.parametrize("candidate", [0.5 * CALL, CALL, 3 * CALL])
def test_what_an_honest_program_gains_is_supported(candidate) -> None:
    estimate = supported_speedup(pairs(candidate=candidate))
    assert estimate.low < CALL / candidate < estimate.high
    assert paid(pairs(candidate=candidate)) == pytest.approx(CALL / candidate, rel=0.03)


def test_intervals_hold_the_true_value() -> None:
    held = [(e := supported_speedup(pairs(40, seed=seed))).low <= 1 <= e.high for seed in range(300)]
    assert 0.9 <= np.mean(held) <= 0.995


def lying(bursts: list[BurstPair]) -> list[BurstPair]:
    """The same bursts, if the candidate's own clock shows next to nothing."""
    return [(reference, replace(candidate, own=(1e-9,) * len(candidate.own))) for reference, candidate in bursts]


def test_saving_what_a_burst_costs_once_is_not_paid() -> None:
    cheating = lying(pairs(saved=0.9 * ONCE))
    assert float(np.median(JudgeClock().ratios(cheating))) > 1.3, "what it would be paid without the bound"
    assert paid(cheating) < 1.05


@pytest.mark.parametrize("idle", [0.2 * ONCE, 0.5 * ONCE, ONCE, 2 * ONCE])
def test_idling_in_short_bursts_gains_less_than_the_bound_takes(idle) -> None:
    believed = float(np.median(JudgeClock().ratios(lying(pairs(saved=0.9 * ONCE)))))
    assert paid(lying(pairs(saved=0.9 * ONCE, idle=idle))) < 1.3 < believed


def test_a_program_that_takes_no_time_is_not_bounded_by_noise() -> None:
    estimate = supported_speedup(pairs(candidate=1e-9))
    assert estimate.high == math.inf


@pytest.mark.parametrize("seed", range(8))
def test_a_reference_hidden_by_noise_is_as_long_as_its_own_clock_says(seed) -> None:
    """As on a busy machine: what a burst costs once varies by more than the reference's calls take."""
    random = np.random.default_rng(seed)

    def noisy(burst: Burst) -> Burst:
        late = 6 * CALL * SHORT * random.random() if len(burst.own) == SHORT else 0.0
        return replace(burst, judged=burst.judged + late)

    bursts = [(noisy(reference), candidate) for reference, candidate in pairs(candidate=500 * CALL, seed=seed)]
    estimate = supported_speedup(bursts)
    assert 0 < estimate.low <= estimate.value <= estimate.high
    assert paid(bursts) == pytest.approx(1 / 500, rel=0.1)


def test_too_few_bursts_or_bursts_of_one_length_support_nothing() -> None:
    assert supported_speedup(pairs(6)) is None
    assert supported_speedup([pair for pair in pairs() if len(pair[0].own) == SHORT]) is None


def test_calls_alone_bound_a_program_that_does_the_work_of_many_at_once() -> None:
    batching = lying(pairs(candidate=0.5 * CALL))
    single = [tuple(Burst(burst.judged / len(burst.own), burst.own[:1]) for burst in pair) for pair in pairs(22)]
    value = float(np.median(JudgeClock().ratios(batching)))
    estimate = bounded(Estimate(value, value, value, 24), *JudgeClock().supported(batching, single))
    assert value > 1.7
    assert estimate.low <= 1.01 < 1.1 > estimate.value


def test_a_bound_moves_the_value_and_the_interval() -> None:
    estimate = bounded(Estimate(2.0, 1.9, 2.1, 20), Estimate(1.0, 0.9, 1.2, 10))
    assert (estimate.low, estimate.value, estimate.high) == (0.9, 1.0, 1.2)
    estimate = bounded(Estimate(2.0, 1.9, 2.1, 20), Estimate(1.0, 0.9, 1.5, 10), None, Estimate(1.0, 0.95, 1.1, 10))
    assert (estimate.low, estimate.value, estimate.high) == (0.9, 1.0, 1.1)
    assert bounded(Estimate(1.1, 1.0, 1.3, 20), Estimate(1.0, 0.9, 1.2, 10)) == Estimate(1.1, 1.0, 1.3, 20)
    assert bounded(Estimate(1.1, 1.0, 1.3, 20), None).value == 1.1


BESIDE, NOISE = 4e-4, 4e-6  # what a call takes behind a gate beside its kernels, and how much that varies


def behind_gates(
    speedup: float = 1.0,
    *,
    reference: float = 5e-4,
    offset: float = 0.0,
    usual: float = 2e-6,
    beside_kernels: float = 0.0,
    slower_now: float = 1.0,
    jitter: float = 0.0,
    seed: int = 3,
) -> Gates:
    """Calls behind gates on one GPU. `offset`: of the candidate's process, by its own clock, too. `usual`: how much
    longer any call takes behind its gate. `beside_kernels`: how much longer calls of both sides take behind gates than
    by their own clocks, as they wait for the GPU. `slower_now`: than before, as the GPU's clocks changed. `jitter`: by
    how much the reference's launches make its calls behind gates vary."""
    random = np.random.default_rng(seed)

    def calls(count: int, seconds: float, noise: float = NOISE) -> list[float]:
        return list(random.normal(seconds, noise, count))

    return Gates(
        candidate=calls(24, BESIDE + reference / speedup + usual + beside_kernels + offset * min(1.0, 1 / speedup)),
        reference_before=calls(16, BESIDE + reference + beside_kernels, max(NOISE, jitter)),
        tiny=(calls(16, BESIDE + 3e-6), calls(16, BESIDE + usual + 3e-6)),
        tiny_now=calls(24, BESIDE + 3e-6),
        offsets=[offset],
        by_own_clock=(calls(20, reference * slower_now, 1e-7), calls(8, reference, 1e-7)),
    )


@pytest.mark.parametrize("speedup", [0.5, 1.0, 1.5, 4.0])
def test_gates_support_what_a_program_saves(speedup) -> None:
    found = supported_by_gates(behind_gates(speedup))
    assert found.low < speedup < found.high
    assert found.value == pytest.approx(speedup, rel=0.06)
    assert found.high < 1.15 * speedup


def test_the_offset_of_a_process_is_no_gain_behind_gates() -> None:
    assert supported_by_gates(behind_gates(offset=5e-5)).value == pytest.approx(1.0, abs=0.02)


def test_gates_tell_nothing_of_calls_much_shorter_than_their_noise() -> None:
    assert supported_by_gates(behind_gates(reference=4e-6)).high == math.inf


def paid_behind_gates(gates: Gates, claimed: float = 2.0) -> Estimate:
    return bounded(Estimate(claimed, 0.99 * claimed, 1.01 * claimed, 40), supported_by_gates(gates))


def test_a_claim_above_what_gates_support_is_not_paid_behind_gates() -> None:
    assert paid_behind_gates(behind_gates()).value == pytest.approx(1.0, abs=0.02)
    assert paid_behind_gates(behind_gates()).high < 1.05


@pytest.mark.parametrize("share", [0.2, 0.4, 0.7, 1.0])
def test_work_left_for_the_reference_to_wait_for_is_not_paid_behind_gates(share) -> None:
    """A program can leave work on the GPU before the reference's calls: behind gates, in bursts, or in both."""
    honest = behind_gates()
    slowed = [seconds + 2e-3 * (index < share * 24) for index, seconds in enumerate(honest.tiny_now)]
    at_most = 1.04  # as no more drift than 10 µs is believed
    now, before = honest.by_own_clock
    bursts = [seconds * (2.0 if index < share * 20 else 1.0) for index, seconds in enumerate(now)]
    for gates in (replace(honest, tiny_now=slowed), replace(honest, tiny_now=slowed, by_own_clock=(bursts, before))):
        assert 0.98 < paid_behind_gates(gates).value < at_most
        assert 0.98 < paid_behind_gates(gates, 1.2).value < at_most


@pytest.mark.parametrize("share", [0.2, 0.45])
def test_a_program_that_makes_its_own_calls_vary_is_not_paid_for_that(share) -> None:
    honest = behind_gates()
    varied = [seconds + 5e-4 * (index < share * 24) for index, seconds in enumerate(honest.candidate)]
    assert paid_behind_gates(replace(honest, candidate=varied), 1.2).value < 1.05


WHAT_COSTS_BEHIND_GATES = {
    "a call that waits for the GPU": {"reference": 1e-4, "beside_kernels": 4e-5},
    "a long call that does": {"reference": 6e-4, "beside_kernels": 2e-5},
    "clocks that fell since": {"reference": 5e-3, "slower_now": 1.01},
}


@pytest.mark.parametrize("case", WHAT_COSTS_BEHIND_GATES)
def test_what_costs_both_sides_more_behind_gates_is_held_against_neither(case) -> None:
    bounds = [supported_by_gates(behind_gates(seed=seed, **WHAT_COSTS_BEHIND_GATES[case])) for seed in range(40)]
    assert all(bound.high > 1.0 for bound in bounds)
    assert np.median([bound.value for bound in bounds]) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("reference", [1.55e-4, 7.85e-4])
def test_a_kernel_in_place_of_many_is_paid_in_full_however_their_launches_vary(reference) -> None:
    """How much a reference of many kernels varies behind its gate says nothing of a program with one kernel."""
    claims = [bounded(Estimate(31, 30, 32, 40), supported_by_gates(gates)) for gates in launch_bound(reference)]
    assert sum(claim.value < 31 for claim in claims) <= 1


def launch_bound(reference: float) -> list[Gates]:
    return [behind_gates(31.0, reference=reference, jitter=2e-5, seed=seed) for seed in range(100)]


def single_calls(saved: float, *, reference: float = 2e-3, jitter: float = 4e-5, seed: int = 3) -> list[BurstPair]:
    """Single calls on a GPU by the judge's clock, which sees 0.6 ms beside each. `saved`: the share of the reference's
    seconds that a candidate's call does not take."""
    random = np.random.default_rng(seed)

    def call(seconds: float) -> Burst:
        return Burst(6e-4 + seconds + float(random.gamma(1.0, jitter)), (seconds,))

    return [(call(reference), call((1 - saved) * reference)) for _ in range(16)]


@pytest.mark.parametrize("claimed", [1.3, 5.0])
def test_calls_that_batch_over_a_burst_are_not_paid_where_launches_take_long(claimed) -> None:
    """Behind gates launches take no time, so that these support whatever share of it a program claims to save."""
    launches = {"reference": 2e-3, "beside_kernels": -1.6e-3}
    gates = replace(behind_gates(**launches), reference_before=[BESIDE + 4e-4] * 6)
    assert is_launch_bound(gates.by_own_clock[1], gates.reference_before, gates.tiny[0])
    claim, behind = Estimate(claimed, 0.99 * claimed, 1.01 * claimed, 40), supported_by_gates(gates)
    assert bounded(claim, behind).value > 1.25
    assert bounded(claim, behind, supported_by_single_calls(single_calls(0.0))).value == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("reference", [1.5e-4, 8e-4, 2e-3])
def test_one_kernel_in_place_of_many_launches_is_paid_in_full_by_single_calls(reference) -> None:
    claims = [
        bounded(
            Estimate(31, 30, 32, 40), supported_by_single_calls(single_calls(30 / 31, reference=reference, seed=seed))
        )
        for seed in range(100)
    ]
    assert sum(claim.value < 31 for claim in claims) <= 1


def test_what_a_program_saves_is_within_what_single_calls_support() -> None:
    for seed in range(100):
        found = supported_by_single_calls(single_calls(0.5, seed=seed))
        assert found is not None
        assert found.low < 2.0 < found.high < 2.4


def test_a_reference_whose_kernels_take_the_time_is_not_launch_bound() -> None:
    gates = behind_gates()
    assert not is_launch_bound(gates.by_own_clock[1], gates.reference_before, gates.tiny[0])
    assert not is_launch_bound([], gates.reference_before, gates.tiny[0])
    assert supported_by_single_calls(single_calls(0.0)[:3]) is None
