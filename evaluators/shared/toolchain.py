"""The compilers of this machine, and all that makes the output of one toolchain differ from another's.

The thin headers (`headers/`) hold the part of torch's C++ interface that inline extensions use, on top of libtorch's
stable C interface. Python calls their functions through a glue, which is compiled once for an installation of torch.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import re
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch.utils import cpp_extension

HEADERS = Path(__file__).parent / "headers"
GLUE = Path(__file__).parent / "glue.cpp"
_COMPILING = Path(__file__).parents[1] / "runner" / "compiling.py"  # it chooses the compilers' flags


class CompileError(Exception):
    """The program does not compile; with the compiler's messages."""


class CompilerLost(Exception):
    """The compiler seems to have been killed, or to have found no room on the disk."""


class NoCompiler(Exception):
    """This machine lacks a compiler."""


@dataclass(frozen=True)
class Toolchain:
    """The compilers of this machine and their target. `capability`: a GPU's compute capability, such as `9.0`; empty
    for a CPU."""

    capability: str = ""

    @cached_property
    def cxx(self) -> str:
        """The C++ compiler."""
        return os.environ.get("CXX") or "c++"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables by which another process finds the same compilers."""
        variables = {"CXX": self.cxx, "CUDA_HOME": str(self.cuda_home or ""), "CC": os.environ.get("CC", "")}
        return {name: value for name, value in variables.items() if value}

    @cached_property
    def cuda_home(self) -> Path | None:
        """The folder of the CUDA toolkit, or None."""
        nvcc = shutil.which("nvcc")
        homes = [os.environ.get("CUDA_HOME"), cpp_extension.CUDA_HOME, str(Path(nvcc).parents[1]) if nvcc else None]
        complete = (
            home
            for home in map(Path, [home for home in homes if home] + ["/usr/local/cuda"])
            if (home / "include" / "cuda_runtime.h").is_file()
        )
        return next(complete, None)

    @cached_property
    def nvcc(self) -> str:
        """The path of NVIDIA's compiler; empty if there is none."""
        inside = self.cuda_home / "bin" / "nvcc" if self.cuda_home else None
        return str(inside) if inside and inside.is_file() else ""

    @cached_property
    def standard(self) -> str:
        """The C++ standard that this torch compiles extensions with."""
        match = re.search(r"-std=c\+\+\d\d", inspect.getsource(cpp_extension._write_ninja_file_to_build_library))
        return match.group() if match else "-std=c++17"

    @cached_property
    def identity(self) -> str:
        """A text that differs between toolchains whose outputs may differ."""
        versions = [_version(self.cxx), _version(self.nvcc) if self.nvcc else ""]
        files = sorted(path for path in HEADERS.rglob("*.*"))
        ours = hashlib.sha256(
            "\n".join(path.read_text() for path in [*files, GLUE, Path(__file__), _COMPILING]).encode()
        ).hexdigest()
        python = str(sysconfig.get_config_var("EXT_SUFFIX"))
        torchs = [torch.__version__, str(torch.version.cuda)]
        return "\n".join([platform.machine(), python, *versions, *torchs, self.standard, self.capability, ours])

    @cached_property
    def torch_words(self) -> frozenset[str]:
        """All words of torch/extension.h and of the files that it includes, macros, too. Takes some seconds. Empty if
        the compiler cannot read it."""
        flags = [self.standard, "-E", "-dD", "-P", "-x", "c++", *torch_includes(), "-include", "torch/extension.h"]
        command = [*shlex.split(self.cxx), *flags, "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        return frozenset(re.findall(r"[A-Za-z_]\w*", done.stdout))

    @property
    def torch_libraries(self) -> list[str]:
        """Flags that link against torch."""
        folder = Path(torch.__file__).parent / "lib"
        names = ["c10", "torch_cpu", "torch", "torch_python"]
        names += ["c10_cuda", "torch_cuda"] if (folder / "libtorch_cuda.so").is_file() else []
        return [f"-L{folder}", *(f"-l{name}" for name in names)]


def torch_includes() -> list[str]:
    """Flags by which compilers find the headers of torch and Python."""
    paths = [*cpp_extension.include_paths("cpu"), sysconfig.get_paths()["include"]]
    return [flag for path in paths for flag in ("-isystem", path)]


def _version(compiler: str) -> str:
    try:
        command = [*shlex.split(compiler), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "absent"
