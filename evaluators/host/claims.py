"""A runner's claims, decoded into typed and bounded values.

Runs in the judge's process (trusted). All that comes from a runner is data of an untrusted process: nothing in here may
believe its type, its length or its size, and nothing but ProtocolViolation may leave a decoder.
"""

from __future__ import annotations

import contextlib
import math
import re
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from evaluators.shared import nesting
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.kernel_record import KernelRecord
from evaluators.shared.protocol import ProtocolViolation

_MOST_TENSORS = 100_000  # of a model's state
_MOST_ELEMENTS = 1 << 48  # of a tensor
_MOST_KERNELS = 10_000  # of a trace; an honest runner sends at most 5000
_MOST_NAMES = 1000  # of replaced functions that are kept
_NAME_CHARACTERS = 100  # of a replaced function's name, or of a flag's name or value, that are kept
_ERROR_KIND_CHARACTERS, _ERROR_CHARACTERS = 100, 10_000
_BURST = b"\x01"  # no JSON begins with it
_FILE_NAME = re.compile(r"(?!\.)[\w.+-]{1,100}(/(?!\.)[\w.+-]{1,100}){0,8}")

_T = TypeVar("_T")
Seconds = Annotated[float, Meta(ge=0, le=1e6)]  # NaN is no such number
Size = Annotated[int, Meta(ge=0, lt=_MOST_ELEMENTS)]
Shape = Annotated[list[Size], Meta(max_length=64)]
_Stream = Annotated[int, Meta(ge=0, lt=1 << 32)]
_Files = Annotated[list[tuple[str, str]], Meta(max_length=200)]
_CompilerFlags = Annotated[list[Annotated[str, Meta(max_length=10_000)]], Meta(max_length=200)]


class StateForm(NamedTuple):
    """Name, dtype and shape of one tensor of a model's state."""

    name: str
    dtype: str
    shape: Shape


class _Constructed(msgspec.Struct):
    state: Annotated[list[StateForm], Meta(max_length=_MOST_TENSORS)]
    flags: dict[str, str]


class _Called(msgspec.Struct):
    seconds: list[Seconds] = []
    # Not typed further: kinds of values are an open set, and the description is only ever put into words.
    mismatch: dict[str, Any] | None = None


class _CalledGated(msgspec.Struct):
    places: Annotated[list[int], Meta(max_length=_MOST_TENSORS)] = []
    mismatch: dict[str, Any] | None = None


class _Integrity(msgspec.Struct):
    names: list[str]
    flags: dict[str, str]


class _Traced(msgspec.Struct):
    kernels: Annotated[list[Any], Meta(max_length=_MOST_KERNELS)] | None


class _Started(msgspec.Struct):
    active: list[str]


class _Kernel(NamedTuple):
    name: str
    stream: _Stream
    start: Seconds
    end: Seconds


class _Error(msgspec.Struct):
    error: str
    message: str = ""


class _Compiled(msgspec.Struct):
    library: str | None = None
    seconds: Seconds | None = None
    complaint: str | None = None
    lost: str | None = None
    late: str | None = None
    absent: str | None = None


class _Extension(msgspec.Struct):
    name: Annotated[str, Meta(pattern=r"\A\w{1,200}\Z")]
    sources: Annotated[_Files, Meta(min_length=1)]
    headers: _Files = []
    cflags: _CompilerFlags = []
    cuda_cflags: _CompilerFlags = []
    ldflags: _CompilerFlags = []
    python: bool = True


def ignore(reply: dict[str, Any]) -> None:
    """Decodes a reply that only says that the request is done: nothing in it is used."""


def decode_containment(reply: dict[str, Any]) -> tuple[str, ...]:
    """The names of the active containment. A runner sends them before any line of the program has run."""
    return tuple(_convert(reply, _Started, "an answer to a start").active)


def decode_error(reply: dict[str, Any]) -> tuple[str, str] | None:
    """Kind and message of the exception that ended the request, cut to bounded lengths; None if the reply has none."""
    if "error" not in reply:
        return None
    claim = _convert(reply, _Error, "an error")
    return claim.error[:_ERROR_KIND_CHARACTERS], claim.message[:_ERROR_CHARACTERS]


def decode_state(reply: dict[str, Any]) -> tuple[list[StateForm], dict[str, str]]:
    """The forms of the tensors in a model's state, and the global numeric flags as its constructor left them."""
    claim = _convert(reply, _Constructed, "a description of a state")
    if not all(map(_is_plain, claim.state)):
        raise ProtocolViolation("its state holds a tensor that no state holds")
    return claim.state, _cut(claim.flags)


class Called(NamedTuple):
    """A burst, as claimed: the seconds of each call, where its outputs lie (`evaluators.host.outputs`), and the form of
    an output that has another form than expected; with such a form the others are empty."""

    seconds: list[float]
    places: list[list[int]]
    mismatch: nesting.Spec | None = None


def burst_request(seeds: Sequence[int], first: int) -> bytes:
    """The request for one call a seed, from the slot `first` on, for `evaluators/shared/bursts.cpp`."""
    return _BURST + struct.pack(f"<{1 + len(seeds)}Q", first, *seeds)


def is_burst(body: bytes) -> bool:
    """Whether a message is the answer to such a request, by its mark."""
    return body[:1] == _BURST


