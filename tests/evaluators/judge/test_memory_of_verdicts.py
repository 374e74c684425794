"""A verdict leaves nothing in the judge's memory. Tensors in reference cycles would stay until Python collects cycles,
which a process that makes few objects does hardly ever: on two GPUs they held 85 and 118 GiB."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable

import pytest
import torch

from evaluators.evaluator import Evaluator
from evaluators.records import Outcome
from evaluators.shared import nesting
from tests.evaluators.sources import TWICE, model, reference_of

WRONG = model("return x[0] + 1", "self.w = nn.Parameter(torch.randn(160, 160))", "ModelNew")
FAILS = model("raise ValueError('no')", "self.w = nn.Parameter(torch.randn(160, 160))", "ModelNew")


def held_bytes() -> int:
    """Memory of all tensors that exist, reachable or not, and of those on a GPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of torch's own modules warn when they are asked for their class
        items = gc.get_objects()
        stores = [item.untyped_storage() for item in items if issubclass(type(item), torch.Tensor)]
    for table in (item for item in items if type(item) is dict):  # such as what `torch.save` has written
        stores += [value for value in table.values() if type(value) is torch.UntypedStorage]
    return sum({store.data_ptr(): store.nbytes() for store in stores}.values()) + torch.cuda.memory_allocated()


def growth(work: Callable[[], object]) -> int:
    """Bytes that are held after some work and were not before, while nothing is collected."""
    gc.collect()
    gc.disable()
    try:
        before = held_bytes()
        work()
        return held_bytes() - before
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("source", "outcome"),
    [(reference_of(TWICE), Outcome.OK), (WRONG, Outcome.WRONG), (FAILS, Outcome.RUNTIME_ERROR)],
    ids=["right", "wrong", "fails"],
)
def test_a_verdict_leaves_no_tensors(evaluator: Evaluator, source: str, outcome: Outcome) -> None:
    evaluator.evaluate(TWICE, source, again=True)  # what the judge keeps for good, it has from here on
    verdicts = []
    assert growth(lambda: verdicts.append(evaluator.evaluate(TWICE, source, again=True))) <= 0
    assert verdicts[0].outcome is outcome, verdicts[0].message


@pytest.mark.parametrize("source", [reference_of(TWICE), FAILS], ids=["runs", "fails"])
def test_a_look_leaves_no_tensors(evaluator: Evaluator, source: str) -> None:
    evaluator.look(TWICE, source, preset="fast", again=True)
    assert growth(lambda: evaluator.look(TWICE, source, preset="fast", again=True)) <= 0


def test_a_nested_value_is_freed_with_its_last_name() -> None:
    value = {"a": [torch.empty(0)], "b": (torch.empty(0), 3)}
    assert growth(lambda: nesting.unflatten(value, [torch.ones(1 << 16), torch.ones(1 << 16)])) == 0
