"""What a runner asks for between a request and its reply costs it time, unless it is new."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from evaluators.failures import RunnerFailure
from evaluators.host.exchange import Exchange
from evaluators.shared.protocol import Channel, PeerClosed, ProtocolViolation
from tests.evaluators.host.test_claims import EXTENSION

BUILD_SECONDS, REPLY = 0.3, {"done": True}


def asked(*requests: Any) -> float:
    """The seconds that a call took by the judge's clock whose runner asked for these extensions, one after the other.
    Each answer takes `BUILD_SECONDS`."""
    judges, runners = socket.socketpair()
    runner = Channel(runners)

    def run() -> None:
        runner.receive(30.0)
        for request in requests:
            runner.send({"extension": request})
            runner.receive(30.0)
        runner.send(REPLY)

    def build(_: Any) -> dict[str, Any]:
        time.sleep(BUILD_SECONDS)
        return {"library": "/a"}

    def nothing(*_: Any) -> float:
        return 0.0

    process = SimpleNamespace(
        channel=Channel(judges, trusted=False), resume=nothing, stop=nothing, halt=nothing, check_quota=nothing
    )
    exchange, thread = Exchange(process, build), threading.Thread(target=run, daemon=True)  # type: ignore[arg-type]
    thread.start()
    assert exchange.ask({"op": "call"}, 20.0, decode=lambda reply: reply) == REPLY
    thread.join(30.0)
    for end in (judges, runners):
        end.close()
    return exchange.seconds


def test_an_extension_that_is_asked_for_first_costs_no_time_and_later_its_answer_does() -> None:
    other = {**EXTENSION, "name": "other"}
    assert asked(EXTENSION) < BUILD_SECONDS
    assert asked(EXTENSION, other) < BUILD_SECONDS
    assert asked(EXTENSION, EXTENSION, other, EXTENSION) >= 2 * BUILD_SECONDS


def test_a_message_of_very_many_parts_is_refused_before_it_is_read() -> None:
    channel, began = Channel(socket.socketpair()[0], trusted=False), time.perf_counter()
    with pytest.raises(ProtocolViolation, match="parts"):
        channel.parse(b'{"extension":[' + b"[]," * 1_390_000 + b"0]}")
    assert time.perf_counter() - began < 2.0


@pytest.mark.parametrize(
    ("share", "takes", "answers"),
    [(0.0, 3.0, False), (0.2, 3.0, False), (0.9, 1.5, True), (0.9, 9.0, False)],
    ids=["hangs", "runs", "kept from running", "kept from running for ever"],
)
def test_a_program_that_other_load_keeps_from_running_may_take_longer(
    share: float, takes: float, answers: bool
) -> None:
    """But not without end. `share`: of its time for which it waits for a core. `takes`: how long until it answers."""
    judges, runners = socket.socketpair()
    runner, begun, end = Channel(runners), time.perf_counter(), threading.Event()

    def run() -> None:
        runner.receive(30.0)
        end.wait(takes)
        with suppress(PeerClosed, OSError):
            runner.send(REPLY)

    def nothing(*_: Any) -> float:
        return 0.0

    process = SimpleNamespace(
        channel=Channel(judges, trusted=False), resume=nothing, stop=nothing, halt=nothing, check_quota=nothing,
        waited_seconds=lambda: share * (time.perf_counter() - begun),
    )  # fmt: skip
    exchange, thread = Exchange(process, None), threading.Thread(target=run, daemon=True)  # type: ignore[arg-type]
    thread.start()
    if answers:
        assert exchange.ask({"op": "call"}, 0.5, decode=lambda reply: reply) == REPLY
    else:
        with pytest.raises(RunnerFailure, match=r"no answer within 0\.5 s"):
            exchange.ask({"op": "call"}, 0.5, decode=lambda reply: reply)
        assert time.perf_counter() - begun < min(takes, 8.0)
    end.set()
    thread.join(30.0)
    for one in (judges, runners):
        one.close()
