"""A straight-line program is one whose text says that it computes the same function on all devices, at all sizes."""

from __future__ import annotations

import pytest

from evaluators.judge.straight_line import is_straight_line, numbers_of_model
from evaluators.records import Task
from evaluators.tasks import find_task

PROGRAM = '''
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    """For a batch of 4096, on cuda or cpu."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features))

    def forward(self, x):
        BODY
'''
STRAIGHT = {
    "operators": "return F.gelu(x @ self.weight, approximate='tanh') * 0.5 + math.pi",
    "shapes": "return x.view(x.shape[0], -1).sum(1) / x.size(1) + len(x)",
    "a new tensor beside another": "return x + torch.arange(x.shape[1], device=x.device)",
    "a number of the reference": "return x + 0.044715",
    "parts": "x[:, 1:3] = -x[:, 1:3]; return x",
    "values": "return torch.where(x > 0, x, -x)",
}
OTHER = {
    "a number": "return x / 4096",
    "a number in other words": "return x / float(1 << 3)",
    "a complex number": "return x * 2j",
    "a choice": "return x if x.shape[0] > 2 else -x",
    "a short choice": "return (x.shape[0] > 2 and x) or -x",
    "a loop": "return sum(x[i] for i in x)",
    "what may fail": "try:\n            return x\n        except ValueError:\n            return -x",
    "the rest of a division": "return x[: len(x) // 3 * 3]",
    "the device": "return x * len(x.device.type)",
    "a device": "return x.to('cpu') * 2",
    "where it lies": "return x * x.is_mkldnn",
    "a name in a text": "return getattr(x, 'dev' 'ice')",
    "a smaller of two": "return x[: min(len(x), 3)]",
    "a lower precision": "return x.half().float()",
    "elements that may be named twice": "x[self.places] = 1.0; return x",
    "ties": "return x.topk(3)[1]",
    "no Python": "return (",
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_a_program_that_calls_operators_one_after_another_is_one(name: str) -> None:
    assert is_straight_line(PROGRAM.replace("BODY", STRAIGHT[name]), {0.044715})


@pytest.mark.parametrize("name", OTHER)
def test_a_program_that_may_know_sizes_or_devices_is_none(name: str) -> None:
    assert not is_straight_line(PROGRAM.replace("BODY", OTHER[name]), {0.044715})


@pytest.mark.parametrize("line", ["import os", "import random", "from numpy import pi"])
def test_a_program_that_imports_more_than_torch_is_none(line: str) -> None:
    assert not is_straight_line(f"{line}\n{PROGRAM.replace('BODY', 'return x')}", {0.044715})


def test_the_sizes_of_a_task_are_no_numbers_of_its_model() -> None:
    task = find_task("level1/quantile_huber_loss", "cuda")
    numbers = numbers_of_model(task)
    assert numbers is not None
    assert {0.5, 1.0} <= numbers
    assert not numbers & set(map(float, task.sizes.values()))


def test_a_reference_that_chooses_has_no_such_numbers() -> None:
    text = find_task("level1/softmax").source
    assert numbers_of_model(Task("one", 1, "one", text)) is not None
    chooses = text.replace("return torch", "return x if len(x) == 4 else torch")
    assert numbers_of_model(Task("one", 1, "one", chooses)) is None
