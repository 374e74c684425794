"""The C++ loops compile and compute what the reference does."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from evaluators.generator.rules import variants_of
from tests.evaluators.generator.drawing import some
from tests.evaluators.generator.rules.test_values import assert_right

CALL = re.compile(r'source = """\n(?P<cpp>.*?)"""\nextension = load_inline\((?P<options>.*?)\n\)\n', re.DOTALL)


@pytest.mark.slow
def test_cpp_loops_are_right(tmp_path: Path) -> None:
    """All functions in one extension, since the compiler takes longest for torch's headers."""
    from torch.utils.cpp_extension import load_inline

    variants = [
        (task, variant, CALL.search(variant.source))
        for task in some(2)
        for variant in variants_of(task.drawn)
        if variant.rule.startswith("cpp")
    ]
    sources, functions = [], []
    for number, (_, _, call) in enumerate(variants):
        assert call is not None
        functions.append(f"fused_{number}")
        sources.append(call["cpp"].replace("torch::Tensor fused(", f"torch::Tensor fused_{number}("))
    flags = ["-O3", "-march=native", "-ffast-math"]
    extension = load_inline(
        "generated_loops", "\n".join(sources), functions=functions, extra_cflags=flags, build_directory=str(tmp_path)
    )
    assert len(variants) >= 30
    for number, (task, variant, _) in enumerate(variants):
        module = ModuleType("program")
        module.__dict__["extension"] = SimpleNamespace(fused=getattr(extension, f"fused_{number}"))
        exec(CALL.sub("", variant.source), module.__dict__)
        assert_right(task, variant, module)
