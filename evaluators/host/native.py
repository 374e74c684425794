"""Compiles what runners run of ours in C++: allocators for memory that the judge can read, and the loop that makes the
calls of a burst on a CPU.

Runs in the judge's process (trusted), once for an installation of torch and a user of the host.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

import torch
from filelock import FileLock
from torch.utils import cpp_extension

from evaluators.failures import InfraError
from evaluators.host.folders import own_folder
from evaluators.shared.toolchain import Toolchain

_FOLDER = Path(__file__).parents[1] / "shared"
_HEADERS = ("free_blocks.h",)
_SECONDS = 300.0


def cpu_library() -> Path:
    """The compiled `arena.cpp` and `bursts.cpp` of `evaluators/shared`. Raises InfraError if it cannot be compiled."""
    return _library(("arena.cpp", "bursts.cpp"), with_torch=True)


def cuda_library() -> Path:
    """The compiled `device_arena.cpp`, which needs no other library. Raises InfraError if it cannot be compiled."""
    return _library(("device_arena.cpp",), with_torch=False)


@lru_cache(maxsize=2)
def _library(names: tuple[str, ...], *, with_torch: bool) -> Path:
    compiler = Toolchain().cxx
    texts = [(_FOLDER / name).read_text() for name in (*names, *_HEADERS)]
    identity = "\n".join((*texts, str(torch.__version__), sys.version, compiler))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    library = own_folder("warpsmith-native") / f"{Path(names[0]).stem}-{digest}.so"
    with FileLock(f"{library}.lock", timeout=_SECONDS):
        if not library.is_file():
            _compile(compiler, [str(_FOLDER / name) for name in names], library, with_torch=with_torch)
    return library


def _compile(compiler: str, sources: list[str], library: Path, *, with_torch: bool) -> None:
    made = library.with_suffix(".part")
    flags = ["-O2", "-std=c++20", "-shared", "-fPIC"]
    linked = ["-ldl", "-lpthread"]
    if with_torch:
        flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
        flags += [f"-isystem{folder}" for folder in (*cpp_extension.include_paths(), sysconfig.get_path("include"))]
        flags += [f"-L{folder}" for folder in cpp_extension.library_paths()]
        linked.append("-lc10")
    try:
        subprocess.run(
            [compiler, *flags, *sources, "-o", str(made), *linked], check=True, capture_output=True, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        messages = getattr(error, "stderr", None) or b""
        remedy = "an evaluator needs a C++ compiler (set CXX) and Python's headers"
        raise InfraError(f"{remedy}: {error} {messages.decode(errors='replace')[-1000:]}") from error
    made.rename(library)
