"""The length of a burst depends on how long a call of both programs takes; single calls find warm caches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluators.judge.pair import RunnerPair
from evaluators.judge.timed_calls import TimedCalls
from evaluators.records import Outcome
from evaluators.timing.presets import ClearlySlow, PairBudget
from tests.evaluators.outcomes import assert_ok, speedup_of
from tests.evaluators.sources import model, reference_of, task_of

pytestmark = pytest.mark.measures


def test_bursts_of_a_much_slower_program_are_short(evaluator, monkeypatch) -> None:
    """A reference as short as this one is called many times in a burst, which would take long with this candidate."""
    task = task_of(model("return torch.tanh(x[0])"), top="n = 160\nother = 1")  # no other test has it
    asked, calls = [], evaluator.device.calls  # the calibration asks first, if there is one
    monkeypatch.setattr(evaluator.device, "calls", lambda seconds, most: asked.append(seconds) or calls(seconds, most))
    slow = "return torch.tanh(sum(torch.sin(x[0]) for _ in range(900)) * 0 + x[0])"
    slower = evaluator.evaluate(task, model(slow, name="ModelNew"))
    beside_slower = asked[-1]
    alike = evaluator.evaluate(task, reference_of(task))
    assert_ok(slower)
    assert_ok(alike)
    assert speedup_of(slower).value < 0.05
    assert beside_slower > 2 * asked[-1]
    share = beside_slower / (slower.timing.candidate_seconds.value / 10)
    assert 0.05 < share < 1.7, "of the shortest calls, which other load delays less than the median"
    monkeypatch.setattr(evaluator, "preset", replace(evaluator.preset, trials=1))
    once = "if not hasattr(self, 'n'): self.n = 1; __import__('time').sleep(0.5)\n        return torch.tanh(x[0])"
    evaluator.evaluate(task, model(once, name="ModelNew"))
    assert asked[-1] < 0.01, "not a tenth of what its first call took, which may compile"
    at_times = "self.n = getattr(self, 'n', 0) + 1\n        if self.n % 40 == 0: __import__('time').sleep(0.5)"
    start = len(asked)
    evaluator.evaluate(task, model(f"{at_times}\n        return torch.tanh(x[0])", name="ModelNew"))
    assert len(asked) > start + 3
    assert max(asked[start:]) < 0.01, "nobody gets shorter bursts by idling at times"


def test_sampling_ends_early_for_a_slow_program_alone(evaluator, monkeypatch) -> None:
    task = task_of(model("return torch.tanh(x[0])"), top="n = 161\nother = 1")  # no other test has it
    criteria = (ClearlySlow(0.5, 10), PairBudget(16))
    monkeypatch.setattr(evaluator, "preset", replace(evaluator.preset, criteria=criteria))
    # So slow that the other side is not delayed by as much on a busy machine.
    slow = "return torch.tanh(sum(torch.sin(x[0]) for _ in range(1000)) * 0 + x[0])"
    slower, alike = evaluator.evaluate(task, model(slow, name="ModelNew")), evaluator.evaluate(task, reference_of(task))
    assert slower.outcome is alike.outcome is Outcome.OK, slower.message + alike.message
    assert (slower.timing.stopped_by, slower.timing.pairs) == ("slow", 10)
    assert slower.speedup < 0.5
    assert (alike.timing.stopped_by, alike.timing.pairs) == ("pairs", 16)


def test_a_single_call_comes_right_after_a_call_of_its_own_side(evaluator, monkeypatch) -> None:
    """Else an honest program that works in much memory seems to save in bursts what it only finds in the caches."""
    if evaluator.device.arch != "cpu":
        pytest.skip("calls behind gates take their place")
    bursts, alone = [], []
    run_burst, time_alone = RunnerPair._run_burst, TimedCalls._time_alone

    def spy_burst(self, side, *args, **options):
        bursts.append((side, run_burst(self, side, *args, **options)))
        return bursts[-1][1]

    def spy_alone(self):
        alone.append(time_alone(self))
        return alone[-1]

    monkeypatch.setattr(RunnerPair, "_run_burst", spy_burst)
    monkeypatch.setattr(TimedCalls, "_time_alone", spy_alone)
    monkeypatch.setattr(evaluator, "preset", replace(evaluator.preset, criteria=(PairBudget(16),)))
    task = task_of(model("return torch.tanh(x[0])"), top="n = 162\nother = 1")  # no other test has it
    verdict = evaluator.evaluate(task, reference_of(task))
    assert_ok(verdict)
    sides, places = [side for side, _ in bursts], {id(burst): place for place, (_, burst) in enumerate(bursts)}
    assert len(alone) > 10
    for pair in alone:
        for side, burst in enumerate(pair):
            assert len(burst.own) == 1
            place = places[id(burst)]
            assert sides[place - 1 : place + 1] == [side, side]
