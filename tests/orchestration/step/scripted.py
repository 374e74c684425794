"""Stand-ins for rollout engines, builders and evaluators: actors that answer from a script."""

import asyncio
import errno
import os
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from actors.generation import Completion
from configs.schema import GuardConfig
from evaluators.guard.cases import HackCases
from evaluators.records import BuildError, Candidate, Estimate, Outcome, Verdict
from evaluators.tasks import find_task, program_source
from evaluators.tasks.loader import load_variants
from orchestration.step.gathering import Gathering
from orchestration.step.records import Prompt
from orchestration.step.review import Reviewer

SOFTMAX, GELU, TRIANGULAR = (
    find_task(f"level1/{name}", "cpu") for name in ("softmax", "gelu_tanh", "triangular_matmul")
)
PROGRAMS = {variant.name: variant.source for variant in load_variants(SOFTMAX.id)}
RIGHT, WRONG = PROGRAMS["log_softmax"], PROGRAMS["wrong_axis"]


def reviewer(folder: Path) -> Reviewer:
    references = {task.id: program_source(task) for task in (SOFTMAX, GELU, TRIANGULAR)}
    return Reviewer(GuardConfig(), HackCases(folder / "hacks.parquet"), references)


def fenced(source: str) -> str:
    return f"## Code Implementation\n```python\n{source}\n```\n"


NEVER = "never"
Script = dict[str, list[str] | None]


def engine_class() -> Any:
    """A local class, which Ray sends by value."""
    never = NEVER

    @ray.remote(num_cpus=0)
    class Engine:
        """Answers a request for a group's i-th response with the script's i-th text for the group.

        If the script has no texts for the group, the actor dies. The text `NEVER` never comes.
        """

        def __init__(self, script: Script, broken: bool = False) -> None:
            if broken:
                raise ValueError("no such model")
            self.script = script

        def ping(self) -> str:
            return "pong"

        async def apply(self, func: Callable[..., Any], *arguments: Any) -> Any:
            return await func(self, *arguments)

        async def generate(self, request: Any) -> list[Completion]:
            group, _, index = request.key.partition("/")[2].rpartition("#")
            texts = self.script[group]
            if texts is None:
                os._exit(1)
            if texts[int(index)] == never:
                await asyncio.sleep(600)
            text = texts[int(index)].replace("STOPS", str(request.stop_after_code))
            return [Completion(text, (5, 6), (-0.1, -0.2), "stop", 3)]

    return Engine


def builder_class() -> Any:
    """Likewise."""

    @ray.remote(num_cpus=0)
    class Builder:
        """Says after `seconds` that a program does not compile. If it `fails`, the first build raises an error."""

        def __init__(self, fails: bool = False, seconds: float = 0.0) -> None:
            self.asked, self.seconds = int(not fails), seconds

        def ping(self) -> str:
            return "pong"

        def apply(self, func: Callable[..., Any], *arguments: Any) -> Any:
            return func(self, *arguments)

        def prepare(self, request: Any) -> BuildError:
            self.asked += 1
            if self.asked == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            time.sleep(self.seconds)
            return BuildError("compile", "no such function")

    return Builder


def evaluator_class() -> Any:
    """Likewise."""
    task_id, never = SOFTMAX.id, NEVER

    @ray.remote(num_cpus=0)
    class Evaluator:
        """Measures a program's i-th time with the script's i-th speed-up for the program, by digest.

        A speed-up is the point and the half width of its interval. In its place may stand an outcome, also as a pair
        with its message, the text `NEVER`, which never ends, or an error, which is raised. The last entry stands for
        all further times.
        """

        def __init__(self, script: dict[str, list[Any]]) -> None:
            self.script = script
            self.asked: list[tuple[str, bool]] = []

        def ping(self) -> str:
            return "pong"

        def apply(self, func: Callable[..., Any], *arguments: Any) -> Any:
            return func(self, *arguments)

        def requests(self) -> list[tuple[str, bool]]:
            return self.asked

        def evaluate(self, request: Any) -> Verdict:
            digest = request.candidate.digest
            number = len([one for one, _ in self.asked if one == digest])
            number = max(number, int(request.again))  # another evaluator may have made the first measurement
            self.asked.append((digest, request.again))
            entry = self.script[digest][min(number, len(self.script[digest]) - 1)]
            if entry == never:
                time.sleep(600)
            if isinstance(entry, Exception):
                raise entry
            made = Verdict(
                digest, task_id, "cpu", Outcome.OK, evaluator={"preset": request.preset}, cost={"total": 1.0}
            )
            if isinstance(entry, Outcome):
                return replace(made, outcome=entry)
            if isinstance(entry[0], Outcome):
                return replace(made, outcome=entry[0], message=entry[1])
            value, half = entry
            return replace(made, speedups={"eager": Estimate(value, value - half, value + half, 9)})

    return Evaluator


Engine, Builder, Evaluator = engine_class(), builder_class(), evaluator_class()


class Pool:
    """Stands in for a pool of actors, and answers at once: tens of thousands of requests to actors take minutes."""

    pending = 0

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.requests: list[Any] = []
        self._answer, self._answers = answer, list[tuple[Any, Any]]()

    def submit(self, request: Any, method: str, *, priority: int = 0) -> None:
        self.requests.append(request)
        self._answers.append((request, self._answer(request)))

    def withdraw_keys(self, keys: Collection[Any], *, queued_only: bool) -> list[Any]:
        taken = [request for request, _ in self._answers if request.key in keys]
        self._answers = [pair for pair in self._answers if pair[0].key not in keys]
        return taken

    def poll(self, timeout: float) -> list[tuple[Any, Any]]:
        answers, self._answers = self._answers, []
        return answers


def program(name: str) -> str:
    """A program for a scripted evaluator, which compiles nothing."""
    return f"{WRONG}\nNAME = {name!r}"


def digest_of_program(name: str) -> str:
    return Candidate.propose(SOFTMAX.id, program(name), "").digest


def compiling(number: int) -> str:
    """A program that needs a builder."""
    return f"import torch\nModelNew = torch.compile(torch.nn.Softmax)\nX = {number}"


SHARED: Script = {
    "right": [fenced(RIGHT), "Nothing."],
    "nothing": ["Nothing."] * 4,
    "first": [fenced(compiling(number)) for number in range(4)],
    "second": [fenced(compiling(number)) for number in range(4, 8)],
    "third": [fenced(compiling(number)) for number in range(8, 12)],
    "late": [NEVER, fenced(compiling(20)), fenced(compiling(21)), "Nothing."],
    "again": [fenced(compiling(20)), fenced(compiling(21))],
    "never": [NEVER] * 4,
    "fails": [fenced(f"{RIGHT}\nassert False, {n}") for n in range(4)],
    **{f"plain{group}": [fenced(f"{WRONG}\nX = {4 * group + n}") for n in range(4)] for group in range(2)},
}


def asked(*groups: str, samples: int = 4, **options: Any) -> Gathering:
    prompts = [
        Prompt(group if "/" in group else SOFTMAX.id, group, f"prompt of {group}", (1, 2, 3)) for group in groups
    ]
    return Gathering(prompts, samples=samples, temperature=1.0, preset="fast", **options)
