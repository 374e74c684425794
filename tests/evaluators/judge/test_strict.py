"""How strictly outputs and weights are judged: as a drop-in replacement, or by values alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evaluators.evaluator import Evaluator
from evaluators.records import DROP_IN, VALUES, Outcome, Task, Verdict

MODEL = """
import torch
import torch.nn as nn


class %s(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3)
%s

    def forward(self, x):
        y = self.conv(x)
        return %s
"""
INPUTS = """

def get_inputs():
    return [torch.randn(4, 8, 32, 32)]


def get_init_inputs():
    return []
"""
TASK = Task("test/conv", 2, "conv", MODEL % ("Model", "", "torch.relu(y)") + INPUTS)
FOLDED = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        conv = nn.Conv2d(8, 16, 3)
        self.folded = nn.Parameter(2 * conv.weight.detach())
        self.bias = nn.Parameter(2 * conv.bias.detach())

    def forward(self, x):
        return torch.relu(nn.functional.conv2d(x, self.folded, self.bias) / 2)
"""


def candidate(output: str, more: str = "") -> str:
    """A candidate with the task's convolution, its output `y`."""
    return MODEL % ("ModelNew", more, output)


CHANNELS_LAST = candidate("torch.relu(y).contiguous(memory_format=torch.channels_last)")
RIGHT_BY_VALUE = {
    "channels last": CHANNELS_LAST,
    "transposed": candidate("torch.relu(y.transpose(2, 3).contiguous().transpose(2, 3))"),
    "weights folded at construction": FOLDED,
}


@pytest.fixture(scope="module", params=["cpu", pytest.param("auto", marks=pytest.mark.cuda, id="cuda")])
def by_values(request, limits) -> Iterator[Evaluator]:
    with Evaluator(arch=request.param, limits=limits, strict=VALUES) as made:
        yield made


def kinds(verdict: Verdict) -> set[str]:
    return {finding.kind for finding in verdict.deciding}


@pytest.mark.parametrize("program", RIGHT_BY_VALUE)
def test_by_values_a_program_is_right_whatever_its_strides_and_folded_weights(by_values, program) -> None:
    verdict = by_values.evaluate(TASK, RIGHT_BY_VALUE[program])
    assert verdict.outcome is Outcome.OK, (verdict.message, verdict.guard)
    assert verdict.strict == VALUES
    assert verdict.speedup is not None


@pytest.mark.parametrize("program", RIGHT_BY_VALUE)
def test_a_drop_in_replacement_has_the_references_strides_and_weights(evaluator, program) -> None:
    verdict = evaluator.evaluate(TASK, RIGHT_BY_VALUE[program])
    assert verdict.strict == DROP_IN
    if program == "weights folded at construction":
        assert verdict.outcome is Outcome.SUSPECT
        assert "weights" in kinds(verdict)
    else:
        assert verdict.outcome is Outcome.WRONG
        assert "output has stride" in verdict.message


WRONG_BY_VALUE = {
    "other values": (candidate("torch.relu(y).mul(1.01).to(memory_format=torch.channels_last)"), "error"),
    "transposed values": (candidate("torch.relu(y).transpose(2, 3)"), "error"),
    "another shape": (candidate("torch.relu(y).flatten(2)"), "output has shape"),
    "another dtype": (candidate("torch.relu(y).double()"), "output has dtype"),
    "another type": (candidate("nn.Parameter(torch.relu(y))"), "output has type"),
    "a list": (candidate("[torch.relu(y)]"), "output is a list|output has another form"),
    "sparse": (candidate("torch.relu(y).to_sparse()"), "output has stride"),
    "weights of another seed": (
        candidate("torch.relu(y)", "        torch.manual_seed(1)\n        self.conv = nn.Conv2d(8, 16, 3)"),
        "error",
    ),
}


@pytest.mark.parametrize("program", WRONG_BY_VALUE)
def test_by_values_shape_dtype_type_and_values_still_count(by_values, program) -> None:
    source, message = WRONG_BY_VALUE[program]
    verdict = by_values.evaluate(TASK, source)
    assert verdict.outcome is Outcome.WRONG, verdict.message
    assert any(part in verdict.message for part in message.split("|")), verdict.message


def test_an_unknown_strictness_is_refused() -> None:
    with pytest.raises(ValueError, match=r"evaluator\.strict must be drop_in or values"):
        Evaluator("cpu", strict="lax")
