"""Values on a CPU decide only if the reference's do not depend on anything else, at sizes that stand for the task's."""

from __future__ import annotations

import pytest

from evaluators.judge.plain_values import PlainValues
from evaluators.records import Task
from evaluators.tasks import find_task
from evaluators.tasks.shapes import smaller_shapes

TEXT = """
import torch
import torch.nn as nn

rows, columns, features = 512, 256, 24


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.drop = nn.Dropout(0.5)
        self.calls = 0

    def forward(self, x):
        BODY


def get_inputs():
    return [torch.randn(rows, columns, features)]


def get_init_inputs():
    return [features]
"""


def values_of(body: str, text: str = TEXT, **sizes: int) -> PlainValues | None:
    task = Task("level1/one", 1, "one", text.replace("BODY", body), sizes=sizes)
    return PlainValues.of(task, next(smaller_shapes(task)))


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        ("return self.linear(x)", {"rows": 8, "columns": 4}),
        ("return torch.softmax(x, dim=1)", {"rows": 8, "columns": 256}),
        ("return x.cumsum(0) - x.mean(2, keepdim=True)", {"rows": 8, "columns": 4}),
        ("return (x - x.mean(0)).amax(1)", {"rows": 512, "columns": 256}),
        ("return x.flip(0)", {"rows": 512, "columns": 4}),
    ],
)
def test_a_size_is_made_smaller_if_outputs_are_then_a_part_of_the_larger_ones(body: str, sizes: dict[str, int]) -> None:
    values = values_of(body)
    assert values is not None
    assert dict(values.task.sizes) == sizes


def test_a_size_stays_if_the_magnitude_of_inputs_depends_on_it() -> None:
    values = values_of("return self.linear(x)", TEXT.replace("features)]", "features) / rows]"))
    assert values is not None
    assert dict(values.task.sizes) == {"rows": 512, "columns": 4}


def test_a_size_that_is_a_number_of_the_model_stays() -> None:
    values = values_of("return self.linear(x)", rows=24)
    assert values is not None
    assert dict(values.task.sizes) == {"rows": 24, "columns": 4}


@pytest.mark.parametrize(
    "body",
    [
        "return self.drop(x)",  # draws numbers
        "return x + torch.randn_like(x)",
        "self.calls += 1; return x * self.calls",  # keeps a state
        "return x if len(x) > 99 else -x",  # chooses by sizes
        "return x if x.is_cpu else -x",
        "return x.argsort(1)",  # no rounding errors
        "return (x + 1e6) - 1e6 - x",  # nothing but rounding errors
        "return torch.sin(x.exp() * 1e6)",  # which rounding decides about
        "return x * 0.0",
        "return torch.log(x)",  # NaN
        "return (x.sum(2) > 0).sum(1)",
    ],
)
def test_values_decide_nothing_if_they_depend_on_more_than_inputs_and_weights(body: str) -> None:
    assert values_of("return x") is not None
    assert values_of(body) is None


def test_values_decide_nothing_if_the_reference_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert values_of("return self.linear(x)") is not None
    with monkeypatch.context() as patch:
        patch.setattr("evaluators.judge.plain_values._MOST_SECONDS", 0.0)
        assert values_of("return self.linear(x)") is None
    monkeypatch.setattr("evaluators.judge.plain_values._MOST_BYTES", 1000)
    assert values_of("return self.linear(x)") is None


def test_a_product_of_triangles_is_a_part_of_the_larger_one() -> None:
    task = find_task("level1/triangular_matmul", "cuda")
    values = PlainValues.of(task, next(smaller_shapes(task)))
    assert values is not None
    assert values.task.sizes["size"] == 64
