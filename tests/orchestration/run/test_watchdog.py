"""A run in which nothing moves says what every role waits for, and ends, whatever its main thread does."""

# ruff: noqa: PT012 - an interrupt comes between two statements

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.pool import ActorPool
from orchestration.run import watchdog
from orchestration.run.interrupt import Interruptible
from orchestration.run.watchdog import END_SECONDS, STALLED, Stalled, Watchdog
from tests.actors.workers import Worker, process_of


class Run:
    """A run that moves when a test says so, on a clock that tests tell, and what its watchdog did."""

    def __init__(self, seconds: float) -> None:
        self.now, self.moves = 1000.0, 0
        self.done: list[Any] = []
        self.watchdog = Watchdog(
            seconds,
            lambda: self.moves,
            lambda: ["rollout: actor 0 has it"],
            clock=lambda: self.now,
            interrupt=lambda: self.done.append("interrupted"),
            end=self.done.append,
        )

    def spend(self, seconds: int, *, moves: bool = False) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.moves += moves
            self.watchdog.look()


def test_a_run_that_moves_is_left_alone_and_one_that_does_not_says_so_and_ends(caplog) -> None:
    run = Run(60.0)
    run.spend(200, moves=True)
    run.spend(59)
    run.spend(1, moves=True)
    run.spend(59)
    assert run.done == []
    run.spend(1)
    assert run.done == ["interrupted"]
    assert "nothing has moved for 1 minutes (stall_minutes); what waits for what:" in caplog.text
    assert "rollout: actor 0 has it" in caplog.text
    assert "driver: its main thread is in " in caplog.text
    run.spend(int(END_SECONDS) - 1, moves=True)
    assert run.done == ["interrupted"], "it is given the time to end"
    run.spend(1)
    assert run.done == ["interrupted", STALLED]


def test_the_time_for_which_the_process_itself_was_stopped_does_not_count() -> None:
    run = Run(60.0)
    run.spend(1)
    run.now += 3600.0
    run.spend(40)
    assert run.done == []
    run.spend(11)
    assert run.done == ["interrupted"]


def test_zero_minutes_are_no_bound() -> None:
    with Run(0.0).watchdog as dog:
        assert not dog._thread.is_alive()


def test_a_role_that_cannot_be_described_does_not_keep_the_run_from_ending(caplog) -> None:
    run = Run(2.0)
    run.watchdog._describe = lambda: [1 / 0]  # type: ignore[list-item]
    run.spend(3)
    assert run.done == ["interrupted"]
    assert "a role cannot be described: ZeroDivisionError" in caplog.text


def test_the_end_of_the_block_raises_what_happened_and_leaves_other_errors_alone() -> None:
    run = Run(1.0)
    run.spend(2)
    with pytest.raises(Stalled, match="nothing has moved"), run.watchdog:
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="another"), Run(1.0).watchdog:
        raise ValueError("another")
    with pytest.raises(KeyboardInterrupt), Run(1.0).watchdog:
        raise KeyboardInterrupt


@pytest.fixture
def pool(local_ray: None) -> Iterator[ActorPool]:
    """One actor, whose items may take far longer than this test."""
    pool = ActorPool("evaluator", lambda _: Worker.remote(), 1, timeout=3600.0)
    pool.wait_ready(60)
    yield pool
    pool.stop()


def test_a_stopped_actor_stalls_the_run_and_the_state_of_its_pool_is_told(
    pool: ActorPool, caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LOOKS_EVERY", 0.1)
    process = process_of(pool)
    os.kill(process, signal.SIGSTOP)
    started = time.monotonic()
    try:
        with pytest.raises(Stalled), Interruptible(), Watchdog(1.0, lambda: pool.moves, lambda: [pool.describe()]):
            pool.submit("item", "work")
            pool.poll(600.0)
    finally:
        os.kill(process, signal.SIGCONT)
    assert 1.0 <= time.monotonic() - started < 30
    assert "1 item(s), of which 0 wait; work is with actor 0 for" in caplog.text
    assert "driver: its main thread is in" in caplog.text
    assert "poll" in caplog.text


_BLOCKED = """
import ctypes, sys
from orchestration.run import watchdog
from orchestration.run.interrupt import Interruptible

watchdog.LOOKS_EVERY, watchdog.END_SECONDS = 0.05, 0.3
with Interruptible(), watchdog.Watchdog(0.3, lambda: 0, lambda: ["rollout: waits"]):
    print("begins", flush=True)
    mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)  # no signal ends this call
"""


def test_a_main_thread_that_no_interrupt_reaches_is_ended_with_its_own_code() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (STALLED, "begins\n"), done.stderr
    assert "rollout: waits" in done.stderr
    assert "is ended at once" in done.stderr
