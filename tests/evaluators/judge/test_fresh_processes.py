"""Behind a verdict its processes end and those of the next judgement start: nothing waits for that but the next one."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.failures import InfraError
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.runner_process import RunnerProcess
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.records import Outcome
from tests.evaluators.sources import TWICE, model, reference_of

HONEST = reference_of(TWICE)
FAILS = model("raise ValueError('here')", name="ModelNew")


@pytest.fixture
def ahead(limits: LimitsConfig) -> Iterator[Evaluator]:
    """An evaluator whose device starts processes ahead, as a GPU does."""
    with Evaluator(arch="cpu", limits=limits) as made:
        made.device.starts_ahead = True
        made.start()
        yield made


@pytest.fixture
def forks(monkeypatch) -> list[tuple[str, int]]:
    """The thread and the process of every fork, in their order."""
    seen, request = [], ZygoteHandle.request

    def noted(self, message, *arguments, **options):
        reply = request(self, message, *arguments, **options)
        if message["op"] == "fork":
            seen.append((threading.current_thread().name, int(reply["pid"])))
        return reply

    monkeypatch.setattr(ZygoteHandle, "request", noted)
    return seen


def judged(evaluator: Evaluator, source: str = HONEST) -> Outcome:
    return evaluator.evaluate(TWICE, source, again=True).outcome


def settle(evaluator: Evaluator) -> None:
    evaluator._slot._processes.wait()


def is_there(process: int) -> bool:
    return os.path.isdir(f"/proc/{process}")


def test_the_next_judgement_uses_the_processes_that_were_started_behind_the_last_verdict(ahead, forks) -> None:
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    (first, _), (second, _), (third, reference), (fourth, candidate) = forks
    assert first == second == threading.current_thread().name
    assert third == fourth != first
    assert is_there(reference)
    assert is_there(candidate)
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    assert len(forks) == 6  # two for the first, and two behind each
    assert not is_there(reference)
    assert not is_there(candidate)


def test_a_verdict_does_not_wait_and_the_slot_is_locked_until_all_is_done(ahead, monkeypatch) -> None:
    may_end, end = threading.Event(), RunnerHandle.end
    monkeypatch.setattr(RunnerHandle, "end", lambda self: (may_end.wait(30.0), end(self))[1])
    others = [CpuDevice() for _ in ahead.device.slots()]
    assert judged(ahead) is Outcome.OK
    try:
        for other in others[1:]:
            other.acquire(60.0)
        with pytest.raises(TimeoutError):
            others[0].acquire(0.1)
        may_end.set()
        settle(ahead)
        others[0].acquire(60.0)
    finally:
        may_end.set()
        for other in others:
            other.release()


@pytest.mark.parametrize("stays", [True, False])
def test_the_next_pair_is_forked_when_nothing_of_the_last_one_can_be_left(ahead, monkeypatch, stays) -> None:
    monkeypatch.setattr(RunnerProcess, "stays_together", property(lambda self: stays))
    order, end, fork = [], RunnerHandle.end, ZygoteHandle.request

    def ended(self):
        process = self.process.pid
        end(self)
        order.append(("ended", is_there(process)))

    def requested(self, message, *arguments, **options):
        if message["op"] == "fork":
            order.append(("forked", True))
        return fork(self, message, *arguments, **options)

    monkeypatch.setattr(RunnerHandle, "end", ended)
    monkeypatch.setattr(ZygoteHandle, "request", requested)
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    forked, ended = [("forked", True)] * 2, [("ended", False)] * 2
    assert order == forked + (forked + ended if stays else ended + forked)


def test_what_is_left_of_a_program_is_told_before_anything_else_is_measured(ahead, monkeypatch) -> None:
    assert judged(ahead) is Outcome.OK
    settle(ahead)

    def left(self):
        raise InfraError("2 processes of the program could not be ended")

    with monkeypatch.context() as patched:
        patched.setattr(RunnerHandle, "end", left)
        assert judged(ahead) is Outcome.OK
        with pytest.raises(InfraError, match="could not be ended"):
            settle(ahead)
    assert judged(ahead) is Outcome.OK


def test_a_program_that_fails_has_its_processes_ended_at_once(ahead, forks) -> None:
    assert judged(ahead, FAILS) is Outcome.RUNTIME_ERROR
    assert len(forks) == 2
    assert not any(is_there(process) for _, process in forks)


def test_a_process_that_ended_while_it_waited_is_not_used(ahead, forks) -> None:
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    os.kill(forks[-1][1], signal.SIGKILL)
    select.select([os.pidfd_open(forks[-1][1])], [], [], 10.0)
    asked, evaluate = [], ahead._judging.judge
    ahead._judging.judge = lambda *arguments, **options: (asked.append(1), evaluate(*arguments, **options))[1]
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    assert len(asked) == 1, "no second attempt"
    assert len(forks) == 2 + 2 + 2 + 2


def test_processes_of_a_zygote_that_died_are_not_used(ahead, forks) -> None:
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    zygote = ahead._slot._processes._zygote
    os.kill(zygote._process.pid, signal.SIGKILL)
    zygote._process.wait()
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    assert len(forks) == 2 + 2 + 2 + 2


def test_a_failure_to_start_ahead_is_no_failure_of_a_judgement(ahead, monkeypatch) -> None:
    def fails(self, timeout):
        raise InfraError("the runner did not start")

    started = RunnerHandle.end_start
    monkeypatch.setattr(
        RunnerHandle,
        "end_start",
        lambda self, timeout: (started if threading.current_thread() is threading.main_thread() else fails)(
            self, timeout
        ),
    )
    assert [judged(ahead), judged(ahead)] == [Outcome.OK] * 2


def test_closing_ends_what_was_started_ahead(limits, forks) -> None:
    with Evaluator(arch="cpu", limits=limits) as made:
        made.device.starts_ahead = True
        assert judged(made) is Outcome.OK
        settle(made)
        assert len(forks) == 4
    deadline = time.monotonic() + 10.0
    while any(is_there(process) for _, process in forks) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(is_there(process) for _, process in forks)
