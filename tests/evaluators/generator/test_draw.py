"""Every drawn task is a valid program of the inferred shape, and the seed alone decides which one it is."""

from __future__ import annotations

import random

import pytest
import torch

from evaluators.audit.quick import reason_to_drop
from evaluators.generator.draw import draw_task
from evaluators.generator.graph import value_of
from evaluators.generator.sizes import DEVICES, seconds_of
from evaluators.tasks import TaskProgram
from tests.evaluators.generator.drawing import NAMES, drawn, some


def test_the_same_seed_draws_the_same_text_and_another_seed_another() -> None:
    texts = [
        [getattr(draw_task(random.Random(f"{seed}/{i}"), i), "task", None) for i in range(40)] for seed in (0, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(("level", "family"), NAMES, ids=[family for _, family in NAMES])
def test_a_drawn_task_gives_the_shape_and_dtype_that_were_inferred(level: int, family: str) -> None:
    for number in range(4):
        task = drawn(level, family, number)
        program = TaskProgram(task.task.with_sizes(**task.profiles["small"]))
        with torch.no_grad():
            output = program.model(0, program.init_inputs(0))(*program.inputs(1))
        node = task.drawn.graph.nodes[task.drawn.graph.output]
        assert tuple(output.shape) == tuple(value_of(size, task.profiles["small"]) for size in node.shape)
        assert str(output.dtype) == f"torch.{node.dtype}"


@pytest.mark.parametrize("profile", DEVICES)
def test_a_call_is_estimated_to_take_as_long_as_the_device_asks_for(profile: str) -> None:
    device = DEVICES[profile]
    for task in some(2):
        assert device.least <= seconds_of(task.drawn.graph, task.profiles[profile], device) <= device.most


def test_a_task_is_written_at_the_sizes_of_a_gpu_and_has_all_profiles() -> None:
    for task in some(1):
        assert set(task.profiles) == {"cpu", "cuda", "small"}
        for sizes in task.profiles.values():
            assert TaskProgram(task.task.with_sizes(**sizes), torch.device("meta")).inputs(0)
        assert all(f"{name} = {value}\n" in task.task.source for name, value in task.profiles["cuda"].items())


CONSTANT = """
import torch
import torch.nn as nn
n = 8
class Model(nn.Module):
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.randn(n, 16)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("torch.relu(-torch.abs(x))", "constant"),
        ("torch.ones_like(x)", "constant"),
        ("torch.log(torch.relu(-torch.abs(x)))", "not finite"),
        ("x.sum(dim=1, keepdim=True).expand(n, 16).contiguous()", "collapsible"),
        ("torch.softmax(x, dim=1)", ""),
    ],
)
def test_a_degenerate_task_is_dropped_for_its_reason(body: str, kind: str) -> None:
    from evaluators.records import Task

    assert (
        kind in reason_to_drop(Task("level1/1", 1, "t", CONSTANT.format(body=body)), ({}, {"n": 12}), 0).split(", ")[0]
    )
    if not kind:
        assert not reason_to_drop(Task("level1/1", 1, "t", CONSTANT.format(body=body)), ({}, {"n": 12}), 0)
