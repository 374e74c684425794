"""What a runner asks for between a request and its reply costs it time, unless it is new."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from evaluators.failures import RunnerFailure
from evaluators.host.exchange import Exchange
from evaluators.shared.protocol import Channel, PeerClosed, ProtocolViolation
from tests.evaluators.host.test_claims import EXTENSION

BUILD_SECONDS, REPLY = 0.3, {"done": True}


@contextmanager
def talking(
    run: Callable[[Channel], None],
    build: Callable[[Any], dict[str, Any]] | None = None,
    waited: Callable[[], float] = lambda: 0.0,
    ran: Callable[[], float] = lambda: 0.0,
) -> Iterator[Exchange]:
    """An exchange with a runner that does this. `waited`, `ran`: its seconds as the kernel counts them."""
    judges, runners = socket.socketpair()

    def nothing(*_: Any) -> float:
        return 0.0

    process = SimpleNamespace(
        channel=Channel(judges, trusted=False), resume=nothing, stop=nothing, halt=nothing, check_quota=nothing,
        waited_seconds=waited, cpu_seconds=ran,
    )  # fmt: skip
    thread = threading.Thread(target=run, args=(Channel(runners),), daemon=True)
    thread.start()
    yield Exchange(process, build)  # type: ignore[arg-type]
    thread.join(30.0)
    for end in (judges, runners):
        end.close()


def asked(*requests: Any) -> float:
    """The seconds that a call took by the judge's clock whose runner asked for these extensions, one after the other.
    Each answer takes `BUILD_SECONDS`."""

    def run(runner: Channel) -> None:
        runner.receive(30.0)
        for request in requests:
            runner.send({"extension": request})
            runner.receive(30.0)
        runner.send(REPLY)

    def build(_: Any) -> dict[str, Any]:
        time.sleep(BUILD_SECONDS)
        return {"library": "/a"}

    with talking(run, build) as exchange:
        assert exchange.ask({"op": "call"}, 20.0, decode=lambda reply: reply) == REPLY
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
    ("waits", "runs", "takes", "answers"),
    [
        pytest.param(0.0, 0.0, 3.0, False, id="hangs"),
        pytest.param(0.2, 0.8, 3.0, False, id="runs"),
        pytest.param(3.0, 1.0, 3.0, False, id="keeps itself from running"),
        pytest.param(0.9, 0.1, 1.5, True, id="is kept from running"),
        pytest.param(0.9, 0.1, 9.0, False, id="is kept from running for ever"),
    ],
)
def test_a_program_that_other_load_keeps_from_running_may_take_longer(
    waits: float, runs: float, takes: float, answers: bool
) -> None:
    """But not without end. `waits`, `runs`: seconds a second of all its threads. `takes`: how long until it answers."""
    begun, end = time.perf_counter(), threading.Event()

    def run(runner: Channel) -> None:
        runner.receive(30.0)
        end.wait(takes)
        with suppress(PeerClosed, OSError):
            runner.send(REPLY)

    def counts(rate: float) -> Callable[[], float]:
        return lambda: rate * (time.perf_counter() - begun)

    with talking(run, waited=counts(waits), ran=counts(runs)) as exchange:
        if answers:
            assert exchange.ask({"op": "call"}, 0.5, decode=lambda reply: reply) == REPLY
        else:
            with pytest.raises(RunnerFailure, match=r"no answer within 0\.5 s"):
                exchange.ask({"op": "call"}, 0.5, decode=lambda reply: reply)
            assert time.perf_counter() - begun < min(takes, 8.0)
        end.set()
