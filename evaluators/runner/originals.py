"""Remembers the functions by which programs are measured as they were before any program came, to tell which of them a
program has replaced.

Runs in the candidate's process (untrusted): a program that replaces this module, too, can forge the report. No verdict
may rest on the report alone. It names the plain cheat.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from evaluators.runner.fingerprints import Fingerprint, builtins_of

# By module, if it is imported, and by class in that module.
_FUNCTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("time", "", ("time", "perf_counter", "perf_counter_ns", "monotonic", "process_time", "time_ns")),
    ("torch", "", ("allclose", "isclose", "equal", "manual_seed", "rand", "randn", "randint", "no_grad")),
    ("torch.testing", "", ("assert_close",)),
    ("torch", "Tensor", ("copy_", "equal", "allclose", "clone", "data_ptr", "__eq__", "isnan")),
    ("torch", "Generator", ("manual_seed",)),
    ("torch.cuda", "", ("synchronize", "current_stream", "Event", "Stream", "manual_seed")),
    ("torch.cuda", "Event", ("record", "elapsed_time", "synchronize", "query", "wait")),
    ("torch._C", "_CudaEventBase", ("record", "elapsed_time", "synchronize", "query", "wait")),
    ("torch._C", "_CudaStreamBase", ("synchronize", "query")),
    ("torch.cuda", "Stream", ("synchronize", "wait_stream", "wait_event", "query")),
    ("numpy", "", ("allclose", "array_equal")),
    ("math", "", ("isclose",)),
    ("json", "", ("dumps", "loads")),
    ("json", "JSONEncoder", ("encode", "iterencode", "__init__")),
    ("json", "JSONDecoder", ("decode", "raw_decode")),
    ("socket", "socket", ("sendall", "recv_into", "recv", "send")),
)
_PROGRAMS = ("kind", "model")  # attributes in which a runner holds its program
_OWN = "the runner's"
_ROOT = __name__.partition(".")[0]
_MISSING = object()
_CALLABLE = (staticmethod, classmethod, property)


class Originals:
    """Fingerprints of those functions, and of the runner's own modules, classes and objects."""

    def __init__(self, objects: Iterable[object]) -> None:
        """`objects`: the runner's own, whose classes and modules are watched, too."""
        self._objects = (*objects, self)
        self._before = {name: Fingerprint(value) for name, value in self._picture()}

    def replaced(self) -> list[str]:
        """The sorted names of functions that were replaced, or changed inside, since this was made."""
        now = {name: Fingerprint(value) for name, value in self._picture()}
        added = {name for name in now if name not in self._before and name.startswith(_OWN)}
        missing = Fingerprint(_MISSING)
        return sorted(
            added | {name for name, before in self._before.items() if not before.matches(now.get(name, missing))}
        )

    def _picture(self) -> Iterator[tuple[str, object]]:
        for place, kind_name, names in _FUNCTIONS:
            owner: Any = sys.modules.get(place, _MISSING)
            if kind_name:
                owner = getattr(owner, kind_name, _MISSING)
            if owner is not _MISSING:
                label = f"{place}.{kind_name}" if kind_name else place
                for name in names:
                    yield f"{label}.{name}", inspect.getattr_static(owner, name, _MISSING)
        modules: dict[str, ModuleType] = {}
        for value in self._objects:
            kind = type(value)
            yield f"{_OWN} {kind.__name__}", kind.__mro__
            yield from _callables(f"{_OWN} {kind.__name__}", vars(kind))
            yield from _callables(f"{_OWN} own {kind.__name__}", vars(value))
            yield from _with_builtins(vars(kind))
            modules.update(_own_modules(kind.__module__))
        for name, module in modules.items():
            values = {key: value for key, value in list(vars(module).items()) if not key.startswith("__")}
            yield from ((f"{_OWN} module {name}.{key}", value) for key, value in values.items())
            yield from _with_builtins(values)
            for kind in values.values():
                if isinstance(kind, type) and kind.__module__ in modules:
                    yield from _callables(f"{_OWN} {kind.__name__}", vars(kind))


def _own_modules(name: str) -> Iterator[tuple[str, ModuleType]]:
    """The module, and the modules of this package from which it has imported a name."""
    module = sys.modules.get(name)
    if isinstance(module, ModuleType):
        yield name, module
        for value in list(vars(module).values()):
            place = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(place, str) and place.partition(".")[0] == _ROOT and place in sys.modules:
                yield place, sys.modules[place]


def _with_builtins(values: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in builtins_of(values, vars(builtins)):
        yield f"builtins.{name}", value


def _callables(label: str, names: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The functions and classes of a namespace, also in tuples and dictionaries."""
    for name, value in list(names.items()):
        if name not in _PROGRAMS and _holds_callables(value):
            yield f"{label}.{name}", value


def _holds_callables(value: Any, depth: int = 2) -> bool:
    if type(value) in (tuple, dict) and depth:
        inner = value.values() if type(value) is dict else value
        return any(_holds_callables(item, depth - 1) for item in inner)
    return callable(value) or isinstance(value, _CALLABLE)
