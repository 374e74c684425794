"""What a run's driver and engines do with every response, timed: to find the program in it, to name and to compare it.

Seconds are those of the processor, the least of three if the first is long: a collection of garbage may fall into it.
Each reader gets a text that no other has read, while in a run they share its tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from benchmarks.texts_families import HostileText
from evaluators.compile.hints import needs_build
from evaluators.guard.cases import HackCases
from evaluators.guard.copies import is_copy
from evaluators.guard.rendition import rendition
from evaluators.records import Candidate
from evaluators.tasks import find_task, program_source
from prompts.parse import end_of_program, parse_response

_LONG = 0.1
_CASES = HackCases(Path("no-cases-but-the-gauntlet.parquet"))
_OF_EVERY_SAMPLE = "of every response"

READERS: dict[str, tuple[Callable[[str, str], object], str]] = {
    "the program in a response": (lambda source, task: parse_response(_response(source)), _OF_EVERY_SAMPLE),
    "the program in a text without headings": (lambda source, task: parse_response(source), _OF_EVERY_SAMPLE),
    "where a response may end": (lambda source, task: end_of_program(_response(source)), _OF_EVERY_SAMPLE),
    "its digest": (lambda source, task: Candidate.propose(task, source, ""), _OF_EVERY_SAMPLE),
    "whether it is the reference": (lambda source, task: is_copy(source, _reference(task)), _OF_EVERY_SAMPLE),
    "whether it compiles anything": (lambda source, task: needs_build(source), _OF_EVERY_SAMPLE),
    "its likeness to known hacks": (lambda source, task: _CASES.nearest(source, (), _reference(task)), "of suspects"),
    "what a reward checker sees": (lambda source, task: rendition(source), "of suspects"),
}
"""By what they find: a function of a source and its task's id, and which programs it reads in a run."""


def reading_seconds(text: HostileText) -> dict[str, float]:
    """Seconds that each reader takes for a text."""
    return {name: _least(name, read, text) for name, (read, _) in READERS.items()}


def warm_up() -> None:
    """Lets each reader read our own programs, once for a process."""
    for read, _ in READERS.values():
        read("class ModelNew: pass", "level1/softmax")


@cache
def _reference(task: str) -> str:
    return program_source(find_task(task))


def _response(source: str) -> str:
    return f"## Performance Analysis\n\nIt is faster.\n\n## Code Implementation\n\n```python\n{source}\n```\n"


def _least(name: str, read: Callable[[str, str], object], text: HostileText) -> float:
    """The seconds of one call, each on a text that no reader remembers."""
    seconds = []
    for trial in range(3):
        source = f"{text.source}\n# {name} {trial}\n"
        start = time.process_time()
        read(source, text.task)
        seconds.append(time.process_time() - start)
        if seconds[-1] < _LONG:
            break
    return min(seconds)
