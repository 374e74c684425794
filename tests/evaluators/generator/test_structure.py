"""The digest of a structure ignores names, sizes and constants. It does not ignore the operators and their wiring."""

from __future__ import annotations

import pytest

from evaluators.generator.structure import UntraceableError, structure_digest
from evaluators.records import Task
from evaluators.tasks import find_task, load_tasks
from tests.evaluators.generator.drawing import some

PROGRAM = """
import torch
import torch.nn as nn
import torch.nn.functional as F
rows, columns = {sizes}
class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.{layer} = nn.Linear(columns, 3 * columns)
        self.act = nn.GELU()
    def forward(self, {x}, other):
        {body}
def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, 3 * columns)]
def get_init_inputs():
    return [columns]
"""


def digest(body: str, sizes: str = "4, 8", layer: str = "layer", x: str = "x") -> str:
    return structure_digest(Task("level2/1", 2, "t", PROGRAM.format(body=body, sizes=sizes, layer=layer, x=x)))


BODY = "y = F.gelu(self.layer(x)); return (y - other) * torch.sigmoid(y) * 0.5"


def test_names_sizes_constants_and_the_form_of_a_call_make_no_difference() -> None:
    renamed = "return (self.act(self.linear(z)) - other) * F.gelu(self.linear(z)).sigmoid() * 0.125"
    assert digest(renamed, "6, 12", "linear", "z") == digest(BODY)
    assert digest("y = self.act(self.layer(x)); return 3.0 * (torch.sigmoid(y).mul_(y - other))") == digest(BODY)
    assert digest("y = self.act(self.layer(x)); return torch.sigmoid(y).mul_(y - other) / 3.0") == digest(BODY)


@pytest.mark.parametrize(
    "body",
    [
        "y = F.gelu(self.layer(x)); return (other - y) * torch.sigmoid(y) * 0.5",
        "y = F.gelu(self.layer(x)); return (y - other) * torch.sigmoid(other) * 0.5",
        "y = F.gelu(self.layer(x)); return (y - other) * torch.tanh(y) * 0.5",
        "y = self.layer(x); return (y - other) * torch.sigmoid(y) * 0.5",
        "y = F.gelu(self.layer(x)); return (y - other) * torch.sigmoid(y) + 0.5",
        "y = F.gelu(self.layer(x)); return ((y - other) * torch.sigmoid(y) * 0.5).sum(dim=1)",
    ],
)
def test_other_operators_or_wiring_are_another_structure(body: str) -> None:
    assert digest(body) != digest(BODY)


def test_axes_count() -> None:
    first, last, other_rank = (
        digest(f"return torch.softmax({x}, dim={dim})") for x, dim in (("other", 0), ("other", -1), ("other[None]", 2))
    )
    assert first != last == other_rank


def test_every_bundled_task_has_a_structure_of_its_own() -> None:
    digests = [structure_digest(task) for task in load_tasks("bundled", "cpu")]
    assert len(set(digests)) == len(digests)


def test_a_renamed_twin_of_a_bundled_task_is_recognised_at_other_sizes() -> None:
    task = find_task("level2/highway_gate", "cpu")
    words = {
        "transformed": "t",
        "transform": "first",
        "carried": "c",
        "kept": "k",
        "features": "width",
        "gate": "second",
    }
    source = task.source
    for word, other in words.items():
        source = source.replace(word, other)
    twin = Task("level2/9", 2, "twin", source, sizes={"batch_size": 64, "width": 16})
    assert source != task.source
    assert structure_digest(twin) == structure_digest(task)


def test_drawn_tasks_of_one_family_differ() -> None:
    tasks = some(3)
    digests = {structure_digest(task.task.with_sizes(**task.profiles["small"])) for task in tasks}
    assert len(digests) > 0.8 * len(tasks)
    for task in tasks[:20]:  # and sizes make no difference
        small, cpu = (structure_digest(task.task.with_sizes(**task.profiles[name])) for name in ("small", "cpu"))
        assert small == cpu


def test_a_program_that_needs_values_cannot_be_traced() -> None:
    with pytest.raises(UntraceableError, match="level2/1"):
        digest("return x * x.sum().item()")
