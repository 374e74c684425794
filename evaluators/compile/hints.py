"""What a program's text says about what it compiles. Hints only: a program that compiles by other means does so in its
runner, under the start limit."""

from __future__ import annotations

import re

_COMPILE = re.compile(r"\bcompile\(")
_TRITON = re.compile(r"\btriton\b")


def builds_extensions(source: str) -> bool:
    """Whether the source mentions torch's C++ and CUDA extensions."""
    return "cpp_extension" in source or "load_inline" in source


def uses_inductor(source: str) -> bool:
    """Whether the source mentions `torch.compile`."""
    if "torch.compile" in source or "_inductor" in source:
        return True
    return "compile(" in source and _COMPILE.search(source) is not None


def compiles_when_called(source: str) -> bool:
    """Whether the source mentions a compiler that works as the program runs: `torch.compile` or Triton."""
    return uses_inductor(source) or ("triton" in source and _TRITON.search(source) is not None)


def needs_build(source: str) -> bool:
    """Whether the source mentions anything that compiles."""
    return builds_extensions(source) or compiles_when_called(source)
