"""The third witness, beside the two clocks: the kernels that a call ran, on which streams, for how long, and which of
them the candidate brought.

CUPTI records them in the runner (`RunnerDevice.trace`). Whether a kernel is the candidate's own is decided here, from
its source and from the libraries that it compiled. A kernel of torch, cuBLAS, cuDNN or Inductor is not its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from evaluators.host.runner_handle import RunnerHandle
from evaluators.records import KernelUse, Trace
from evaluators.shared.kernel_record import MARKS, KernelRecord

_MAX_KERNELS = 200
_MOST_OF_LIBRARY = 16 << 20  # bytes that are searched for the names of kernels
_NAME_CHARACTERS = 200
_LIBRARIES = ("at::", "c10::", "cutlass::", "cub::", "thrust::", "cudnn::", "cublasLt::")


def trace_of(runner: RunnerHandle, source: str, timeout: float) -> Trace | None:
    """Records one more call of the candidate, whose `source` and `runner` are given.

    `timeout` is in seconds. None if the device or the host has no CUPTI. Raises RunnerFailure.
    """
    records = runner.trace(timeout)
    if records is None:
        return None
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    kernels = [record for record in records if record[0] not in MARKS]
    for name, stream, start, end in kernels:
        seconds[name, stream].append(end - start)
    compiled = b"".join(path.read_bytes()[:_MOST_OF_LIBRARY] for path in sorted(runner.libraries))
    uses = [
        KernelUse(_readable(name), is_own(name, source, compiled), stream, len(durations), sum(durations))
        for (name, stream), durations in seconds.items()
    ]
    total = sum(use.seconds for use in uses)
    own = sum(use.seconds for use in uses if use.own)
    uses.sort(key=lambda use: -use.seconds)
    streams = len({use.stream for use in uses})
    busy, share = busy_seconds(kernels), own / total if total else 0.0
    return Trace(tuple(uses[:_MAX_KERNELS]), busy, share, streams, outside_seconds(records, kernels))


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


def is_own(name: str, source: str, compiled: bytes = b"") -> bool:
    """Whether the kernel `name`, as the driver knows it, is defined in the candidate's source (CUDA or Triton), or in
    the libraries that it `compiled`."""
    if name.startswith("_Z") and name.encode() in compiled:
        return True
    readable = _demangled(name).removeprefix("void ").replace("(anonymous namespace)::", "")
    if readable.startswith(_LIBRARIES):  # whatever the source says of a kernel of that name
        return False
    base = re.split(r"[<(]", readable)[0].split("::")[-1].strip()
    if not base.isidentifier():
        return False
    if re.search(rf"__global__[^;{{}}]*?\b{base}\s*\(", source):
        return True
    return bool(re.search(rf"@(?:triton\.)?jit\b[^@]*?\bdef\s+{base}\s*\(", source))


def _demangled(name: str) -> str:
    demangle: Any = getattr(torch._C, "_demangle", None)
    return str(demangle(name)) if demangle and name.startswith("_Z") else name


def _readable(name: str) -> str:
    return _demangled(name)[:_NAME_CHARACTERS]
