"""Compiles one extension: against the thin headers, which takes a second or two, or against torch's own.

The thin headers (`headers/`) have the part of torch's C++ interface that inline extensions use, over libtorch's stable
C interface. Python sees their functions through a glue that is compiled once for an installation of torch.
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
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from evaluators.build.extension import ExtensionRequest

HEADERS = Path(__file__).parent / "headers"
_LOCAL = HEADERS / "warpsmith" / "local.map"
GLUE = Path(__file__).parent / "glue.cpp"
_HALF = re.compile(r"\b(c10|at|torch)::(Half|BFloat16)\b|_AND_HALF|_TYPES_AND|kHalf|kBFloat16")
_CUDA = (".cu", ".cuh")
_MOST_CHARACTERS = 100_000
_MOST_ERRORS = 50


_LOST = re.compile(
    r"^[\w+./-]+: fatal error: Killed signal|^nvcc error\s*: .* died due to signal 9|No space left on device$",
    re.MULTILINE,
)
_NATIVE = re.compile(r"-m(arch|tune|cpu)=native")


class CompileError(Exception):
    """What the compiler has to say of the program."""


class CompilerLost(Exception):
    """The compiler seems to have been killed, or to have had no room on the disk."""


class NoCompiler(Exception):
    """This machine lacks a compiler."""


@dataclass(frozen=True)
class Toolchain:
    """The compilers of this machine and what they compile for: `capability` is a GPU's, such as `9.0`."""

    capability: str = ""

    @cached_property
    def cxx(self) -> str:
        """The C++ compiler."""
        return os.environ.get("CXX") or "c++"

    @property
    def environment(self) -> dict[str, str]:
        """What makes another process find the same compilers."""
        known = {"CXX": self.cxx, "CUDA_HOME": str(self.cuda_home or ""), "CC": os.environ.get("CC", "")}
        return {name: value for name, value in known.items() if value}

    @cached_property
    def cuda_home(self) -> Path | None:
        """The CUDA toolkit, or None."""
        found = shutil.which("nvcc")
        homes = [os.environ.get("CUDA_HOME"), cpp_extension.CUDA_HOME, str(Path(found).parents[1]) if found else None]
        complete = (
            home
            for home in map(Path, [one for one in homes if one] + ["/usr/local/cuda"])
            if (home / "include" / "cuda_runtime.h").is_file()
        )
        return next(complete, None)

    @cached_property
    def nvcc(self) -> str:
        """NVIDIA's compiler; empty where there is none."""
        inside = self.cuda_home / "bin" / "nvcc" if self.cuda_home else None
        return str(inside) if inside and inside.is_file() else ""

    @cached_property
    def standard(self) -> str:
        """The C++ standard that this torch compiles extensions with."""
        found = re.search(r"-std=c\+\+\d\d", inspect.getsource(cpp_extension._write_ninja_file_to_build_library))
        return found.group() if found else "-std=c++17"

    @cached_property
    def identity(self) -> str:
        """All that makes one toolchain's output differ from another's."""
        versions = [_version(self.cxx), _version(self.nvcc) if self.nvcc else ""]
        files = sorted(path for path in HEADERS.rglob("*.*"))
        ours = hashlib.sha256(
            "\n".join(path.read_text() for path in [*files, GLUE, Path(__file__)]).encode()
        ).hexdigest()
        python = str(sysconfig.get_config_var("EXT_SUFFIX"))
        torchs = [torch.__version__, str(torch.version.cuda)]
        return "\n".join([platform.machine(), python, *versions, *torchs, self.standard, self.capability, ours])

    @cached_property
    def torch_words(self) -> frozenset[str]:
        """All words of torch/extension.h and of what it includes, macros too; takes some seconds. Empty where it cannot
        be read."""
        flags = [self.standard, "-E", "-dD", "-P", "-x", "c++", *_torch_includes(), "-include", "torch/extension.h"]
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


def compile_extension(
    request: ExtensionRequest, toolchain: Toolchain, folder: Path, *, thin: bool, seconds: float = 300.0
) -> Path:
    """The shared library that was made in `folder`; host and device code are compiled at the same time.

    Raises CompileError with what the first compiler that failed printed, CompilerLost, TimeoutError after `seconds`.
    """
    commands, objects = [], []
    for name, text in request.headers:
        _write(folder / name, text)
    for name, text in request.sources:
        path = folder / name
        _write(path, text)
        objects.append(path.with_suffix(path.suffix + ".o"))
        half = thin and bool(_HALF.search(text))
        commands.append(
            [*_command(request, toolchain, path, thin=thin, half=half), "-c", str(path), "-o", str(objects[-1])]
        )
    deadline = time.monotonic() + seconds
    _run_all(commands, deadline)
    library = folder / "extension.so"
    cuda = any(Path(name).suffix in _CUDA or "cuda_runtime" in text for name, text in request.sources)
    runtime = [f"-L{toolchain.cuda_home}/lib64", f"-L{toolchain.cuda_home}/lib", "-lcudart"] if cuda else []
    # A symbol that torch does not have is found out now, unless this is a torch without CUDA that builds for another.
    runtime += ["-Wl,-z,defs"] if thin and (not cuda or "-ltorch_cuda" in toolchain.torch_libraries) else []
    runtime += [f"-Wl,--version-script={_LOCAL}"] if thin else []
    link = [
        *shlex.split(toolchain.cxx),
        *map(str, objects),
        "-shared",
        *toolchain.torch_libraries,
        *runtime,
        *request.ldflags,
    ]
    _run_all([[*link, "-o", str(library)]], deadline)
    if not library.is_file() or library.is_symlink():
        raise CompileError("the linker made no library")
    return library


