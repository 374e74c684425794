"""What a program's text says about what it compiles. Hints only: a program that compiles by other means does so in its
runner, under the start limit."""

from __future__ import annotations

import re

_EXTENSIONS = re.compile(r"cpp_extension|load_inline")
_INDUCTOR = re.compile(r"torch\.compile|\bcompile\(|_inductor")
_TRITON = re.compile(r"\btriton\b")


def builds_extensions(source: str) -> bool:
    """Whether the source mentions torch's C++ and CUDA extensions."""
    return bool(_EXTENSIONS.search(source))


def uses_inductor(source: str) -> bool:
    """Whether the source mentions `torch.compile`."""
    return bool(_INDUCTOR.search(source))


def compiles_when_called(source: str) -> bool:
    """Whether the source mentions a compiler that works as the program runs: `torch.compile` or Triton."""
    return uses_inductor(source) or bool(_TRITON.search(source))


def needs_build(source: str) -> bool:
    """Whether the source mentions anything that compiles."""
    return builds_extensions(source) or compiles_when_called(source)
