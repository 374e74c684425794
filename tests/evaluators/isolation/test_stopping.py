"""A stopped program stays stopped whatever it does against it; and a process that is gone is not signalled, since its
number may be another's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from evaluators.compile.run_settings import runner_limits
from evaluators.failures import RunnerFailure
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.sandbox.process_counts import is_running
from evaluators.sandbox.zygote import Zygote

CONTINUING = """
import contextlib, os, signal, threading

def continue_group():
    while True:
        with contextlib.suppress(PermissionError):
            os.killpg(0, signal.SIGCONT)

ModelNew = threading.Thread(target=continue_group, daemon=True)
ModelNew.start()
"""


def times_running(process: int, tries: int = 40) -> int:
    """How often a process that should be stopped is found running, in so many tries."""
    time.sleep(0.05)
    found = 0
    for _ in range(tries):
        time.sleep(0.005)
        found += Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "T"
    return found


COPYING = """
import os, threading

file, buffer = os.memfd_create("copied"), bytearray(128 << 20)
os.pwrite(file, buffer, 0)

def copy():
    while True:
        os.preadv(file, [buffer], 0)

ModelNew = threading.Thread(target=copy, daemon=True)
ModelNew.start()
"""


@pytest.fixture
def runner(limits) -> Iterator[RunnerHandle]:
    device = CpuDevice()
    zygote, slot = ZygoteHandle(device), device.acquire(300.0)
    try:
        made = RunnerHandle(zygote, device, slot, 0, runner_limits(limits))
        try:
            made.begin_start()
            made.end_start(10.0)
            yield made
        finally:
            made.close()
    finally:
        zygote.close()
        device.release()


def test_a_program_that_continues_itself_without_pause_stays_stopped(runner) -> None:
    if "seccomp" not in runner.process.active:
        pytest.skip("nothing keeps a program from it here")
    runner.load(CONTINUING, "ModelNew", 10.0)
    assert times_running(runner.process.pid) == 0


def test_a_program_in_a_system_call_is_waited_for_and_its_time_counts(runner) -> None:
    runner.load(COPYING, "ModelNew", 10.0)
    late = []
    for _ in range(20):
        before = runner.process.cpu_seconds()
        runner.integrity(10.0)
        assert not is_running(runner.process.pid)
        late.append(runner.process.cpu_seconds() - before - runner.seconds)
    assert median(late) < 0.002, "the judge did not see some of its time"


def test_a_program_that_continues_itself_cannot_be_stopped_if_nothing_contains_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", CONTINUING + "ModelNew.join()"], start_new_session=True)
    try:
        deadline, found = time.monotonic() + 20.0, 0
        while not found and time.monotonic() < deadline:  # on a busy machine it runs late
            os.killpg(process.pid, signal.SIGSTOP)
            found = times_running(process.pid, tries=1)
            os.killpg(process.pid, signal.SIGCONT)
            time.sleep(0.05)
        assert found
        assert process.poll() is None, "it ended instead"
    finally:
        process.kill()
        process.wait()


class Signals:
    """The signals of the judge to process groups, and its requests to the zygote, in order."""

    def __init__(self, monkeypatch) -> None:
        self.seen: list[str] = []
        killpg, request = os.killpg, ZygoteHandle.request

        def spied(group: int, number: int) -> None:
            self.seen.append(signal.Signals(number).name)
            killpg(group, number)

        def asked(handle, message, *arguments, **keywords):
            reply = request(handle, message, *arguments, **keywords)
            self.seen.append(message["op"])
            return reply

        monkeypatch.setattr(os, "killpg", spied)
        monkeypatch.setattr(ZygoteHandle, "request", asked)


def test_no_group_is_signalled_after_its_runner_has_been_reaped(runner, monkeypatch) -> None:
    signals = Signals(monkeypatch)
    with pytest.raises(RunnerFailure, match="exit code 3"):
        runner.load("import os\nos._exit(3)\n", "ModelNew", 10.0)
    with contextlib.suppress(RunnerFailure):
        runner.integrity(1.0)
    assert runner.process.census().children == 0
    runner.close()
    assert signals.seen == ["SIGCONT", "reap"]


def test_a_runner_that_ends_some_time_after_its_channel_is_not_taken_for_one_that_hung_up(runner) -> None:
    with pytest.raises(RunnerFailure, match="exit code 3"):
        runner.load("import os, time\nos.closerange(0, 100)\ntime.sleep(0.5)\nos._exit(3)\n", "ModelNew", 10.0)


def test_a_runner_that_hangs_up_and_lives_on_is_said_to_have_closed_its_channel(runner) -> None:
    with pytest.raises(RunnerFailure, match="closed the judge's pipe"):
        runner.load("import os, time\nos.closerange(0, 100)\ntime.sleep(600)\n", "ModelNew", 10.0)


@pytest.mark.slow
def test_a_runner_that_its_zygote_did_not_reap_is_killed_with_its_group(runner, monkeypatch) -> None:
    signals = Signals(monkeypatch)
    assert runner.process._zygote._process is not None
    runner.process._zygote._process.kill()
    runner.process._zygote._process.wait()
    runner.close()
    assert signals.seen[0] == "SIGKILL"
    assert runner.process._left == 0


def test_a_zygote_leaves_processes_alone_that_are_not_its_runners() -> None:
    """The number of a runner of an earlier zygote may be any process's by now."""
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        zygote = object.__new__(Zygote)
        zygote.runners = set()
        assert zygote.reap(bystander.pid) == {"status": None, "left": 0}
        with pytest.raises(subprocess.TimeoutExpired):
            bystander.wait(0.3)
    finally:
        bystander.kill()
        bystander.wait()