def compile_glue(toolchain: Toolchain, folder: Path, seconds: float = 300.0) -> Path:
    """The Python module that loads what was compiled against the thin headers. Raises CompileError, CompilerLost,
    TimeoutError after `seconds`."""
    library = folder / f"warpsmith_glue{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = [toolchain.standard, "-O2", "-fPIC", "-shared", f"-I{HEADERS}", *_torch_includes()]
    command = [*shlex.split(toolchain.cxx), *flags, str(GLUE), *toolchain.torch_libraries, "-o", str(library)]
    _run_all([command], time.monotonic() + seconds)
    return library


def compile_as_asked(message: dict[str, Any]) -> dict[str, Any]:
    """A build farm's request to a contained process: compiles an extension, or the glue, in a folder of its own.

    The answer has the seconds that it took and the library's name, or what went wrong under `complaint`, `lost`, `late`
    or `absent`."""
    start, folder, seconds = time.perf_counter(), Path(message["folder"]), message["seconds"]
    toolchain = Toolchain(message["capability"])
    try:
        if message["extension"] is None:
            library = compile_glue(toolchain, folder, seconds)
        else:
            request = ExtensionRequest.from_json(message["extension"])
            library = compile_extension(request, toolchain, folder, thin=message["thin"], seconds=seconds)
    except CompileError as error:
        return {"complaint": str(error)[:_MOST_CHARACTERS]}
    except CompilerLost as error:
        return {"lost": str(error)}
    except TimeoutError as error:
        return {"late": str(error)}
    except NoCompiler as error:
        return {"absent": str(error)}
    except (OSError, ValueError, RecursionError) as error:  # what a strange request brings about
        return {"complaint": f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]}
    return {"library": library.name, "seconds": time.perf_counter() - start}


def _torch_includes() -> list[str]:
    paths = [*cpp_extension.include_paths("cpu"), sysconfig.get_paths()["include"]]
    return [flag for path in paths for flag in ("-isystem", path)]


def _command(request: ExtensionRequest, toolchain: Toolchain, path: Path, *, thin: bool, half: bool) -> list[str]:
    """The compiler and its flags for one file: torch's own, but for the headers."""
    common = [f"-DTORCH_EXTENSION_NAME={request.module}", "-DTORCH_API_INCLUDE_EXTENSION_H", toolchain.standard]
    cuda = path.suffix in _CUDA
    if thin:
        headers = ["-isystem", str(HEADERS), *([] if toolchain.capability else ["-DWARPSMITH_CPU"])]
        headers += ["-DWARPSMITH_HALF", "-isystem", cpp_extension.include_paths()[0]] if half else []
    else:
        headers = _torch_includes()
    if not cuda and toolchain.cuda_home:
        headers += ["-isystem", str(toolchain.cuda_home / "include")]
    if not cuda:
        # What is built for a GPU is built on another machine than it runs on.
        flags = [one for one in request.cflags if not (toolchain.capability and _NATIVE.fullmatch(one))]
        return [*shlex.split(toolchain.cxx), *common, "-fPIC", f"-fmax-errors={_MOST_ERRORS}", *headers, *flags]
    if not toolchain.nvcc:
        raise NoCompiler("nvcc: not found; CUDA sources need the CUDA toolkit")
    number = toolchain.capability.replace(".", "")
    chosen = any("arch" in flag for flag in request.cuda_cflags)  # then torch leaves it to the program, too
    target = [f"-gencode=arch=compute_{number},code=sm_{number}"] if number and not chosen else []
    host = ["--compiler-options", "-fPIC"]
    if os.environ.get("CC") and not any("ccbin" in flag for flag in request.cuda_cflags):
        host += ["-ccbin", os.environ["CC"]]
    return [toolchain.nvcc, *common, *headers, *cpp_extension.COMMON_NVCC_FLAGS, *host, *target, *request.cuda_cflags]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def _version(compiler: str) -> str:
    try:
        command = [*shlex.split(compiler), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "absent"


def _run_all(commands: list[list[str]], deadline: float) -> None:
    """Runs commands at the same time. Raises CompileError for the first that failed, once all have ended, and
    CompilerLost."""
    plain: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    environment = {**os.environ, "LC_ALL": "C"}  # for complaints in ASCII
    running = [subprocess.Popen(one, env=environment, **plain) for one in commands]
    failed = ""
    try:
        for command, process in zip(commands, running, strict=True):
            output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            if process.returncode < 0 or (process.returncode and _LOST.search(output)):
                raise CompilerLost(f"{Path(command[0]).name} ended with {process.returncode}: {output[-500:]}")
            if process.returncode:
                failed = failed or output or f"{command[0]}: exit status {process.returncode}"
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"compiling took longer than allowed: {error.timeout:.0f} s") from error
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    if failed:
        raise CompileError(failed)
