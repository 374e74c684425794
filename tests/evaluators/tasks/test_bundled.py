"""Every bundled task runs at its sizes, and comes with variants that a teacher can show."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
import torch

from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.syntax import normalised_source
from evaluators.tasks import TaskProgram, load_tasks, program_source
from evaluators.tasks.loader import load_variants

CPU = {task.id: task for task in load_tasks("bundled", "cpu")}
CUDA = {task.id: task for task in load_tasks("bundled", "cuda")}


def test_there_are_ten_operators_ten_sequences_and_four_networks() -> None:
    assert Counter(task.level for task in CPU.values()) == {1: 10, 2: 10, 3: 4}


@pytest.mark.parametrize("task", CPU.values(), ids=CPU)
def test_a_reference_runs_at_its_cpu_sizes(task: Task) -> None:
    program = TaskProgram(task)
    model, inputs = program.model(1, program.init_inputs(1)), program.inputs(2)
    with torch.no_grad():
        _, outputs = nesting.flatten(model(*inputs))
    assert outputs
    assert all(torch.isfinite(output).all() for output in outputs)
    assert all(output.numel() for output in outputs)


@pytest.mark.parametrize("task", CUDA.values(), ids=CUDA)
def test_a_task_has_larger_sizes_for_a_gpu(task: Task) -> None:
    assert program_source(task)
    assert set(task.sizes) == set(CPU[task.id].sizes)
    assert task.sizes != CPU[task.id].sizes
    assert task.tags


@pytest.mark.parametrize("identity", CPU)
def test_a_task_comes_with_variants(identity: str) -> None:
    variants = load_variants(identity)
    assert len(variants) >= 5
    expected = Counter(variant.expect for variant in variants)
    assert set(expected) <= {"faster", "same", "slower", "wrong"}
    assert expected["faster"] >= 1
    assert expected["wrong"] >= 1
    for variant in variants:
        classes = {node.name for node in ast.parse(variant.source).body if isinstance(node, ast.ClassDef)}
        assert "ModelNew" in classes, variant.name
        assert variant.analysis.endswith("."), variant.name
        assert variant.design.endswith("."), variant.name
    assert len({normalised_source(variant.source) for variant in variants}) == len(variants)
