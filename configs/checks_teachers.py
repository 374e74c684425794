"""Checks of the teachers of a run. Looks at values only, a part of `configs.checks`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from configs.addresses import HTTP
from configs.frozen import asks_teachers
from configs.schema import RunConfig

_VARIABLE = re.compile(r"[A-Za-z_]\w*")

Violations = Iterator[tuple[tuple[str, ...], str]]


def teacher_violations(config: RunConfig) -> Violations:
    """Faults of `sft.teachers` and `sft.endpoints`: the keys concerned, and a sentence with value and remedy."""
    phases = config.schedule.phases
    if "sft" in phases and "collect" in phases:
        yield (
            ("schedule.phases",),
            "schedule.phases must not have both sft and collect, since sft asks the teachers itself: leave collect out",
        )
    if not asks_teachers(config):
        return
    teachers, named = config.sft.teachers, config.sft.endpoints
    if not teachers:
        phase = "sft" if "sft" in phases else "collect"
        yield ("sft.teachers",), f"sft.teachers must not be empty while schedule.phases has {phase}: try [bundled]"
    endpoints = [teacher for teacher in teachers if teacher.startswith(HTTP)]
    if endpoints and not config.sft.teacher_model:
        yield (
            ("sft.teacher_model", "sft.teachers"),
            f"sft.teacher_model must name the model to ask of {endpoints[0]}, got ''",
        )
    for name in filter(named.__contains__, teachers):
        key, teacher = f"sft.endpoints.{name}", named[name]
        if name == "bundled":
            yield (key,), f"{key} must have another name, since sft.teachers means the programs of the tasks by it"
        if not teacher.url.startswith(HTTP):
            yield (f"{key}.url", key), f"{key}.url must be an http(s) address, got {teacher.url!r}"
        if not teacher.model:
            yield (f"{key}.model", key), f"{key}.model must name the model to ask {teacher.url} for, got ''"
        if not _VARIABLE.fullmatch(teacher.key):  # it may be the key itself, which nobody wants to read again
            yield (
                (f"{key}.key", key),
                f"{key}.key must be the name of the environment variable that has the key, such as OPENAI_API_KEY",
            )