def decode_burst(body: bytes, calls: int, outputs: int) -> Called:
    """The claims in the answer to a request for `calls` calls, each with `outputs` tensors."""
    layout = struct.Struct(f"<{calls}d{calls * outputs}q")
    if len(body) != 1 + layout.size:
        raise ProtocolViolation(f"{len(body)} bytes for {calls} calls")
    values = layout.unpack_from(body, 1)
    places = [list(values[start : start + outputs]) for start in range(calls, len(values), outputs or 1)]
    return Called(_convert(list(values[:calls]), list[Seconds], "durations"), places or [[]] * calls)


def decode_mismatch(reply: dict[str, Any]) -> Called:
    """The claim of a burst that ended with an output of another form."""
    claim = _convert(reply, _Called, "an answer to a call")
    if claim.mismatch is None:
        raise ProtocolViolation("neither a burst nor another form of an output")
    return Called([], [], claim.mismatch)


def decode_form(reply: dict[str, Any]) -> dict[str, Any] | None:
    """The claimed form of an output that has another form than the expected one; None if it has that."""
    return _convert(reply, _Called, "an answer to a call without values").mismatch


def decode_call(reply: dict[str, Any], calls: int) -> Called:
    """The claims about a burst of `calls` calls whose outputs the runner has copied."""
    claim = _convert(reply, _Called, "an answer to a call")
    if claim.mismatch is not None:
        return Called([], [], claim.mismatch)
    if len(claim.seconds) != calls:
        raise ProtocolViolation(f"{len(claim.seconds)} durations of {calls} calls")
    return Called(claim.seconds, [])


def decode_gated(reply: dict[str, Any]) -> Called:
    """The claims about a call behind a gate."""
    claim = _convert(reply, _CalledGated, "an answer to a call")
    return Called([], [claim.places], claim.mismatch)


def decode_trace(reply: dict[str, Any]) -> list[KernelRecord] | None:
    """The kernels of a traced call; None without a tracer.

    An invalid record is left out, and the others stay: CUPTI gives some kernels of honest programs no times.
    """
    kernels = _convert(reply, _Traced, "a trace").kernels
    if kernels is None:
        return None
    records: list[KernelRecord] = []
    for kernel in kernels:
        with contextlib.suppress(ProtocolViolation):
            record = _convert(kernel, _Kernel, "a kernel")
            if record.start <= record.end:
                records.append((record.name, record.stream, record.start, record.end))
    return records


def decode_integrity(reply: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The names of the functions that the program has replaced, and the global numeric flags as its last call left
    them. Long names and lists are cut, not refused: an honest runner may have many names to report."""
    claim = _convert(reply, _Integrity, "a report of replaced functions")
    return tuple(name[:_NAME_CHARACTERS] for name in claim.names[:_MOST_NAMES]), _cut(claim.flags)


def decode_compilation(reply: dict[str, Any]) -> dict[str, Any]:
    """The answer of `evaluators.runner.compiling.compile_as_asked`: a `library` and its `seconds`, or one of
    `complaint`, `lost`, `late` and `absent`."""
    claim = _convert(reply, _Compiled, "an answer of the compilers")
    answer = {name: value for name, value in msgspec.structs.asdict(claim).items() if value is not None}
    if set(answer) != {"library", "seconds"} and (len(answer) != 1 or set(answer) & {"library", "seconds"}):
        raise ProtocolViolation("neither a library nor one reason why there is none")
    return answer


def decode_extension(value: Any) -> ExtensionRequest:
    """The extension that a candidate asks for. Raises ProtocolViolation for a request that cannot be built, with words
    that the candidate's author may read."""
    claim = _convert(value, _Extension, "a request for an extension")
    for name, text in (*claim.sources, *claim.headers):
        if not _FILE_NAME.fullmatch(name):
            raise ProtocolViolation(f"{name[:100]!r} is no name for a file of an extension")
        if not _is_text(text):
            raise ProtocolViolation(f"file {name} of an extension holds a null byte or half a surrogate pair")
    if not all(map(_is_text, (*claim.cflags, *claim.cuda_cflags, *claim.ldflags))):
        raise ProtocolViolation("a flag of an extension holds a null byte or half a surrogate pair")
    names = sorted(name for name, _ in (*claim.sources, *claim.headers))
    if any(after == name or after.startswith(f"{name}/") for name, after in pairwise(names)):
        raise ProtocolViolation("two files of an extension have the same name")
    return ExtensionRequest.from_json(msgspec.structs.asdict(claim))


def _convert(value: Any, kind: type[_T], described: str) -> _T:
    """`value` as a `kind`, converted strictly: a bool is no number, a float is no int. Unknown fields are left out."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except ValueError as problem:  # msgspec's own errors, and UnicodeEncodeError for half a surrogate pair in a key
        raise ProtocolViolation(f"not {described}: {problem}") from problem


def _is_plain(form: StateForm) -> bool:
    """Whether a tensor of this form can be copied as it is, and memory can hold it."""
    return form.dtype in nesting.PLAIN_DTYPES and math.prod(max(size, 1) for size in form.shape) < _MOST_ELEMENTS


def _is_text(text: str) -> bool:
    """Whether a file or an argument can hold the text."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _cut(flags: dict[str, str]) -> dict[str, str]:
    return {name[:_NAME_CHARACTERS]: value[:_NAME_CHARACTERS] for name, value in flags.items()}
