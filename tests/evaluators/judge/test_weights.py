"""A program gets new weights whatever their names and layout are, and whatever else its state holds."""

from __future__ import annotations

import pytest

from evaluators.records import Outcome
from tests.evaluators.outcomes import assert_doubted, assert_ok
from tests.evaluators.sources import TWICE, WEIGHT, model

TASK = "level2/linear_sum_sigmoid_gate"
PROGRAM = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.{name} = nn.Linear(in_features, out_features)
        self.temperature = temperature
        weight, bias = self.{name}.weight.detach(), self.{name}.bias.detach()
        {more}

    def forward(self, x):
        {forward}
"""
HONEST = "return x * torch.sigmoid(self.{name}(x).sum(dim=1, keepdim=True) / self.temperature)"
FOLDED = "return x * torch.sigmoid((x @ self.column[:-1, None] + self.column[-1]) / self.temperature)"
COLUMN = "self.register_buffer('column', torch.cat([weight.sum(dim=0), bias.sum().view(1)]))"
PADDED = {
    "": "",
    "other dtype": "self.register_buffer('work', torch.empty((1 << 25) + 1, dtype=torch.bool))",
    "same dtype": "self.register_buffer('work', torch.zeros(1).expand((1 << 25) + 1))",
    "many": "[self.register_buffer(f'b{i}', torch.empty(0)) for i in range(10_001)]",
}
UNUSUAL = {
    "sparse": "self.register_buffer('mask', torch.eye(8).to_sparse())",
    "sparse rows": "self.register_buffer('mask', torch.eye(8).to_sparse_csr())",
    "quantised": "self.register_buffer('q', torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.qint8))",
    "half a byte": "self.register_buffer('q', torch.empty(8, dtype=torch.uint8).view(torch.uint4))",
    "expanded": "self.register_buffer('first', bias[:1].clone().expand(64))",
    "complex": "self.register_buffer('phase', torch.ones(8, dtype=torch.complex128))",
}
CLAIMS = {
    "no such numbers": [["w", "qint8", [4]]],
    "more than there is": [["w", "float32", [0, 1 << 25, 1 << 25, 1 << 25]]],
    "a size that is none": [["w", "float32", [True]]],
    "no form": [1],
}
CLAIMING = """
import sys
import torch.nn as nn

frame = sys._getframe()
while frame:
    if "handlers" in frame.f_locals:
        frame.f_locals["handlers"]["construct"] = lambda message, descriptor: {{"flags": {{}}, "state": {state}}}
    frame = frame.f_back


class ModelNew(nn.Module):
    def forward(self, x):
        return x
"""


def made(more: str, forward: str, name: str) -> str:
    return PROGRAM.format(more=more, forward=forward.format(name=name), name=name)


@pytest.mark.parametrize("name", ["linear", "layer"])
@pytest.mark.parametrize("padding", PADDED)
def test_folded_weights_are_caught_whatever_else_the_state_holds(evaluator, padding, name) -> None:
    verdict = evaluator.evaluate(TASK, made(f"{COLUMN}; {PADDED[padding]}", FOLDED, name))
    if (padding, name) == ("same dtype", "layer") and not evaluator.device.own_memory:  # too many numbers to search
        assert_doubted(verdict, "weights")
    else:
        assert verdict.outcome is Outcome.WRONG
        assert "after its weights were changed" in verdict.message


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_an_honest_state_may_hold_anything(evaluator, unusual) -> None:
    verdict = evaluator.evaluate(TASK, made(UNUSUAL[unusual], HONEST, "layer"))
    assert verdict.outcome is not Outcome.RUNTIME_ERROR, verdict.message
    assert "weights" not in {finding.kind for finding in verdict.deciding}
    assert verdict.correctness is not None
    assert verdict.outcome is not Outcome.WRONG, verdict.message


@pytest.mark.parametrize("claim", CLAIMS)
def test_an_impossible_state_is_the_programs_own_failure(evaluator, claim) -> None:
    verdict = evaluator.evaluate(TASK, CLAIMING.format(state=CLAIMS[claim]))
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert "wrote to the judge's pipe" in verdict.message
    assert "state" in verdict.message


# Names and layouts


def test_a_state_of_other_names_is_ok(evaluator) -> None:
    renamed = model("return 2 * torch.tanh(x[0] @ self.other)", WEIGHT.replace("self.w", "self.other"), "ModelNew")
    assert_ok(evaluator.evaluate(TWICE, renamed))


@pytest.mark.parametrize(
    ("init", "product"),
    [
        ("; self.other = nn.Parameter(self.w.detach().t().contiguous()); del self.w", "(x[0] @ self.other.t())"),
        ("; self.register_buffer('spare', torch.empty(3, 5))", "(x[0] @ self.w)"),
        ("; self.h = nn.ParameterList(self.w.detach().chunk(2, 1)); del self.w", "x[0] @ torch.cat([*self.h], 1)"),
    ],
)  # fmt: skip
def test_a_state_of_another_layout_is_ok(evaluator, init, product) -> None:
    verdict = evaluator.evaluate(TWICE, model(f"return 2 * torch.tanh({product})", WEIGHT + init, "ModelNew"))
    assert_ok(verdict)


@pytest.mark.parametrize(
    ("init", "outcome"),
    [
        ("; self.kept = self.w.detach().clone(); self.other = self.w; del self.w", Outcome.WRONG),
        ("; self.register_buffer('kept', self.w.detach() * 1.5)", Outcome.WRONG),
        ("; self.kept = self.w.detach().clone(); self.w.data.zero_()", Outcome.WRONG),
        ("; self.kept = self.w.detach().clone(); self.v = self.w; self.v.data.zero_(); del self.w", Outcome.SUSPECT),
    ],
)  # fmt: skip
def test_weights_that_are_kept_outside_of_the_state_are_found_out(evaluator, init, outcome) -> None:
    scale = " / 1.5" if "1.5" in init else ""
    candidate = model(f"return 2 * torch.tanh(x[0] @ (self.kept.to(x[0].device){scale}))", WEIGHT + init, "ModelNew")
    verdict = evaluator.evaluate(TWICE, candidate)
    assert verdict.outcome is outcome, (verdict.message, verdict.guard)
    assert "weights" in verdict.message or "weights" in [finding.kind for finding in verdict.guard]


def test_a_state_that_changes_its_size_is_an_error(evaluator) -> None:
    hook = "lambda *_: sizes.append(0) or {'other': torch.zeros(len(sizes))}"
    init = WEIGHT.replace("self.w", "self.other") + f"; self._register_state_dict_hook({hook})"
    lies = "sizes = []\n" + model("return 2 * torch.tanh(x[0] @ self.other)", init, "ModelNew")
    verdict = evaluator.evaluate(TWICE, lies)
    assert verdict.outcome is Outcome.RUNTIME_ERROR, verdict.guard
    assert "shape" in verdict.message
