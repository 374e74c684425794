"""The third witness, beside the two clocks: the kernels that a call ran, on which streams, for how long, and which of
them the candidate brought.

CUPTI records them in the runner (`evaluators.runner.tracer`), in a call that is checked like all others. Whether a
kernel is the candidate's own is decided here, from its source and from the libraries that it compiled. A kernel of
torch, cuBLAS, cuDNN or Inductor is not its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from evaluators.records import KernelUse, Trace
from evaluators.shared.kernel_record import MARKS, KernelRecord

_MAX_KERNELS = 200
_MOST_OF_LIBRARY = 16 << 20  # bytes that are searched for the names of kernels
_NAME_CHARACTERS = 200
_MOST_OF_NAME = 4096  # characters that are read
_MOST_REFERENCES = 20  # of a name to parts of itself: three of them can make it three times as long
_LIBRARIES = frozenset({"at", "c10", "cutlass", "cub", "thrust", "cudnn", "cublasLt"})
_ENDS = re.compile(r"[;{}]")
_CALLED = re.compile(r"\b([^\W\d]\w*+)\s*+\(")
_JIT = re.compile(r"(?:triton\.)?jit\b")
_DEFINED = re.compile(r"\bdef\s++([^\W\d]\w*+)\s*+\(")
_MANGLED = re.compile(rb"_Z\w++")
_START = re.compile(r"_ZZ*+L?(?P<nested>N[rVK]*+)?(?P<std>St)?L?")
_LENGTH = re.compile(r"L?([1-9][0-9]{0,3})")
_REFERENCE = re.compile(r"[ST][0-9A-Z]*+_")


def trace_of(records: Sequence[KernelRecord], source: str, libraries: Iterable[Path]) -> Trace:
    """What the records of one call tell of a program. `libraries`: the extensions that it loaded."""
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    for name, stream, start, end in (record for record in records if record[0] not in MARKS):
        seconds[name, stream].append(end - start)
    compiled = b"\0".join(path.read_bytes()[:_MOST_OF_LIBRARY] for path in sorted(libraries))
    own_kernels = OwnKernels(source, compiled)
    uses = [
        KernelUse(_readable(name), own_kernels.hold(name), stream, len(durations), sum(durations))
        for (name, stream), durations in seconds.items()
    ]
    total = sum(use.seconds for use in uses)
    own = sum(use.seconds for use in uses if use.own)
    uses.sort(key=lambda use: -use.seconds)
    streams = len({use.stream for use in uses})
    kernels = _of_call(records)
    busy, share = busy_seconds(kernels), own / total if total else 0.0
    return Trace(tuple(uses[:_MAX_KERNELS]), busy, share, streams, outside_seconds(records, kernels))


def _of_call(records: Sequence[KernelRecord]) -> list[KernelRecord]:
    """The kernels whose seconds are the call's: not those that follow its end on its own stream, where the runner
    copies outputs that lie where the judge does not read. The list of kernels has them, too."""
    ends = [record for record in records if record[0] == MARKS[1]]
    return [
        record
        for record in records
        if record[0] not in MARKS and not any(record[1] == end[1] and record[2] >= end[3] for end in ends)
    ]


def busy_seconds(records: Sequence[KernelRecord]) -> float:
    """Seconds during which at least one kernel ran."""
    busy, until = 0.0, 0.0
    for _, _, start, end in sorted(records, key=lambda record: record[2]):
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy


def outside_seconds(records: Sequence[KernelRecord], kernels: Sequence[KernelRecord]) -> float:
    """Seconds during which a kernel ran before the call's time began or after it ended.

    Such a kernel runs on a stream that does not wait for the stream by which calls are timed, or for which that stream
    does not wait. If the marks of begin and end are gone, all seconds count.
    """
    begins, ends = ([record for record in records if record[0] == mark] for mark in MARKS)
    if not begins or not ends:
        return busy_seconds(kernels)
    begin, end = max(record[3] for record in begins), min(record[2] for record in ends)
    spans = [(name, stream, at, min(until, begin)) for name, stream, at, until in kernels if at < begin]
    spans += [(name, stream, max(at, end), until) for name, stream, at, until in kernels if until > end]
    return busy_seconds(spans)


class OwnKernels:
    """The kernels that a candidate defines in its source (CUDA or Triton) or in the libraries that it compiled.

    All names in both are found once, in time in proportion to their length.
    """

    def __init__(self, source: str, compiled: bytes = b"") -> None:
        self._compiled = set(_MANGLED.findall(compiled))
        self._defined = _defined_kernels(source)

    def hold(self, name: str) -> bool:
        """Whether the kernel `name`, as the driver knows it, is one of them."""
        if name.startswith("_Z") and name.encode(errors="replace") in self._compiled:
            return True
        path = _path_of(name)
        # The kernels of libraries are theirs, whatever the source says of a kernel of that name.
        return bool(path) and not (len(path) > 1 and path[0] in _LIBRARIES) and path[-1] in self._defined


def _defined_kernels(source: str) -> set[str]:
    """The names behind `__global__` with a bracket after them, and of the functions behind `@triton.jit`."""
    names: set[str] = set()
    for declaration in source.split("__global__")[1:]:
        names.update(_CALLED.findall(_ENDS.split(declaration, maxsplit=1)[0]))
    for decorated in source.split("@"):
        if _JIT.match(decorated):
            names.update(_DEFINED.findall(decorated))
    return names


def _path_of(name: str) -> list[str]:
    """The namespaces and the name of a function, mangled or not; empty if it has none.

    It reads no further than to the template's arguments. A demangler would write them out, and a name that refers to
    itself would fill the memory.
    """
    name = name[:_MOST_OF_NAME]
    if not name.startswith("_Z"):
        readable = name.removeprefix("void ").replace("(anonymous namespace)::", "")
        path = [part.strip() for part in re.split(r"[<(]", readable, maxsplit=1)[0].split("::")]
        return path if path[-1].isidentifier() else []
    start = _START.match(name)
    assert start is not None
    path, at, is_nested = ["std"] if start["std"] else [], start.end(), bool(start["nested"])
    while length := _LENGTH.match(name, at):
        at = length.end() + int(length[1])
        path.append(name[length.end() : at])
        if not is_nested:
            break
    ends = not is_nested or name[at : at + 1] in ("I", "E")
    return [part for part in path if not part.startswith("_GLOBAL__N_")] if ends and at <= len(name) else []


def _readable(name: str) -> str:
    """The demangled name, cut; the name itself if it may be a very long one."""
    demangle: Any = getattr(torch._C, "_demangle", None)
    is_mangled = name.startswith("_Z") and len(name) <= _MOST_OF_NAME
    if demangle and is_mangled and len(_REFERENCE.findall(name)) <= _MOST_REFERENCES:
        name = str(demangle(name))
    return name[:_NAME_CHARACTERS]
