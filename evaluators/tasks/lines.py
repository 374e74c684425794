"""Reads tasks from JSON Lines: CUDA-L1's files, and those with sizes by device and programs to learn from.

Reads and checks text only. No part of a task is executed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evaluators.records import Task
from evaluators.tasks.records import TaskError, Variant, checked


def load_lines(path: Path, profile: str) -> list[Task]:
    """The tasks of a file, at the sizes of a device profile if a line has `profiles`. Raises TaskError, which names the
    line."""
    tasks = []
    for number, row in numbered_rows(path):
        place = f"{path}:{number}"
        try:
            level, index, source = int(row["level_id"]), int(row["task_id"]), str(row["ref_code"])
        except (ValueError, KeyError, TypeError) as error:
            raise TaskError(f"{place}: expected level_id, task_id and ref_code ({error!r})") from error
        name = str(row.get("name") or f"{level}-{index}")
        sizes = _sizes(row.get("profiles"), profile, place)
        task = Task(f"level{level}/{index}", level, name, source, _tags(row.get("tags"), place), sizes)
        tasks.append(checked(task, place))
    return tasks


def load_line_variants(path: Path) -> dict[str, list[Variant]]:
    """The programs that come with the tasks of a file, by task id. Raises TaskError, which names the line."""
    found: dict[str, list[Variant]] = {}
    for number, row in numbered_rows(path):
        try:
            task_id = f"level{int(row['level_id'])}/{int(row['task_id'])}"
            found[task_id] = [_variant(task_id, each) for each in row.get("variants") or ()]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"a variant needs name, source, analysis and design, all texts ({error!r})"
            raise TaskError(f"{path}:{number}: {message}") from error
    return found


def numbered_rows(path: Path, expected: str = "level_id, task_id and ref_code") -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a JSON Lines file that are not empty, with their numbers from 1. Raises TaskError, which names the
    line; `expected`: what one ought to hold."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # splitlines() also splits inside JSON strings
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read ({error})") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise TaskError(f"{path}:{number}: expected {expected} ({error!r})") from error
        yield number, row


def _sizes(profiles: Any, profile: str, place: str) -> Mapping[str, Any]:
    """The sizes of a profile; none for a line without profiles, or if the profile is `source`."""
    if profiles is None or profile == "source":
        return {}
    if not isinstance(profiles, dict) or not all(isinstance(sizes, dict) for sizes in profiles.values()):
        raise TaskError(f"{place}: profiles must be an object of sizes by profile")
    if profile not in profiles:
        raise TaskError(f"{place}: no profile `{profile}`, only {sorted(profiles)}")
    sizes = profiles[profile]
    if not all(isinstance(value, int | float | str) for value in sizes.values()):
        raise TaskError(f"{place}: a size of profile `{profile}` is neither a number nor a text")
    return dict(sizes)


def _tags(tags: Any, place: str) -> tuple[str, ...]:
    if tags is None:
        return ()
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise TaskError(f"{place}: tags must be a list of texts")
    return tuple(tags)


def _variant(task_id: str, row: Mapping[str, Any]) -> Variant:
    texts = {key: row[key] for key in ("name", "source", "analysis", "design")}
    profiles = row.get("profiles") or []
    if not all(isinstance(text, str) for text in (*texts.values(), *profiles)):
        raise TypeError("not a text")
    expect, rule = str(row.get("expect", "faster")), str(row.get("rule", ""))
    return Variant(task_id, expect=expect, profiles=tuple(profiles), rule=rule, **texts)
