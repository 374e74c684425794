"""The programs of `benchmarks/build.py`: real ones with the extensions they ask for, and small edited extensions."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.published import Program, load_programs
from configs.schema import LimitsConfig
from evaluators.compile.attempt import BuildAttempt
from evaluators.compile.builder import Builder
from evaluators.compile.hints import needs_build
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


class _Recorder(BuildAttempt):
    """An attempt that records what the candidate asks for, and builds nothing."""

    def __init__(self, builder: Builder, program: Program) -> None:
        super().__init__(builder.place, program.task, program.candidate)
        self.requests: list[ExtensionRequest] = []

    def answer(self, request: ExtensionRequest, *, load: bool = False) -> dict[str, Any]:
        self.requests.append(request)
        return {}


def asked_for(programs: Path | None, arch: str, store: Path, only: str = "") -> list[Asked]:
    """The requests of our bundled programs, then of the published ones, if their names contain `only`."""
    builder, asked = Builder(arch, store, LIMITS), []
    try:
        for program in [*_shipped(), *(load_programs(programs) if programs else [])]:
            if not needs_build(program.candidate.source) or "cpp_extension" not in program.candidate.source:
                continue
            name = f"{program.candidate.author} {program.task.id}"
            if only not in name:
                continue
            recorder = _Recorder(builder, program)
            with contextlib.suppress(RunnerFailure):  # it needs what it asked for to go on, or has other faults
                recorder.discover()
            asked.append(Asked(name, program, tuple(recorder.requests)))
    finally:
        builder.close()
    return asked


def _shipped() -> list[Program]:
    """The programs that stand beside the bundled tasks."""
    folder = Path(__file__).resolve().parents[1] / "evaluators/tasks/bundled"
    tasks = {task.id: task for task in load_tasks("bundled")}
    shipped = []
    for path in sorted(folder.glob("*/*/variants/*.py")):
        task = tasks[f"{path.parts[-4]}/{path.parts[-3]}"]
        shipped.append(Program(task, Candidate.propose(task.id, path.read_text(), f"shipped {path.stem}")))
    return shipped


def edited(count: int, seed: int) -> list[tuple[ExtensionRequest, int]]:
    """Small extensions, each an edit of the one before in source or flags, and the number that its function returns."""
    generator = random.Random(seed)
    state = {"added": 1, "times": 2, "defined": 3, "level": 1, "header": 4, "comment": 0}
    jobs = []
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
        jobs.append((request, (state["added"] + state["defined"]) * state["times"] + state["header"]))
    return jobs
