"""A program cannot choose what the judge reads as its output, but by computing it there."""

from __future__ import annotations

import pytest

from evaluators.records import Outcome
from tests.evaluators.hostile.programs import TASK, program
from tests.evaluators.outcomes import assert_ok

PLACES = """
from evaluators.runner.arena import Arena
places = Arena.places
Arena.places = lambda self, tensors: {}
"""
BEFORE_THE_BEGINNING = "[-64 for _ in places(self, tensors)]"
FAR_AWAY = "[1 << 62 for _ in places(self, tensors)]"
TOO_LARGE = "[1 << 64 for _ in places(self, tensors)]"
AT_THE_VERY_END = "[self._size - 64 for _ in places(self, tensors)]"
NOT_ALIGNED = "[1 for _ in places(self, tensors)]"
TOO_MANY = "[0, 0]"
NONE = "[]"
WORDS = "['0']"
NO_LIST = "1"


@pytest.fixture
def on_cpu(evaluator):
    if evaluator.device.arch != "cpu":
        pytest.skip("a GPU's outputs are copied to the judge's memory")
    return evaluator


@pytest.mark.parametrize(
    "places", [BEFORE_THE_BEGINNING, FAR_AWAY, TOO_LARGE, AT_THE_VERY_END, NOT_ALIGNED, TOO_MANY, NONE, WORDS, NO_LIST]
)
def test_a_place_outside_of_the_memory_is_refused(on_cpu, places) -> None:
    verdict = on_cpu.evaluate(TASK, program(top=PLACES.format(places)))
    assert verdict.outcome is Outcome.RUNTIME_ERROR, verdict.message


def test_a_place_of_other_numbers_is_wrong(on_cpu) -> None:
    verdict = on_cpu.evaluate(TASK, program(top=PLACES.format("[0 for _ in places(self, tensors)]")))
    assert verdict.outcome is Outcome.WRONG, verdict.message


@pytest.mark.parametrize(
    "result",
    [
        "torch.from_numpy(y.numpy().copy())",
        "torch.tensor(y.tolist())",
        "torch.frombuffer(bytearray(y.numpy().tobytes()), dtype=y.dtype).reshape(y.shape)",
    ],
    ids=["numpy", "list", "bytes"],
)
def test_an_output_in_other_memory_is_right(on_cpu, result) -> None:
    verdict = on_cpu.evaluate(TASK, program(forward="y = torch.relu(x @ self.weight)", result=result))
    assert_ok(verdict)


def test_a_forked_child_does_not_disturb_its_parent(on_cpu) -> None:
    child = """
y = torch.relu(x @ self.weight)
if (child := os.fork()) == 0:
    z = [torch.randn(1000) for _ in range(10)]
    del z
    os._exit(0)
os.waitpid(child, 0)
"""
    verdict = on_cpu.evaluate(TASK, program(forward=child, result="y"))
    assert verdict.outcome in (Outcome.OK, Outcome.SUSPECT), verdict.message


def test_tensors_that_do_not_fit_come_from_the_heap(on_cpu) -> None:
    """The memory is half of what a runner may take."""
    size = int(on_cpu.limits.memory_gib * 2**30 * 0.45)
    more = f"kept = [torch.empty({size // 2}, dtype=torch.uint8) for _ in range(3)]\n"
    verdict = on_cpu.evaluate(TASK, program(forward=more + "y = torch.relu(x @ self.weight)", result="y"))
    assert_ok(verdict)
