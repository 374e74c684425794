"""A program that repeats the reference is recognised, and one that changes anything, however little, is not."""

import pytest

from evaluators.guard.copies import is_copy
from evaluators.records import Task
from evaluators.tasks import load_tasks
from evaluators.tasks.loader import load_variants
from evaluators.tasks.program import program_source

REFERENCE = '''
import torch
import torch.nn as nn


def helper(x):
    return x * 2


class Model(nn.Module):
    """Doubles, then a layer."""

    def __init__(self, size):
        super(Model, self).__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, x):
        """Says so."""
        return self.layer(helper(x))  # a comment


size = 4


def get_inputs():
    return [torch.randn(2, size)]


def get_init_inputs():
    return [size]
'''
RENAMED = REFERENCE.replace("Model", "ModelNew")


@pytest.mark.parametrize(
    "program",
    [
        RENAMED,
        RENAMED.replace("super(ModelNew, self)", "super()"),
        RENAMED.replace('        """Says so."""\n', "").replace("  # a comment", ""),
        RENAMED.split("size = 4")[0],
        RENAMED.replace("size = 4", "size = 8\n\n\ndef check():\n    return ModelNew(size)"),
        RENAMED + "\nif __name__ == '__main__':\n    print(ModelNew(size))\n",
        "import math\nfrom torch.nn import functional as F\n" + RENAMED + "\n'the end'\nother: int = 3\n",
    ],
    ids=["renamed", "super", "without words", "without inputs", "with a test", "a script", "more names"],
)
def test_a_repeated_reference_is_a_copy(program: str) -> None:
    assert is_copy(program, REFERENCE)


@pytest.mark.parametrize(
    "program",
    [
        RENAMED.replace("x * 2", "x + x"),
        RENAMED.replace("self.layer(helper(x))", "torch.relu_(self.layer(helper(x)))"),
        RENAMED.replace("self.layer(helper(x))", "self.layer(x * 2)").replace("def helper(x):\n    return x * 2", ""),
        REFERENCE + "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n",
        RENAMED + "\nModelNew.forward = torch.compile(ModelNew.forward)\n",
        RENAMED + "\nclass Fast(nn.Module):\n    pass\n\nModelNew = Fast\n",
        RENAMED + "\nif size > 2:\n    ModelNew = nn.Identity\n",
        RENAMED + "\nfrom torch.nn import Identity as helper\n",
        RENAMED + "\ntorch.matmul = helper\n",
        RENAMED + "\nsetattr(ModelNew, 'forward', helper)\n",
        "class ModelNew:\n    pass",
        "class ModelNew(",
        "",
    ],
    ids=[
        "helper",
        "another call",
        "inlined",
        "quoted",
        "compiled",
        "bound again",
        "bound at times",
        "imported again",
        "patches torch",
        "patches itself",
        "another class",
        "does not parse",
        "empty",
    ],
)
def test_a_program_that_changes_anything_is_no_copy(program: str) -> None:
    assert not is_copy(program, REFERENCE)


def test_a_reference_that_does_not_parse_has_no_copies() -> None:
    assert not is_copy(RENAMED, "class Model(")


@pytest.mark.parametrize("task", load_tasks("bundled"), ids=lambda task: task.id)
def test_every_bundled_reference_is_recognised_and_no_variant_is(task: Task) -> None:
    reference = program_source(task)
    assert is_copy(reference.replace("class Model(", "class ModelNew("), reference)
    copies = [variant.name for variant in load_variants(task.id) if is_copy(variant.source, reference)]
    assert not copies
