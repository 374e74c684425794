"""Sampling stops when the criteria of its preset say so."""

from __future__ import annotations

import numpy as np
import pytest

from evaluators.timing.bursts import Burst
from evaluators.timing.clocks import EventClock
from evaluators.timing.estimates import median_estimate
from evaluators.timing.presets import ClearlySlow, IntervalTight, PairBudget, Preset, TimeBudget, preset_named
from evaluators.timing.supported import supported_speedup

pytestmark = pytest.mark.measures


def test_criteria_stop_at_their_limits_and_not_before() -> None:
    tight = IntervalTight(0.1, 10)
    assert tight.reason([1.0] * 9, 0.0) is None
    assert tight.reason([1.0] * 10, 0.0) == "interval"
    assert tight.reason([0.5, 1.5] * 20, 0.0) is None
    assert PairBudget(5).reason([1.0] * 4, 9.0) is None
    assert PairBudget(5).reason([1.0] * 5, 0.0) == "pairs"
    assert TimeBudget(1.0, 6).reason([1.0] * 5, 99.0) is None
    assert TimeBudget(1.0, 6).reason([1.0] * 6, 0.9) is None
    assert TimeBudget(1.0, 6).reason([1.0] * 6, 1.0) == "time"


@pytest.mark.parametrize("arch", ["cpu", "H200"])
@pytest.mark.parametrize("name", ["fast", "thorough", "paper"])
def test_every_preset_stops_on_any_ratios(arch, name) -> None:
    preset = preset_named(name, arch)
    noisy = [0.1, 10.0] * 1000
    assert preset.reason_to_stop(noisy, 0.0) == (None if preset.paper else "pairs")
    assert preset.reason_to_stop(noisy[:20] if not preset.paper else noisy, 1e6) == "time"
    assert preset.reason_to_stop([1.0] * 40, 0.0) == (None if preset.paper else "interval")
    assert preset.reason_to_stop([], 0.0) is None
    assert preset.trials >= 2
    assert preset.name == name


@pytest.mark.parametrize("name", ["fast", "thorough", "paper"])
def test_no_program_ends_sampling_on_a_cpu_before_its_speedup_is_bounded(name) -> None:
    preset = preset_named(name, "cpu")
    pairs = next(count for count in range(1000) if preset.reason_to_stop([1.0] * count, 1e6))
    bursts = [Burst(1e-3 * calls, (1e-3,) * calls) for _ in range(pairs) for calls in (1, 2)][:pairs]
    assert supported_speedup([(burst, burst) for burst in bursts]) is not None


@pytest.mark.parametrize("arch", ["cpu", "H200"])
def test_thorough_asks_for_more_than_fast(arch) -> None:
    fast, thorough = preset_named("fast", arch), preset_named("thorough", arch)
    assert thorough.trials > fast.trials
    assert thorough.distributions > fast.distributions
    agreeing = [0.998, 1.003] * 10
    assert thorough.reason_to_stop(agreeing, 0.0) is None
    assert fast.reason_to_stop(agreeing, 0.0) == "interval"


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(ValueError, match="slow"):
        preset_named("slow")


# Clearly slow programs, on simulated clocks: bursts of both sides with noise, and load that slows neighbours alike.

_RUNS = 250


def simulated(preset: Preset, speedup: float, noise: float, random: np.random.Generator) -> tuple[str, list[float]]:
    """Why sampling of a program stops, and its speed-ups: two pairs at a time, as the judge takes them."""
    ratios: list[float] = []
    while True:
        load = random.lognormal(0.0, 0.5)
        for _ in range(2):
            reference, candidate = load * random.lognormal(0.0, noise, 2)
            bursts = Burst(reference, (reference,)), Burst(candidate / speedup, (candidate / speedup,))
            ratios += EventClock().ratios([bursts])
        if reason := preset.reason_to_stop(ratios, 0.01 * len(ratios)):
            return reason, ratios


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["cpu", "H200"])
@pytest.mark.parametrize("noise", [0.01, 0.1, 0.5])
def test_hardly_any_program_that_is_not_slow_is_stopped_as_slow(arch: str, noise: float) -> None:
    """At the threshold the error is largest: 0.5 ** 10. Of 250 runs hardly ever more than 4 are."""
    random, preset = np.random.default_rng(3), preset_named("fast", arch)
    stopped = {
        speedup: sum(simulated(preset, speedup, noise, random)[0] == "slow" for _ in range(_RUNS))
        for speedup in (0.5, 0.55, 0.7, 1.0)
    }
    assert stopped[0.5] <= 4
    assert stopped[0.55] <= stopped[0.5] + 3
    if noise <= 0.1:
        assert stopped[0.7] == stopped[1.0] == 0


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_the_interval_of_a_slow_program_contains_its_speedup(noise: float) -> None:
    """Over all runs, whatever stops them. Sampling that stops by what it saw keeps no interval at exactly 95 %."""
    random, preset = np.random.default_rng(4), preset_named("fast", "cpu")
    for speedup in (0.05, 0.2, 0.4):
        runs = [simulated(preset, speedup, noise, random) for _ in range(300)]
        estimates = [(reason, median_estimate(ratios)) for reason, ratios in runs]
        assert np.mean([one.low <= speedup <= one.high for _, one in estimates]) > 0.9
        slow = [one for reason, one in estimates if reason == "slow"]
        assert all(one.high < 0.5 for one in slow)
        assert len(slow) > 20


def test_a_clearly_slow_program_takes_fewer_pairs() -> None:
    random = np.random.default_rng(5)
    criteria = (IntervalTight(0.008, 16), PairBudget(24), TimeBudget(0.8))
    without, preset = Preset("fast", 2, 2, criteria), preset_named("fast", "H200")
    pairs = [np.mean([len(simulated(one, 0.2, 0.05, random)[1]) for _ in range(100)]) for one in (preset, without)]
    assert pairs[0] == 10 < pairs[1]


def test_one_fast_pair_keeps_sampling_going() -> None:
    slow = ClearlySlow(0.5, 10)
    assert slow.reason([0.2] * 9, 99.0) is None
    assert slow.reason([0.2] * 10, 0.0) == "slow"
    assert slow.reason([0.2] * 30 + [0.5], 0.0) is None


@pytest.mark.parametrize("name", ["thorough", "paper"])
@pytest.mark.parametrize("arch", ["cpu", "H200"])
def test_tables_are_as_precise_for_slow_programs(name: str, arch: str) -> None:
    assert preset_named(name, arch).reason_to_stop([0.1, 0.3] * 10, 0.0) is None
