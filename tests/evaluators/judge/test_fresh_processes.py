"""Behind a verdict its processes end and those of the next judgement start: nothing waits for that but the next one."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from pathlib import Path

import pytest

from evaluators.evaluator import Evaluator
from evaluators.failures import InfraError
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.device import Slot
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.runner_process import RunnerProcess
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.judge.fresh_processes import FreshProcesses
from evaluators.records import Artifact, Outcome
from tests.evaluators.judge.ahead import FAILS, is_there, judged, opened, settle
from tests.evaluators.sources import TWICE, WEIGHT, model


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


@pytest.mark.slow
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


def test_a_program_that_fails_has_its_processes_ended_at_once(ahead, forks, monkeypatch) -> None:
    released = threading.Event()
    begin = FreshProcesses._begin_ahead
    monkeypatch.setattr(FreshProcesses, "_begin_ahead", lambda *asked: (released.wait(30.0), begin(*asked)))
    assert judged(ahead, FAILS) is Outcome.RUNTIME_ERROR
    assert len(forks) == 2
    assert not any(is_there(process) for _, process in forks)
    released.set()


def test_the_next_processes_start_behind_the_verdict_on_a_program_that_fails_too(ahead, forks) -> None:
    assert judged(ahead, FAILS) is Outcome.RUNTIME_ERROR
    settle(ahead)
    assert len(forks) == 4
    assert all(is_there(process) for _, process in forks[2:])
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    assert len(forks) == 6


def test_nothing_is_started_behind_a_judgement_that_came_to_no_end(ahead, forks, monkeypatch) -> None:
    def broken(self):
        raise InfraError("the device does not answer")

    monkeypatch.setattr(CpuDevice, "check_health", broken)
    ahead.device.own_memory = True
    assert judged(ahead, FAILS) is Outcome.INFRA
    settle(ahead)
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


@pytest.mark.slow
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
    with opened(limits) as made:
        assert judged(made) is Outcome.OK
        settle(made)
        assert len(forks) == 4
    deadline = time.monotonic() + 10.0
    while any(is_there(process) for _, process in forks) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(is_there(process) for _, process in forks)


def an_artifact(evaluator: Evaluator, name: str) -> Artifact:
    """An artifact without extensions, as a builder leaves it."""
    artifacts = evaluator.builder.artifacts
    artifact = Artifact(name, "caches", str(artifacts.place(name)), "cpu", store=artifacts.identity)
    Path(artifact.path).mkdir()
    artifacts.write_record(artifact, {"error": None, "seconds": 0.0, "extensions": {}, "final": True})
    return artifact


def writes(where: str) -> str:
    """A right program that writes a file when it is constructed."""
    return model("return 2 * torch.tanh(x[0] @ self.w)", f"{WEIGHT}; {where}", "ModelNew")


INTO_ITS_OWN = "import os; open(os.environ['TRITON_CACHE_DIR'] + '/seen', 'w').close()"


def test_a_process_that_was_started_ahead_gets_the_artifact_of_its_program(ahead, forks) -> None:
    first, second = an_artifact(ahead, "first"), an_artifact(ahead, "second")
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    elsewhere = INTO_ITS_OWN.replace("os.environ['TRITON_CACHE_DIR']", repr(second.path))
    for artifact, source, outcome in (
        (first, writes(INTO_ITS_OWN), Outcome.OK),
        (first, writes(elsewhere), Outcome.RUNTIME_ERROR),
        (second, writes(INTO_ITS_OWN), Outcome.OK),
    ):
        count = len(forks)
        verdict = ahead.evaluate(TWICE, source, artifact=artifact, again=True)
        assert verdict.outcome is outcome, verdict.message
        settle(ahead)
        assert [name for name, _ in forks[count:] if name == threading.current_thread().name] == []
        if outcome is not Outcome.OK:
            assert "Read-only file system" in verdict.message
            assert judged(ahead) is Outcome.OK
            settle(ahead)
    assert (Path(first.path) / "triton/seen").exists()
    assert (Path(second.path) / "triton/seen").exists()
    assert not (Path(second.path) / "seen").exists()


@pytest.mark.slow
@pytest.mark.parametrize("why", ["no mounts", "another store", "prepared since"])
def test_a_program_gets_a_process_of_its_own_where_none_can_be_lent_its_artifact(
    ahead, forks, monkeypatch, tmp_path, why
) -> None:
    artifact = an_artifact(ahead, "first")
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    count = len(forks)
    if why == "no mounts":
        request = ZygoteHandle.request
        monkeypatch.setattr(
            ZygoteHandle,
            "request",
            lambda self, message, *rest, **options: (
                {"lent": False} if message["op"] == "lend" else request(self, message, *rest, **options)
            ),
        )
    elif why == "another store":
        monkeypatch.setattr(ahead._slot._processes, "_artifacts", tmp_path)
        assert judged(ahead) is Outcome.OK  # the next pair cannot be lent what lies elsewhere
        settle(ahead)
        count = len(forks)
    else:
        ahead._slot._processes._zygote.preparations += 1
    assert ahead.evaluate(TWICE, writes(INTO_ITS_OWN), artifact=artifact, again=True).outcome is Outcome.OK
    settle(ahead)
    own = [name for name, _ in forks[count:] if name == threading.current_thread().name]
    assert len(own) == (2 if why == "prepared since" else 1)
    assert (Path(artifact.path) / "triton/seen").exists()


def test_processes_start_on_all_cores_of_the_slot_and_run_on_those_that_are_measured(ahead, monkeypatch) -> None:
    seen, fork = [], ZygoteHandle.request
    monkeypatch.setattr(
        ZygoteHandle,
        "request",
        lambda self, message, *rest, **options: (
            seen.append(message["containment"]["cores"] if message["op"] == "fork" else None),
            fork(self, message, *rest, **options),
        )[1],
    )
    measured, other = sorted(os.sched_getaffinity(0))[:2]
    slot = Slot(0, (measured,), (other,))
    monkeypatch.setattr(CpuDevice, "acquire", lambda self, timeout: slot)
    monkeypatch.setattr(CpuDevice, "release", lambda self: None)
    assert judged(ahead) is Outcome.OK
    settle(ahead)
    assert [tuple(cores) for cores in seen if cores is not None] == [(measured, other)] * 4
    for runner in ahead._slot._processes._ahead:
        for thread in os.listdir(f"/proc/{runner.process.pid}/task"):
            assert os.sched_getaffinity(int(thread)) == {measured}
