"""What `benchmarks/build.py` compiles: extensions that real programs ask for, and small edited ones."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.published import Program, load_programs
from configs.schema import LimitsConfig
from evaluators.compile.builder import Builder, needs_build
from evaluators.failures import RunnerFailure
from evaluators.records import Candidate
from evaluators.shared.extension import ExtensionRequest
from evaluators.tasks import load_tasks

LIMITS = LimitsConfig(build_seconds=300.0, start_seconds=60.0, memory_gib=8.0)


@dataclass(frozen=True)
class Asked:
    """A program and the extensions that it asks for when it is imported, constructed and called."""

    name: str
    program: Program
    requests: tuple[ExtensionRequest, ...]


class _Recorder(Builder):
    """Notes what a candidate asks for, and builds nothing."""

    def __init__(self, arch: str, store: Path) -> None:
        super().__init__(arch, store, LIMITS)
        self.requests: list[ExtensionRequest] = []

    def _answer(self, request: ExtensionRequest, extensions: dict[str, str], *, load: bool = False) -> dict[str, Any]:
        self.requests.append(request)
        return {}


def asked_for(programs: Path | None, arch: str, store: Path, only: str = "") -> list[Asked]:
    """What the published programs and those that we ship ask for, in order, if their names have `only` in them."""
    recorder, found = _Recorder(arch, store), []
    try:
        for program in [*_shipped(), *(load_programs(programs) if programs else [])]:
            if not needs_build(program.candidate.source) or "cpp_extension" not in program.candidate.source:
                continue
            name = f"{program.candidate.author} {program.task.id}"
            if only not in name:
                continue
            recorder.requests = []
            with contextlib.suppress(
                RunnerFailure
            ):  # without what it asked for it cannot go on, or it has other faults
                recorder._discover(program.task, program.candidate, {})
            found.append(Asked(name, program, tuple(recorder.requests)))
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
