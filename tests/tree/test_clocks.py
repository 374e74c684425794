"""Durations and deadlines are of the monotonic clock, which nobody sets; the calendar is only for what it means."""

from __future__ import annotations

import ast
from collections import Counter

from tests.tree.test_sizes import modules

_FOLDERS = ("actors/", "learners/", "orchestration/", "evaluators/host/", "evaluators/judge/")
_CALENDAR = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}
MEANT = {
    "actors/pool.py": (1, "evidence says when a worker was lost"),
    "evaluators/host/incidents.py": (1, "file times, which the kernel sets, are compared with it"),
    "evaluators/host/whole_files.py": (1, "the age of a file, by its time"),
    "evaluators/judge/slot.py": (2, "the times of incidents, which are file times"),
    "orchestration/commands/standing.py": (1, "the age of a commit of another process, by the time of its file"),
    "orchestration/fleet/heart.py": (1, "a pulse says when it was written, for other processes"),
    "orchestration/report/watching.py": (1, "the age of a pulse and of files of another process"),
    "orchestration/run/directory.py": (1, "the time of a commit"),
    "orchestration/run/spool.py": (1, "records carry the time of day for MLflow"),
    "orchestration/run/steps.py": (1, "metrics carry the time of day"),
    "orchestration/run/tracking.py": (2, "the seconds since a run began, in an earlier process perhaps"),
    "orchestration/step/endpoints.py": (1, "an answer says when it came"),
    "orchestration/step/failed_requests.py": (1, "an HTTP header names a date"),
}
"""How often a module reads the calendar, and what for. A new use that is no duration goes here, with its meaning."""


def calendar_reads(text: str) -> int:
    """How often a module's code names a function that reads the calendar."""
    tree = ast.parse(text)
    named = sum(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (node.value.id, node.attr) in _CALENDAR
        for node in ast.walk(tree)
    )
    imported = sum(
        (node.module, name.name) in _CALENDAR
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    )
    return named + imported


def test_only_what_means_the_calendar_reads_it() -> None:
    found = Counter({name: calendar_reads(text) for name, text in modules() if name.startswith(_FOLDERS)})
    assert +found == {name: number for name, (number, _) in MEANT.items()}


def test_every_way_to_read_the_calendar_is_seen() -> None:
    text = "import time\nfrom time import time_ns\nx = time.time() - 1\ny = datetime.now(UTC)\nz = time.monotonic()\n"
    assert calendar_reads(text) == 3
