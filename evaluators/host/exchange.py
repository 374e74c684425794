"""Requests to one runner and its replies, and what becomes of a reply that does not come.

Runs in the judge's process (trusted). Whatever goes wrong on the runner's side ends in a `RunnerFailure` with an
outcome; our own failures are `InfraError`. The runner must never run outside of a request.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from evaluators.failures import InfraError, RunnerFailure
from evaluators.host import claims
from evaluators.host.quota import OverQuota
from evaluators.host.runner_process import ProgramRuns, RunnerProcess
from evaluators.records import Outcome
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.protocol import READY, PeerClosed, PeerTimeout, ProtocolViolation

_T = TypeVar("_T")
BuildExtension = Callable[[ExtensionRequest], dict[str, Any]]
"""Answers a candidate that asks for an extension; may raise Unbuilt."""

_OF_A_RUN = re.compile("(CUDA|cuDNN) error:")
_COMPILER_WORDS = ("Error building extension", "CppCompileError", "ninja", "error: ", "compiler")
_MOST_EXTENSIONS = 64
_NO_ROOM = re.compile("No space left on device|Disk quota exceeded")
_SENT_AHEAD = 32 << 10  # bytes of a request that a socket takes while nobody reads
_MOSTLY, _MOST_LONGER = 0.5, 4.0  # the share of a time; timeouts that a program may take longer
_QUOTA_SECONDS = 0.25  # for which a program runs before what it wrote is counted again


class Exchange:
    """The requests to one runner, one at a time.

    `extensions` answers a candidate that asks for an extension; None: there are none. `seconds`: the time that the last
    request took, by the judge's clock. `libraries`: the extensions that the runner was told to load.
    """

    def __init__(self, process: RunnerProcess, extensions: BuildExtension | None) -> None:
        self._process = process
        self._channel = process.channel
        self.extensions = extensions
        self.libraries: set[Path] = set()
        self._asked: set[ExtensionRequest] = set()
        self.seconds = 0.0
        self._uncounted = 0.0  # seconds for which the program ran since what it wrote was counted

    def ask(
        self,
        message: dict[str, Any],
        timeout: float,
        descriptors: Sequence[int] = (),
        *,
        decode: Callable[[dict[str, Any]], _T],
        when_ready: Callable[[], None] | None = None,
    ) -> _T:
        """Sends one request and returns the reply as `decode` reads it (`evaluators.host.claims`). `when_ready` is done
        once the runner says that it is, if it says so before the reply. Raises RunnerFailure for whatever else
        happens."""
        is_call = message["op"] in ("call", "call_gated")
        body = self._channel.body_of(message)
        reply = self._answer(body, timeout, descriptors, is_call=is_call, when_ready=when_ready)
        return self._decoded(reply, decode, message["op"])

    def ask_burst(self, seeds: Sequence[int], first: int, timeout: float, outputs: int) -> claims.Called:
        """Has a runner with a loop in C++ make one call a seed (`evaluators/shared/bursts.cpp`), from the slot `first`
        on. `outputs`: the number of tensors that a call returns. Raises RunnerFailure."""
        reply = self._answer(claims.burst_request(seeds, first), timeout, is_call=True)
        if not claims.is_burst(reply):
            return self._decoded(reply, claims.decode_mismatch, "call")
        try:
            return claims.decode_burst(reply, len(seeds), outputs)
        except ProtocolViolation as error:
            raise RunnerFailure(Outcome.RUNTIME_ERROR, self._explain(error)) from None

    def _answer(
        self,
        body: bytes,
        timeout: float,
        descriptors: Sequence[int] = (),
        *,
        is_call: bool,
        when_ready: Callable[[], None] | None = None,
    ) -> bytes:
        """The answer to one request. Raises RunnerFailure if none comes, or if the program has written more than it
        may. After calls, which may be timed, that is not looked at each time.

        The runner runs from the request to its reply and at no other time: it cannot work ahead on inputs that it has
        not been called with, finish after it has answered, or slow the other side down. The clock runs while it does.
        """
        try:
            self._channel.expect_silence()
            if is_short := len(body) <= _SENT_AHEAD:
                self._channel.send_body(body, descriptors)
            start = time.perf_counter()
            self._process.resume()
            if not is_short:
                self._channel.send_body(body, descriptors)
            reply = self._reply(timeout, start, when_ready)
            self._uncounted += self.seconds
            if not is_call or self._uncounted > _QUOTA_SECONDS:
                self._check_quota()
            return reply
        except PeerTimeout:
            raise RunnerFailure(Outcome.TIMEOUT, f"no answer within {timeout:.1f} s") from None
        except (ProgramRuns, OverQuota) as error:
            raise RunnerFailure(Outcome.RUNTIME_ERROR, str(error)) from None
        except (PeerClosed, ProtocolViolation) as error:
            raise RunnerFailure(Outcome.RUNTIME_ERROR, self._explain(error)) from None
        finally:
            self._process.halt()

    def _decoded(self, body: bytes, decode: Callable[[dict[str, Any]], _T], operation: str) -> _T:
        """What a reply says. Raises RunnerFailure for an error that it reports, and for a reply that is none."""
        try:
            reply = self._channel.parse(body)
            if (raised := claims.decode_error(reply)) is not None:
                kind, message = raised
                self._check_quota()  # the program may have failed for that
                if _NO_ROOM.search(message):
                    message = f"{message} ({self._process.explain_no_room()})"
                raise _failure_of(kind, message, operation)
            return decode(reply)
        except OverQuota as error:
            raise RunnerFailure(Outcome.RUNTIME_ERROR, str(error)) from None
        except ProtocolViolation as error:
            raise RunnerFailure(Outcome.RUNTIME_ERROR, self._explain(error)) from None

    def begin_start(
        self, options: dict[str, Any], descriptors: Sequence[int] = (), *, loads_libraries: bool = False
    ) -> None:
        """Lets the runner take hold of the device, before any line of the program has run; `end_start` waits for it.
        Runners may start at the same time, since nothing is measured meanwhile. `loads_libraries`: those that many
        programs use, too."""
        self._process.resume()
        with contextlib.suppress(PeerClosed):  # `end_start` says why
            self._channel.send({"op": "start", "loads_libraries": loads_libraries, **options}, descriptors)

    def end_start(self, timeout: float) -> None:
        """Waits until the runner has started. Raises InfraError."""
        try:
            reply, _ = self._channel.receive(timeout)
            raised = claims.decode_error(reply)
            active = () if raised else claims.decode_containment(reply)
        except PeerTimeout as error:
            printed = self._process.last_output()
            raise InfraError(f"the runner did not start within {timeout:.0f} s: {printed}") from error
        except (PeerClosed, ProtocolViolation) as error:
            raise InfraError(f"the runner did not start: {self._explain(error)}") from error
        finally:
            self._process.halt()
        if raised:
            raise InfraError(f"the runner did not start: {raised[1]}")
        self._process.note_start(active)

    def _reply(self, timeout: float, start: float, when_ready: Callable[[], None] | None) -> bytes:
        """The reply to the request of the time `start`. Meanwhile the candidate may ask for extensions. The time of an
        answer is not counted against it if it asks for that extension for the first time; all other time is. Nothing
        else is read of what it says before it is stopped.

        Raises Unbuilt, and what the channel raises."""
        deadline = start + timeout
        for _ in range(_MOST_EXTENSIONS):
            body = self._receive(deadline, _MOST_LONGER * timeout)
            if body == READY and when_ready is not None:
                when_ready()
                when_ready = None
                continue
            end = time.perf_counter()
            start -= self._process.stop()
            self.seconds = end - start
            if claims.is_burst(body) or "extension" not in (reply := self._channel.parse(body)):
                return body
            asked = time.perf_counter()
            answer, is_new = self._build(reply["extension"])
            if is_new:
                paused = time.perf_counter() - asked
                start, deadline = start + paused, deadline + paused
            self._process.resume()
            self._channel.send(answer)
        raise ProtocolViolation(f"more than {_MOST_EXTENSIONS} extensions")

    def _receive(self, deadline: float, most_longer: float) -> bytes:
        """The next message. While none comes, what the program writes is counted again and again.

        After the deadline it is waited for as long as other load mostly keeps the program from its core, for
        `most_longer` seconds at most. What its own threads and processes take from each other does not count. Raises
        OverQuota, and what the channel raises.
        """
        latest = deadline + most_longer
        seen: _Seen | None = None
        while True:
            left = max(0.0, deadline - time.perf_counter())
            try:
                return self._channel.receive_body(min(left, _QUOTA_SECONDS))[0]
            except PeerTimeout:
                now = time.perf_counter()
                before, seen = seen, (now, self._process.waited_seconds(), self._process.cpu_seconds())
                if left <= _QUOTA_SECONDS:
                    if now >= latest or not _is_kept_waiting(before, seen):
                        raise
                    deadline = now + _QUOTA_SECONDS
                self._check_quota()

    def _check_quota(self) -> None:
        self._process.check_quota()
        self._uncounted = 0.0

    def _build(self, request: Any) -> tuple[dict[str, Any], bool]:
        """The answer to a candidate that asks for an extension, and whether it asks for that one for the first time."""
        try:
            extension = claims.decode_extension(request)
        except ProtocolViolation as error:
            return {"error": str(error)}, False
        if self.extensions is None:
            return {"error": "no extensions are built for this program"}, False
        answer = self.extensions(extension)
        is_new = len(self._asked) < _MOST_EXTENSIONS and extension not in self._asked
        if is_new:
            self._asked.add(extension)
        if "library" in answer and len(self.libraries) < _MOST_EXTENSIONS:
            self.libraries.add(Path(answer["library"]))
        return answer, is_new

    def _explain(self, error: Exception) -> str:
        """Why a runner gave no reply."""
        if isinstance(error, ProtocolViolation):
            return f"the program wrote to the judge's pipe ({error})"
        return self._process.explain_end()


_Seen = tuple[float, float, float]  # when, and what a program had waited for a core and had run by then, in seconds


def _is_kept_waiting(before: _Seen | None, after: _Seen) -> bool:
    """Whether a program wanted to run for most of the time between, and did not run for most of it."""
    if before is None:
        return False
    passed, waited, ran = (later - earlier for earlier, later in zip(before, after, strict=True))
    return waited > _MOSTLY * passed > ran


def _failure_of(kind: str, message: str, operation: str) -> RunnerFailure:
    """The failure that an exception in the runner stands for, by its kind and message."""
    if kind in ("SyntaxError", "IndentationError", "TabError"):
        return RunnerFailure(Outcome.BUILD_ERROR, message, "parse", kind)
    if kind == "NoEntry":
        return RunnerFailure(Outcome.BUILD_ERROR, message, "import", kind)
    compiles = kind in ("RuntimeError", "CppCompileError", "InductorError") and not _OF_A_RUN.search(message)
    if compiles and any(word in message for word in _COMPILER_WORDS):
        return RunnerFailure(Outcome.BUILD_ERROR, message, "compile", kind)
    return RunnerFailure(Outcome.RUNTIME_ERROR, message, operation, kind)
