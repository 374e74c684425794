"""Every rule's programs compute what the reference does, with whatever weights, and leave the inputs alone."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import torch

from evaluators.generator.draw import DrawnTask
from evaluators.generator.rules import RuleVariant, variants_of
from evaluators.tasks import TaskProgram
from tests.evaluators.generator.drawing import NAMES, drawn, some

PLAIN = {"algebra", "fused_calls", "in_place", "fused_in_place", "joined_weights", "row_blocks", "channels_last"}
IMPORTED = {"torch", "torch.nn", "torch.nn.functional", "torch.utils.cpp_extension", "triton", "triton.language"}


def load(source: str, folder: Path) -> ModuleType:
    """Imports a program from a file, as Triton demands."""
    path = folder / f"program_{len(list(folder.iterdir()))}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_right(task: DrawnTask, variant: RuleVariant, module: ModuleType) -> None:
    """Compares a program with the reference on two draws of weights, which it gets after it was constructed."""
    program = TaskProgram(task.task.with_sizes(**task.profiles["small"]))
    init_inputs, inputs = program.init_inputs(0), program.inputs(1)
    candidate = module.ModelNew(*init_inputs)
    for seed in (1, 2):
        reference = program.model(seed, init_inputs)
        candidate.load_state_dict(reference.state_dict())
        with torch.no_grad():
            before = [tensor.clone() for tensor in inputs]
            expected, output = reference(*inputs), candidate(*inputs)
        place = f"{task.family} {task.drawn.name} {variant.name}"
        assert all(map(torch.equal, before, inputs)), place
        assert (output.shape, output.dtype, output.stride()) == (expected.shape, expected.dtype, expected.stride()), (
            place
        )
        if not expected.is_floating_point():
            assert torch.equal(output, expected), place
            continue
        error = (output.double() - expected.double()).abs().max() / expected.double().abs().max().clamp_min(1e-30)
        assert error <= (3e-5 if expected.dtype == torch.float32 else 3e-2), (place, float(error))


@pytest.mark.parametrize(("level", "family"), NAMES, ids=[family for _, family in NAMES])
def test_programs_of_torch_are_right(level: int, family: str, tmp_path: Path) -> None:
    for number in range(2):
        task = drawn(level, family, number)
        for variant in variants_of(task.drawn):
            if variant.rule in PLAIN:
                assert_right(task, variant, load(variant.source, tmp_path))


@pytest.mark.slow
def test_triton_kernels_are_right_in_the_interpreter(tmp_path: Path) -> None:
    """In a process of its own, since Triton decides on import whether it interprets."""
    script = Path(__file__).with_name("interpret.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rules = Counter(done.stdout.split())
    assert min(rules[rule] for rule in ("triton_chain", "triton_rows", "triton_product")) >= 8


def test_every_program_parses_and_imports_nothing_odd() -> None:
    rules = Counter()
    for task in some(2):
        for variant in variants_of(task.drawn):
            rules[variant.rule] += 1
            for node in ast.walk(ast.parse(variant.source)):
                if isinstance(node, ast.Import):
                    assert {alias.name for alias in node.names} <= IMPORTED
                if isinstance(node, ast.ImportFrom):
                    assert node.module in IMPORTED
            assert variant.analysis.endswith(".")
            assert variant.design.endswith(".")
            assert "{" not in variant.analysis + variant.design
            assert variant.facts["reason"] == variant.analysis
    assert set(rules) >= PLAIN | {
        "torch_compile",
        "triton_chain",
        "triton_rows",
        "triton_product",
        "cpp_chain",
        "cpp_rows",
    }


def test_variants_of_a_task_differ_and_none_is_the_reference() -> None:
    for task in some(2):
        sources = [variant.source for variant in variants_of(task.drawn)]
        names = [variant.name for variant in variants_of(task.drawn)]
        assert len(set(sources)) == len(sources)
        assert len(set(names)) == len(names)
        assert not any(task.task.source.split("class Model")[1].split("def get_inputs")[0] in text for text in sources)
