"""Sizes are overridden by name in every kind of assignment, and nothing else in the source changes."""

from __future__ import annotations

import pytest
import torch

from evaluators.records import Task
from evaluators.tasks import ProgramError, TaskProgram, program_source

SOURCE = """# größe: ä
import torch
import torch.nn as nn
n = 4; label = "ä"; m = 5
height, (width, depth), channels = 6, (7, 8), 9
rows, columns = 10, 11
shape = (
    1,  # ä
    2,
)
area = rows * columns
n_copy = other = 12


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x):
        rows = 3
        return x * self.weight


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return [n]
"""
TASK = Task("test/sizes", 1, "sizes", SOURCE)


def values(task: Task) -> dict:
    namespace: dict = {}
    exec(program_source(task), namespace)
    return namespace


def test_without_sizes_the_source_is_untouched() -> None:
    assert program_source(TASK) == SOURCE


def test_each_kind_of_assignment_can_be_overridden() -> None:
    sizes = {"n": 40, "m": 50, "height": 60, "channels": 90, "columns": 110, "shape": (1,), "other": 120, "label": "ö"}
    found = values(TASK.with_sizes(**sizes))
    assert {name: found[name] for name in sizes} == sizes
    assert (found["width"], found["rows"]) == (7, 10)


def test_constants_derived_from_a_size_follow_it() -> None:
    assert values(TASK.with_sizes(rows=100))["area"] == 1100


def test_only_module_level_names_are_touched() -> None:
    assert "        rows = 3\n" in program_source(TASK.with_sizes(rows=100))


@pytest.mark.parametrize("name", ["missing", "weight", "Model"])
def test_an_unknown_size_is_named(name) -> None:
    with pytest.raises(ValueError, match=name):
        program_source(TASK.with_sizes(**{name: 1}))
    with pytest.raises(ProgramError, match=name):
        TaskProgram(TASK.with_sizes(**{name: 1}))


def test_a_seed_decides_inputs_and_weights_and_leaves_the_global_one_alone() -> None:
    program = TaskProgram(TASK)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert torch.equal(program.inputs(1)[0], program.inputs(1)[0])
    assert not torch.equal(program.inputs(1)[0], program.inputs(2)[0])
    assert torch.equal(program.model(1, [4]).weight, program.model(1, [4]).weight)
    assert torch.equal(torch.get_rng_state(), before)
