"""Outputs are found where a device's runners leave them: in an arena, or copied to the judge's memory as on a GPU."""

from __future__ import annotations

import pytest
import torch

from evaluators.evaluator import Evaluator
from evaluators.host.cpu_device import CpuDevice
from evaluators.records import Outcome
from tests.evaluators.conftest import LIMITS
from tests.evaluators.sources import model, reference_of, task_of

TASK = task_of(model("return (torch.tanh(x[0]), (x[0] > 0), torch.argsort(x[0]))"), top="n = 48\nother = 1")


@pytest.mark.parametrize("shares", [True, False], ids=["arena", "copied"])
def test_outputs_of_several_dtypes_are_found(monkeypatch, shares) -> None:
    monkeypatch.setattr(CpuDevice, "shares_tensors", shares)
    with Evaluator("cpu", limits=LIMITS) as evaluator:
        right = evaluator.evaluate(TASK, reference_of(TASK))
        assert right.outcome in (Outcome.OK, Outcome.SUSPECT), right.message
        wrong = evaluator.evaluate(TASK, reference_of(TASK).replace("x[0] > 0", "x[0] > 0.01"))
        assert wrong.outcome is Outcome.WRONG, wrong.message


def test_a_new_arena_holds_zeros() -> None:
    region = CpuDevice().allocate(1 << 20)
    assert not torch.any(region.memory)
    region.close()
