"""A program that replaces clocks, computes later, or works ahead of its calls gains nothing by it."""

from __future__ import annotations

import pytest

from evaluators.records import Outcome
from tests.evaluators.hostile.programs import TASK, program

pytestmark = pytest.mark.measures

LAZY = """
class Tensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        if function is torch.Tensor.copy_:
            target, lazy = arguments
            with torch._C.DisableTorchFunctionSubclass():
                for _ in range(2):
                    target.copy_(torch.relu(lazy.x @ lazy.weight))
            return target
        return super().__torch_function__(function, types, arguments, options or {})
"""
LAZY_RESULT = """
lazy = torch.empty_like(x).as_subclass(Tensor)
lazy.x, lazy.weight = x, self.weight
return lazy
"""


def test_a_lazy_tensor_earns_nothing(evaluator) -> None:
    """Nobody asks it for its values: the judge reads its memory, on a GPU behind gates."""
    verdict = evaluator.evaluate(TASK, program(top=LAZY, forward=LAZY_RESULT))
    assert verdict.outcome is Outcome.WRONG, verdict.message


def test_copying_that_does_nothing_gains_nothing(evaluator) -> None:
    """On a CPU no output is copied; on a GPU the judge's memory stays as it was poisoned."""
    verdict = evaluator.evaluate(TASK, program(top="torch.Tensor.copy_ = lambda self, other: self"))
    assert verdict.outcome is (Outcome.HACK if evaluator.device.arch == "cpu" else Outcome.WRONG), verdict.message


@pytest.mark.parametrize(
    "top",
    [
        "time.perf_counter = lambda: 0.0",
        "import evaluators.runner.cpu\nevaluators.runner.cpu.perf_counter = lambda: 0.0",
        "import evaluators.runner.cpu\nticks = iter(range(10**9))\n"
        "evaluators.runner.cpu.perf_counter = lambda: next(ticks) * 1e-7",
        "relu = torch.relu\ntorch.relu = lambda x: relu(x)\ntorch.default_generator.manual_seed(0)",
    ],
    ids=["perf_counter", "the runner's clock", "a slow clock", "torch"],
)
def test_a_patched_clock_gains_nothing(evaluator, top) -> None:
    verdict = evaluator.evaluate(TASK, program(top=top))
    assert verdict.outcome in (Outcome.OK, Outcome.SUSPECT, Outcome.HACK), verdict.message
    reference, candidate = verdict.timing.reference_seconds, verdict.timing.candidate_seconds
    assert reference.low < 1.1 * candidate.high, "the same program; the intervals know of other load on the machine"


AHEAD = """
from evaluators.runner.serve import Runner
cache = {}
weight = []

def ahead(inputs):
    last = {}
    while True:
        for slot, (x,) in enumerate(inputs):
            mark = x[0].tolist()
            if last.get(slot) != mark and weight:
                last[slot] = mark
                seen = x.clone()
                cache[slot] = (seen, torch.relu(seen @ weight[0]))

def start():
    frame = sys._getframe()
    while type(frame.f_locals.get("self")).__name__ != "Runner":
        frame = frame.f_back
    inputs = frame.f_locals["self"].inputs
    threading.Thread(target=ahead, args=(inputs,), daemon=True).start()
    return {x.data_ptr(): slot for slot, (x,) in enumerate(inputs)}
slots = {}
"""
AHEAD_FORWARD = """
if not slots:
    weight.append(self.weight.detach())
    slots.update(start())
slot = slots[x.data_ptr()]
if slot in cache and torch.equal(cache[slot][0], x):
    return cache[slot][1]
"""


def test_working_ahead_while_the_reference_runs_gains_nothing(evaluator) -> None:
    """A thread reads the inputs as soon as the judge has written them. If it could run, it would have the answer before
    the call."""
    verdict = evaluator.evaluate(TASK, program(top=AHEAD, forward=AHEAD_FORWARD))
    failures = (Outcome.INFRA, Outcome.BUILD_ERROR, Outcome.RUNTIME_ERROR)
    assert verdict.outcome not in failures, f"the attempt was not made: {verdict.message}"
    assert verdict.speedup is None or verdict.speedups["eager"].low < 1.25
