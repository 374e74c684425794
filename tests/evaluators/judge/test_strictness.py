"""Options beyond the presets: other shapes as a requirement, and the paper's second opinion."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evaluators.evaluator import Evaluator
from evaluators.judge.pair import RunnerPair
from evaluators.records import Finding, Outcome, Task
from evaluators.timing import paper, presets
from evaluators.timing.bursts import Burst
from evaluators.timing.presets import PairBudget, Preset
from tests.evaluators.outcomes import OF_TIMES, assert_doubted, assert_ok

SOURCE = """
import time
import torch
import torch.nn as nn

n = 64


class %s(nn.Module):
    def forward(self, x):
        time.sleep(%s)
        return torch.tanh(x) * %s


def get_inputs():
    return [torch.randn(n, n)]


def get_init_inputs():
    return []
"""
TASK = Task("test/slow", 1, "slow", SOURCE % ("Model", 0.02, "x.shape[0]"))
_SHORT = Preset("paper", 2, 1, (PairBudget(14),), paper=True)


def program(seconds: float, factor: str = "x.shape[0]") -> str:
    """A candidate whose call takes `seconds`. The reference's takes 0.02."""
    return SOURCE % ("ModelNew", seconds, factor)


class SecondDevice:
    """Stands for an evaluator on a second GPU, and answers as it is told: no machine of the tests has two."""

    def __init__(self) -> None:
        self.answer: float | None = None
        self.asked: list[tuple[str, str]] = []

    def __call__(self, task: Task, source: str) -> float | None:
        self.asked.append((task.id, source))
        return self.answer


@pytest.fixture(scope="module")
def second_device() -> SecondDevice:
    return SecondDevice()


@pytest.fixture(scope="module", params=["cpu", pytest.param("auto", marks=pytest.mark.cuda, id="cuda")])
def strict(request, limits, second_device) -> Iterator[Evaluator]:
    with Evaluator(arch=request.param, limits=limits, require_shapes=True, confirm=second_device) as made:
        yield made


@pytest.fixture
def told(monkeypatch) -> Callable[[float], str]:
    """The paper's protocol in one second, by a clock that is told how long a call takes: it gives the program for it.

    Calls are made as ever, and take about as long. Other load on the machine changes no time that the judge reads."""
    for by_name in presets.PRESETS.values():
        monkeypatch.setitem(by_name, "paper", _SHORT)
    seconds, run_burst, noise = [0.02, 0.02], RunnerPair._run_burst, random.Random(0)

    def by_that_clock(self: RunnerPair, side: int, *arguments: Any, **options: Any) -> Burst:
        done = run_burst(self, side, *arguments, **options)
        own = tuple(seconds[side] * noise.uniform(0.999, 1.001) for _ in done.own)
        return Burst(sum(own) + 1e-5, own, done.warm)

    monkeypatch.setattr(RunnerPair, "_run_burst", by_that_clock)

    def program_of(candidate: float) -> str:
        seconds[1] = candidate
        return program(candidate)

    return program_of


def confirmations(findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.kind == "confirmation"]


def test_failing_at_another_shape_is_wrong_where_shapes_are_required(strict) -> None:
    verdict = strict.evaluate(TASK, program(0.0, "64"))
    assert verdict.outcome is Outcome.WRONG
    assert verdict.message.startswith("at n = 40: ")
    assert verdict.speedups == {}
    general = strict.evaluate(TASK, program(0.001))
    assert_ok(general)
    assert {finding.kind for finding in general.guard} - OF_TIMES == {"text"}  # it reads a clock


def test_an_ordinary_speedup_needs_no_second_opinion(strict, second_device, told) -> None:
    second_device.asked.clear()
    verdict = strict.evaluate(TASK, told(0.0101), preset="paper")
    assert verdict.outcome is Outcome.OK, verdict.guard
    assert verdict.speedup == pytest.approx(1.98, abs=0.03)
    assert verdict.speedup == round(verdict.speedup, 2)
    assert verdict.speedups["eager"].n == 14
    assert second_device.asked == []
    assert confirmations(verdict.guard) == []


def test_a_great_speedup_stands_when_a_second_device_confirms_it(strict, second_device, told, monkeypatch) -> None:
    second_device.answer = None
    alone = strict.evaluate(TASK, told(0.001), preset="paper")
    assert alone.outcome is Outcome.OK, alone.guard
    assert alone.speedup == pytest.approx(20.0, rel=0.01)
    [hint] = confirmations(alone.guard)
    assert hint.severity == "hint"
    assert "not confirmed" in hint.message

    second_device.answer = alone.speedup
    confirmed = strict.evaluate(TASK, told(0.0011), preset="paper")
    assert second_device.asked[-1] == (TASK.id, program(0.0011))
    assert confirmed.outcome is Outcome.OK, confirmed.guard
    assert confirmations(confirmed.guard) == []
    assert confirmed.speedup > 3


def test_a_great_speedup_is_suspect_when_a_second_device_measures_another(strict, second_device, told) -> None:
    second_device.answer = 1.02
    verdict = strict.evaluate(TASK, told(0.0012), preset="paper")
    assert verdict.outcome is Outcome.SUSPECT
    [finding] = confirmations(verdict.guard)
    assert finding.severity == "suspect"
    assert "1.02x" in finding.message
    assert verdict.speedups == {}


def test_a_speedup_twice_the_best_so_far_needs_a_second_opinion(strict, second_device, told) -> None:
    task = TASK.with_sizes(n=48)
    second_device.answer = None
    strict.evaluate(task, told(0.0199), preset="paper")
    second_device.asked.clear()
    strict.evaluate(task, told(0.0079), preset="paper")  # 2.5x
    assert len(second_device.asked) == 1


def test_a_rejected_speedup_is_not_the_best_so_far(strict, second_device, told) -> None:
    task = TASK.with_sizes(n=56)
    second_device.answer = 1.0
    strict.evaluate(task, told(0.0199), preset="paper")
    assert strict.evaluate(task, told(0.002), preset="paper").outcome is Outcome.SUSPECT
    second_device.asked.clear()
    strict.evaluate(task, told(0.0079), preset="paper")  # 2.5x, and the best confirmed speed-up is 1.0x
    assert len(second_device.asked) == 1


def test_buckets_that_differ_make_a_result_suspect(strict, told, monkeypatch) -> None:
    monkeypatch.setattr(paper, "MAX_VARIANCE", 0.0)  # no machine is so steady
    verdict = strict.evaluate(TASK, told(0.0102), preset="paper")
    assert_doubted(verdict, "variance")
