"""What log lines say besides their messages, with `logging.format: json`: run, phase, step, role and candidate.

Lines are JSON objects in Ray's form (`ray.LoggingConfig`), from the driver and from all actors. With `text` nothing
here changes anything. Every actor's process imports this module.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ray

    from configs.schema import RunConfig

Field = str | int
Fields = Mapping[str, Field]

_VARIABLE = "WARPSMITH_LOG"
_OWN = ("actors", "cluster", "configs", "evaluators", "learners", "orchestration", "prompts")
_FIELDS: ContextVar[Fields] = ContextVar("log_fields", default=MappingProxyType({}))


class _Tag(logging.Filter):
    """Adds the fields of the process and those of the call that logs. Lets every line pass."""

    def __init__(self, of_process: Fields) -> None:
        super().__init__()
        self.of_process = of_process

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in {**self.of_process, **_FIELDS.get()}.items():
            record.__dict__.setdefault(name, value)
        return True


@contextmanager
def log_fields(**fields: Field) -> Iterator[None]:
    """Within this block, lines of this thread (or of this asynchronous task) have these fields, too."""
    token = _FIELDS.set({**_FIELDS.get(), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def put_log_fields(**fields: Field) -> None:
    """From here on, lines of this thread have these fields, too."""
    _FIELDS.set({**_FIELDS.get(), **fields})


def current_fields() -> Fields:
    """The fields of this thread, for a request to an actor that works on the same."""
    return dict(_FIELDS.get())


@dataclass(frozen=True)
class JsonLogs:
    """A run that logs JSON. `level`: the lowest of Warpsmith's own lines."""

    level: str
    run: str

    @classmethod
    def of(cls, config: RunConfig) -> JsonLogs | None:
        """None if the run logs text."""
        return cls(config.logging.level, config.name) if config.logging.format == "json" else None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variable by which actors know of it."""
        return {_VARIABLE: json.dumps({"level": self.level, "run": self.run})}

    @property
    def form(self) -> ray.LoggingConfig:
        """The form of lines, for `ray.init`: of warnings, until a process is tagged."""
        import ray

        return ray.LoggingConfig(encoding="JSON", log_level="WARNING", additional_log_standard_attrs=["name"])

    def begin(self) -> None:
        """Makes the driver log JSON on standard error, in place of what it has logged there so far.

        To be called again after `ray.init`, which adds a handler of its own.
        """
        root = logging.getLogger()
        for handler in _handlers(root):
            root.removeHandler(handler)
        self.form._apply()  # for the lines before `ray.init`, which calls it, too (Ray 2.60)
        self.tag(role="driver")

    def tag(self, **of_process: Field) -> None:
        """Adds the run and these fields to all lines of this process, and lets our own begin at `level`."""
        for handler in _handlers(logging.getLogger()):
            for earlier in [one for one in handler.filters if isinstance(one, _Tag)]:
                handler.removeFilter(earlier)
            handler.addFilter(_Tag({"run": self.run, **of_process}))
            handler.setLevel(self.level.upper())
        for package in _OWN:
            logging.getLogger(package).setLevel(self.level.upper())


def name_role(role: str, **fields: Field) -> None:
    """Adds the run, the role and these fields to all lines of an actor's process, if the run logs JSON."""
    told = os.environ.get(_VARIABLE)
    if told:
        JsonLogs(**json.loads(told)).tag(role=role, **fields)


def _handlers(root: logging.Logger) -> list[logging.Handler]:
    """Those of `logging.basicConfig` and of Ray; no subclass, which somebody else has put there."""
    return [one for one in root.handlers if type(one) is logging.StreamHandler]
