"""The times with which `benchmarks/build.py` compares the build farm: torch's own way, and the kernels alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from evaluators.compile.messages import compiler_message
from evaluators.runner.compiling import compile_extension
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.toolchain import CompileError, Toolchain

_KERNEL = re.compile(r"(template\s*<[^{};]*>\s*)?(__global__|__device__)[^;{}]*\{")
_PREFIX = "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n#include <cfloat>\n#include <cmath>\n#include <cstdint>\n"
# The time of `load` until the library is written, without importing it.
_TORCHS = """
import json, os, sys, time
from torch.utils import cpp_extension
request, folder, module = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
for name, text in request["sources"] + request["headers"]:
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(text)
cpp_extension._import_module_from_library = lambda *_: None
cpp_extension.CUDA_HOME = cpp_extension.CUDA_HOME or os.environ["CUDA_HOME"]  # which a torch without CUDA does not seek
start = time.perf_counter()
try:
    cpp_extension.load(module, [os.path.join(folder, name) for name, _ in request["sources"]],
        extra_cflags=request["cflags"], extra_cuda_cflags=request["cuda_cflags"], extra_ldflags=request["ldflags"],
        extra_include_paths=[folder], build_directory=folder)
    error = ""
except Exception as failure:
    error = str(failure)
print("\\n" + json.dumps({"seconds": time.perf_counter() - start, "error": error}))
"""
_GENERATED_HEADER = "#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n"  # c10's, which a torch without CUDA lacks
_SECONDS = 600.0


def torch_build(request: ExtensionRequest, folder: Path, toolchain: Toolchain) -> dict[str, Any]:
    """Seconds that `torch.utils.cpp_extension.load` takes, and its error (empty: none).

    A torch without CUDA lacks one generated header and two libraries. Empty ones take their place, so that the result
    is complete except for what these would bring when it is loaded."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "TORCH_CUDA_ARCH_LIST": toolchain.capability or "9.0"}
    environment["CUDA_HOME"] = str(toolchain.cuda_home or "")
    if torch.version.cuda is None:
        stand_ins = _make_stand_ins(folder / "lacking", toolchain)
        environment["CPATH"] = str(stand_ins)
        request = replace(request, ldflags=(*request.ldflags, f"-L{stand_ins}"))
    command = [sys.executable, "-c", _TORCHS, json.dumps(request.to_json()), str(folder), request.module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS)
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures | {"error": compiler_message(figures["error"])[:200]}


def _make_stand_ins(folder: Path, toolchain: Toolchain) -> Path:
    """Writes the header and the libraries that a torch without CUDA lacks; returns the folder."""
    header = folder / "c10/cuda/impl/cuda_cmake_macros.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(_GENERATED_HEADER)
    for name in ("c10_cuda", "torch_cuda"):
        command = [toolchain.cxx, "-shared", "-x", "c++", "/dev/null", "-o", str(folder / f"lib{name}.so")]
        subprocess.run(command, check=True)
    return folder


def floor_seconds(request: ExtensionRequest, toolchain: Toolchain, folder: Path) -> float | None:
    """Seconds to compile the kernels alone, without torch's headers; None if they need these, or without kernels."""
    kernels = "\n".join(_kernels(text) for name, text in request.sources if name.endswith(".cu"))
    if not kernels.strip():
        return None
    defines = "\n".join(
        line for _, text in request.sources for line in text.splitlines() if re.match(r"\s*#\s*define\b", line)
    )
    source = f"{_PREFIX}{defines}\n{kernels}\n"
    bare = ExtensionRequest("floor", (("cuda.cu", source),), cuda_cflags=request.cuda_cflags, python=False)
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    try:
        compile_extension(bare, toolchain, folder, thin=True)
    except CompileError:
        return None
    return time.perf_counter() - start


def _kernels(text: str) -> str:
    """The device functions of a source, each to its closing brace."""
    functions, until = [], 0
    for match in _KERNEL.finditer(text):
        if match.start() < until:
            continue
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        functions.append(text[match.start() : end])
        until = end
    return "\n".join(functions)
