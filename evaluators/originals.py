"""In a runner: the functions by which programs are measured, as they were before any program came.

What it reports is a claim of an untrusted process, which a program that has replaced this, too, can forge; the verdict
does not rest on it. It tells the plain cheat by name.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

# By the module in which they stand, if it is imported, and the class within it.
_FUNCTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("time", "", ("time", "perf_counter", "perf_counter_ns", "monotonic", "process_time", "time_ns")),
    ("torch", "", ("allclose", "isclose", "equal", "manual_seed", "rand", "randn", "randint", "no_grad")),
    ("torch.testing", "", ("assert_close",)),
    ("torch", "Tensor", ("copy_", "equal", "allclose", "clone", "data_ptr", "__eq__", "isnan")),
    ("torch", "Generator", ("manual_seed",)),
    ("torch.cuda", "", ("synchronize", "current_stream", "Event", "Stream", "manual_seed")),
    ("torch.cuda", "Event", ("record", "elapsed_time", "synchronize", "query", "wait")),
    ("torch.cuda", "Stream", ("synchronize", "wait_stream", "wait_event", "query")),
    ("numpy", "", ("allclose", "array_equal")),
    ("math", "", ("isclose",)),
    ("json", "", ("dumps", "loads")),
    ("socket", "socket", ("sendall", "recv_into", "recv", "send")),
)
_PROGRAMS = ("kind", "model")  # what a runner holds of its program
_MISSING = object()


class Originals:
    """A picture of those functions, and of the runner's own modules, classes and objects."""

    def __init__(self, objects: Iterable[object]) -> None:
        """`objects` are the runner's own; their classes and modules count, too."""
        self._objects = tuple(objects)
        self._before = dict(self._picture())

    def replaced(self) -> list[str]:
        """The names that stand for something else now, sorted."""
        now = dict(self._picture())
        changed = {name for name, value in self._before.items() if now.get(name, _MISSING) is not value}
        added = {name for name in now if name not in self._before and name.startswith("the runner's own")}
        return sorted(changed | added)

    def _picture(self) -> Iterator[tuple[str, object]]:
        for place, kind_name, names in _FUNCTIONS:
            owner: Any = sys.modules.get(place, _MISSING)
            if kind_name:
                owner = getattr(owner, kind_name, _MISSING)
            if owner is not _MISSING:
                label = f"{place}.{kind_name}" if kind_name else place
                for name in names:
                    yield f"{label}.{name}", inspect.getattr_static(owner, name, _MISSING)
        for one in self._objects:
            kind = type(one)
            module = sys.modules.get(kind.__module__)
            yield from _callables(f"the runner's {kind.__name__}", vars(kind))
            yield from _callables(f"the runner's own {kind.__name__}", vars(one))
            if isinstance(module, ModuleType):
                yield from _callables(f"the runner's module {module.__name__}", vars(module))


def _callables(label: str, names: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The functions and classes of a namespace."""
    for name, value in list(names.items()):
        if name not in _PROGRAMS and (callable(value) or isinstance(value, staticmethod | classmethod | property)):
            yield f"{label}.{name}", value
