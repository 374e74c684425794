"""Ctrl-C always reaches the main thread, and never breaks off what others wait for."""

# ruff: noqa: PT012 - an interrupt comes between two statements

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.run.interrupt import Interruptible, finished_first


def interrupt_after(seconds: float) -> threading.Thread:
    """Sends Ctrl-C to this process after a time."""
    timer = threading.Timer(seconds, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    return timer


def spend(seconds: float) -> None:
    """Keeps the main thread busy."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _signals_are_restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM), sys.unraisablehook
    yield
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM), sys.unraisablehook) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_an_interrupt_is_raised_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Interruptible():
        interrupt_after(0.1)
        spend(60)
    assert time.monotonic() - started < 30


def test_a_swallowed_interrupt_comes_again() -> None:
    swallowed = 0
    with pytest.raises(KeyboardInterrupt), Interruptible():
        try:
            interrupt_after(0.1)
            spend(5)
        except BaseException:  # noqa: BLE001 - as libraries do
            swallowed += 1
        spend(5)
    assert swallowed == 1


def test_an_interrupt_that_is_dropped_in_a_destructor_comes_again_and_is_not_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Slow:
        def __del__(self) -> None:
            interrupt_after(0.1)
            spend(1)

    with pytest.raises(KeyboardInterrupt), Interruptible():
        Slow()
        spend(5)
    assert capfd.readouterr().err == ""


def test_an_interrupt_that_is_swallowed_at_the_end_of_the_block_is_raised_there() -> None:
    with pytest.raises(KeyboardInterrupt), Interruptible(), contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


def test_cleaning_up_is_not_interrupted_again() -> None:
    cleaned = []
    with pytest.raises(KeyboardInterrupt), Interruptible():
        try:
            interrupt_after(0.1)
            spend(5)
        finally:
            spend(1)
            cleaned.append(True)
    assert cleaned


def test_an_import_ends_before_the_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        "import signal, time\nsignal.raise_signal(signal.SIGINT)\nfor _ in range(100):\n    time.sleep(0.01)\n"
        "done = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt), Interruptible():
        import slow_to_import  # type: ignore[import-not-found]

        spend(5)
    assert slow_to_import.done


def test_a_record_is_logged_before_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = []

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            signal.raise_signal(signal.SIGINT)
            spend(1)
            logged.append(record)

    logger = logging.getLogger("test_interrupt")
    monkeypatch.setattr(logger, "handlers", [Slow()])
    with pytest.raises(KeyboardInterrupt), Interruptible():
        logger.error("slow")
        spend(5)
    assert logged


def test_only_a_second_interrupt_breaks_off_a_function_that_is_finished_first() -> None:
    ends = []

    @finished_first
    def start(seconds: float, interrupts: int) -> None:
        for _ in range(interrupts):
            signal.raise_signal(signal.SIGINT)
        spend(seconds)
        ends.append(seconds)

    with pytest.raises(KeyboardInterrupt), Interruptible():
        start(1, 1)
        spend(5)
    assert ends == [1]
    with pytest.raises(KeyboardInterrupt), Interruptible():
        start(5, 2)
    assert ends == [1]
