"""Sampling stops when the criteria of its preset say so."""

from __future__ import annotations

import pytest

from evaluators.timing.bursts import Burst
from evaluators.timing.presets import IntervalTight, PairBudget, TimeBudget, preset_named
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
