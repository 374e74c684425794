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

_SOURCES = [Path(__file__).parents[1] / "shared" / name for name in ("arena.cpp", "bursts.cpp", "pool.cpp")]
_HEADERS = [Path(__file__).parents[1] / "shared" / "free_blocks.h"]
_SECONDS = 300.0


@lru_cache(maxsize=1)
def native_library() -> Path:
    """The compiled library: `arena.cpp`, `bursts.cpp` and `pool.cpp` in `evaluators/shared`. Raises InfraError if it
    cannot be compiled."""
    compiler = Toolchain().cxx
    texts = [source.read_text() for source in (*_SOURCES, *_HEADERS)]
    identity = "\n".join((*texts, str(torch.__version__), sys.version, compiler))
    library = own_folder("warpsmith-native") / f"runner-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    with FileLock(f"{library}.lock", timeout=_SECONDS):
        if not library.is_file():
            _compile(compiler, library)
    return library


def _compile(compiler: str, library: Path) -> None:
    made = library.with_suffix(".part")
    flags = [
        "-O2",
        "-std=c++20",
        "-shared",
        "-fPIC",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ]
    headers = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    paths = [f"-isystem{folder}" for folder in headers]
    paths += [f"-L{folder}" for folder in cpp_extension.library_paths()]
    try:
        subprocess.run(
            [compiler, *flags, *paths, *map(str, _SOURCES), "-o", str(made), "-lc10", "-ldl"],
            check=True,
            capture_output=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        messages = getattr(error, "stderr", None) or b""
        remedy = "an evaluator needs a C++ compiler (set CXX) and Python's headers"
        raise InfraError(f"{remedy}: {error} {messages.decode(errors='replace')[-1000:]}") from error
    made.rename(library)
