"""Compiles one extension, against the thin headers (which takes a second or two) or against torch's own.

Runs in a contained process of the build farm, which never holds a program. It is untrusted all the same: sources and
flags are a candidate's.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension

from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.toolchain import GLUE, HEADERS, CompileError, CompilerLost, NoCompiler, Toolchain, torch_includes

_LOCAL = HEADERS / "warpsmith" / "local.map"
_HALF = re.compile(r"\b(c10|at|torch)::(Half|BFloat16)\b|_AND_HALF|_TYPES_AND|kHalf|kBFloat16")
_CUDA = (".cu", ".cuh")
_MOST_CHARACTERS = 100_000
_MOST_ERRORS = 50
_LOST = re.compile(
    r"^[\w+./-]+: fatal error: Killed signal|^nvcc error\s*: .* died due to signal 9|No space left on device$",
    re.MULTILINE,
)
_NATIVE = re.compile(r"-m(arch|tune|cpu)=native")


def compile_extension(
    request: ExtensionRequest, toolchain: Toolchain, folder: Path, *, thin: bool, seconds: float = 300.0
) -> Path:
    """Compiles in `folder`, host and device code at the same time, and returns the path of the shared library.

    Raises CompileError with the output of the first compiler that failed, CompilerLost, NoCompiler, and TimeoutError
    after `seconds`.
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
    # Lets the linker report a symbol that torch lacks. A torch without CUDA that builds for one with it lacks some.
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
    """Compiles the glue in `folder`: the Python module that loads extensions of the thin headers. Returns its path.
    Raises CompileError, CompilerLost, and TimeoutError after `seconds`."""
    library = folder / f"warpsmith_glue{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = [toolchain.standard, "-O2", "-fPIC", "-shared", f"-I{HEADERS}", *torch_includes()]
    command = [*shlex.split(toolchain.cxx), *flags, str(GLUE), *toolchain.torch_libraries, "-o", str(library)]
    _run_all([command], time.monotonic() + seconds)
    return library


def compile_as_asked(message: dict[str, Any]) -> dict[str, Any]:
    """Answers a request of the build farm: compiles an extension, or the glue, in a folder of its own.

    The answer holds the `library`'s name and the `seconds` that it took; or what went wrong, under one of `complaint`
    (of the compiler), `lost` (the compiler was killed), `late` (no time was left) and `absent` (no compiler)."""
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
    except (OSError, ValueError, RecursionError) as error:  # a strange request may cause these
        return {"complaint": f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]}
    return {"library": library.name, "seconds": time.perf_counter() - start}


def _command(request: ExtensionRequest, toolchain: Toolchain, path: Path, *, thin: bool, half: bool) -> list[str]:
    """The compiler and its flags for one file: those of torch, except for the headers."""
    common = [f"-DTORCH_EXTENSION_NAME={request.module}", "-DTORCH_API_INCLUDE_EXTENSION_H", toolchain.standard]
    cuda = path.suffix in _CUDA
    if thin:
        headers = ["-isystem", str(HEADERS), *([] if toolchain.capability else ["-DWARPSMITH_CPU"])]
        headers += ["-DWARPSMITH_HALF", "-isystem", cpp_extension.include_paths()[0]] if half else []
    else:
        headers = torch_includes()
    if not cuda and toolchain.cuda_home:
        headers += ["-isystem", str(toolchain.cuda_home / "include")]
    if not cuda:
        # An extension for a GPU runs on another machine than it is built on.
        flags = [flag for flag in request.cflags if not (toolchain.capability and _NATIVE.fullmatch(flag))]
        return [*shlex.split(toolchain.cxx), *common, "-fPIC", f"-fmax-errors={_MOST_ERRORS}", *headers, *flags]
    if not toolchain.nvcc:
        raise NoCompiler("nvcc: not found; CUDA sources need the CUDA toolkit")
    number = toolchain.capability.replace(".", "")
    chosen = any("arch" in flag for flag in request.cuda_cflags)  # torch then leaves the target to the program, too
    target = [f"-gencode=arch=compute_{number},code=sm_{number}"] if number and not chosen else []
    host = ["--compiler-options", "-fPIC"]
    if os.environ.get("CC") and not any("ccbin" in flag for flag in request.cuda_cflags):
        host += ["-ccbin", os.environ["CC"]]
    return [toolchain.nvcc, *common, *headers, *cpp_extension.COMMON_NVCC_FLAGS, *host, *target, *request.cuda_cflags]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def _run_all(commands: list[list[str]], deadline: float) -> None:
    """Runs commands at the same time. Raises CompileError for the first that failed, once all have ended; CompilerLost;
    and TimeoutError at the deadline."""
    plain: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    environment = {**os.environ, "LC_ALL": "C"}  # for complaints in ASCII
    running = [subprocess.Popen(command, env=environment, **plain) for command in commands]
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
