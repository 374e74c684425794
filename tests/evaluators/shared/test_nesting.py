"""The description of an output names exact types, and reads nothing through methods that a program could write."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from evaluators.shared import nesting

VALUE = torch.arange(6.0).reshape(2, 3)


class Meta(type(Tensor)):  # type: ignore[misc]
    """The class of classes that say to be equal to any other."""

    __module__, __qualname__ = "torch", "Tensor"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(Tensor)


class Output(NamedTuple):
    value: Any


def subclass(**attributes: Any) -> Tensor:
    return VALUE.as_subclass(type(Tensor)("Tensor", (Tensor,), attributes))


@pytest.mark.parametrize(
    "posing",
    [
        subclass(),
        subclass(__module__="torch", __qualname__="Tensor"),
        subclass(__module__="", __qualname__="Tensor"),
        VALUE.as_subclass(Meta("Tensor", (Tensor,), {})),
        nn.Parameter(VALUE),
    ],
    ids=["name", "module and name", "no module", "equal to any class", "parameter"],
)
def test_only_a_tensor_is_described_as_one(posing: Tensor) -> None:
    expected, actual = (nesting.flatten(value)[0] for value in (VALUE, posing))
    assert expected != actual
    assert "has type" in (nesting.difference(expected, actual) or "")


@pytest.mark.parametrize("kind", [tuple, list, dict, str, int, float])
def test_only_a_plain_value_is_described_as_one(kind: type) -> None:
    posing = type(kind.__name__, (kind,), {"__module__": "builtins"})
    assert nesting.flatten(kind())[0] != nesting.flatten(posing())[0]


@pytest.mark.parametrize("name", ["reference", "candidate", "task_0123"])
def test_a_programs_own_classes_are_equal_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of a program has another name on each side."""
    before = nesting.flatten(Output(VALUE))[0]
    monkeypatch.setattr(Output, "__module__", name)
    after = nesting.flatten(Output(VALUE))[0]
    assert before != after
    assert after["kind"] == "program.Output"


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2).max(dim=0),
        collections.OrderedDict(a=VALUE, b=[1, "two"]),
        (VALUE, {"x": None, 3: (1.5, True)}),
        np.float64(1.5),
        object(),
    ],
    ids=["return type", "ordered", "nested", "numpy", "other"],
)
def test_equal_values_have_equal_descriptions(value: Any) -> None:
    assert nesting.flatten(value) == nesting.flatten(value)
    assert nesting.difference(*(nesting.flatten(value)[0] for _ in range(2))) is None


def test_numbers_of_other_types_are_described_by_their_values() -> None:
    assert nesting.flatten(np.float64(1.5))[0] != nesting.flatten(np.float64(2.5))[0]
    assert nesting.flatten(np.float64(1.5))[0] != nesting.flatten(1.5)[0]


def test_no_method_of_a_program_runs_while_its_output_is_described() -> None:
    """It would work beyond the clock."""
    ran: list[str] = []

    def hook(name: str) -> Any:
        return lambda *_: ran.append(name)

    def lazy(kind: type, *names: str) -> Any:
        return type(kind.__name__, (kind,), {name: hook(name) for name in names})

    tensor = VALUE.clone()
    tensor.stride = hook("stride")  # type: ignore[method-assign]
    key = lazy(object, "__str__", "__repr__")()
    nesting.flatten(
        [
            tensor,
            lazy(tuple, "__iter__", "__len__")((1,)),
            lazy(list, "__iter__", "__len__")([1]),
            lazy(dict, "__iter__", "values", "keys", "items", "__getitem__")({key: 1}),
            *(lazy(kind, "__repr__", "__str__", "__format__")() for kind in (int, float, str)),
        ]
    )
    assert ran == []
