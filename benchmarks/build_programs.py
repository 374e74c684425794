"""What `benchmarks/build.py` compiles: extensions that real programs ask for, kernels alone, and small edited ones."""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.published import Program, load_programs
from configs.schema import LimitsConfig
from evaluators.build.builder import Builder, needs_build
from evaluators.build.compiler import CompileError, Toolchain, compile_extension
from evaluators.build.extension import ExtensionRequest
from evaluators.failures import RunnerFailure
from evaluators.records import Candidate
from evaluators.tasks import load_tasks

LIMITS = LimitsConfig(build_seconds=300.0, start_seconds=60.0, memory_gib=8.0)
_KERNEL = re.compile(r"(template\s*<[^{};]*>\s*)?(__global__|__device__)[^;{}]*\{")
_PREFIX = "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n#include <cfloat>\n#include <cmath>\n#include <cstdint>\n"
# torch's own way, timed without its import: what `load` takes until the library is written.
_TORCHS = """
import json, os, sys, time
from torch.utils import cpp_extension
request, folder = json.loads(sys.argv[1]), sys.argv[2]
for name, text in request["sources"] + request["headers"]:
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(text)
cpp_extension._import_module_from_library = lambda *_: None
start = time.perf_counter()
try:
    cpp_extension.load("extension", [os.path.join(folder, name) for name, _ in request["sources"]],
        extra_cflags=request["cflags"], extra_cuda_cflags=request["cuda_cflags"], extra_ldflags=request["ldflags"],
        extra_include_paths=[folder], build_directory=folder)
    error = ""
except Exception as failure:
    error = str(failure)
print("\\n" + json.dumps({"seconds": time.perf_counter() - start, "linked": not error,
    "compiled": all(os.path.exists(os.path.join(folder, name)) for name in
        [("main.o" if source == "main.cpp" else os.path.splitext(source)[0] + (".cuda.o" if source.endswith(".cu")
        else ".o")) for source, _ in request["sources"]])}))
"""


@dataclass(frozen=True)
class Asked:
    """A program and the extensions that it asks for when it is imported and constructed."""

    program: str
    requests: tuple[ExtensionRequest, ...]


class _Recorder(Builder):
    """Notes what a candidate asks for, and builds nothing."""

    def __init__(self, arch: str, store: Path) -> None:
        super().__init__(arch, store, LIMITS)
        self.requests: list[ExtensionRequest] = []

    def _answer(self, request: ExtensionRequest, extensions: dict[str, str], *, load: bool = False) -> dict[str, Any]:
        self.requests.append(request)
        return {}


def asked_for(programs: Path | None, arch: str, store: Path) -> list[Asked]:
    """What the published programs and those that we ship ask for, in order."""
    recorder, found = _Recorder(arch, store), []
    try:
        for program in [*_shipped(), *(load_programs(programs) if programs else [])]:
            if not needs_build(program.candidate.source) or "cpp_extension" not in program.candidate.source:
                continue
            recorder.requests = []
            with contextlib.suppress(
                RunnerFailure
            ):  # without what it asked for it cannot go on, or it has other faults
                recorder._discover(program.task, program.candidate, {})
            found.append(Asked(program.candidate.author + " " + program.task.id, tuple(recorder.requests)))
    finally:
        recorder.close()
    return found


def _shipped() -> list[Program]:
    """The bundled tasks' own inline programs."""
    folder = Path(__file__).resolve().parents[1] / "evaluators/tasks/bundled"
    tasks = {task.id: task for task in load_tasks("bundled")}
    found = []
    for path in sorted(folder.glob("*/*/variants/*.py")):
        task = tasks[f"{path.parts[-4]}/{path.parts[-3]}"]
        found.append(Program(task, Candidate.propose(task.id, path.read_text(), f"shipped {path.stem}")))
    return found


def torch_seconds(request: ExtensionRequest, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Seconds that `torch.utils.cpp_extension.load` takes, and whether everything compiled and was linked."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", _TORCHS, json.dumps(request.to_json()), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def floor_seconds(request: ExtensionRequest, toolchain: Toolchain, folder: Path) -> float | None:
    """Seconds to compile the kernels alone, without any header of torch's; None where they need one."""
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
    found, until = [], 0
    for match in _KERNEL.finditer(text):
        if match.start() < until:
            continue
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        found.append(text[match.start() : end])
        until = end
    return "\n".join(found)


def edited(count: int, seed: int) -> list[tuple[ExtensionRequest, int]]:
    """Small extensions, each an edit of the one before in source or flags, and the number that its function gives."""
    generator = random.Random(seed)
    state = {"added": 1, "times": 2, "defined": 3, "level": 1, "header": 4, "comment": 0}
    found = []
    for _ in range(count):
        name = generator.choice(list(state))
        state[name] = generator.randrange(4) if name == "level" else generator.randrange(1000)
        source = f'#include "part.h"\n// {state["comment"]}\nextern "C" int value() {{ return ({state["added"]} + '
        source += f"DEFINED) * {state['times']} + PART; }}\n"
        request = ExtensionRequest(
            "edited",
            (("main.cpp", source),),
            (f"-DDEFINED={state['defined']}", f"-O{state['level']}"),
            headers=(("part.h", f"#define PART {state['header']}\n"),),
            python=False,
        )
        found.append((request, (state["added"] + state["defined"]) * state["times"] + state["header"]))
    return found
