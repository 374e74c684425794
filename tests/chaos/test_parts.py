"""The chaos's own parts: faults that are faults, and a supervisor that sees a broken promise."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from evaluators.records import Outcome, Verdict
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState
from tests.chaos.__main__ import MOST_WAIT, next_of
from tests.chaos.clock import Clock
from tests.chaos.faults import ENGINE, KINDS, RANK, Scene, draw
from tests.chaos.proxy import CUT, HANG, PASS, REFUSE, Proxy
from tests.chaos.supervisor import Broken, Supervisor
from tests.chaos.verify import single_verdicts
from tests.chaos.world import NAME


def test_a_clock_that_jumps_is_the_calendars_alone(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    for seconds in (86_400, -3600):
        clock.set(seconds)
        told = "import time, datetime; print(time.time(), time.monotonic(), datetime.datetime.now().timestamp())"
        before, steady = time.time(), time.monotonic()
        done = subprocess.run([sys.executable, "-c", told], env=clock.environment, capture_output=True, check=True)
        calendar, monotonic, date = map(float, done.stdout.split())
        assert calendar - before == pytest.approx(seconds, abs=60)
        assert date - before == pytest.approx(seconds, abs=60)
        assert monotonic - steady == pytest.approx(0, abs=60)


WAITS = """
import ctypes, os, time
libc = ctypes.CDLL(None)
class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]
def until():
    now = time.time() + 0.5
    return ctypes.byref(Timespec(int(now), int(now % 1 * 1e9)))
semaphore, cond, mutex = (ctypes.create_string_buffer(64) for _ in range(3))
libc.sem_init(semaphore, 0, 0)
libc.pthread_mutex_lock(mutex)
word = ctypes.c_int(0)
futex = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
wait_until = 9 | 128 | 256  # FUTEX_WAIT_BITSET, private, by the calendar
for wait in (
    lambda: libc.sem_timedwait(semaphore, until()),
    lambda: libc.pthread_cond_timedwait(cond, mutex, until()),
    lambda: libc.clock_nanosleep(time.CLOCK_REALTIME, 1, until(), None),
    lambda: libc.syscall(futex, ctypes.byref(word), wait_until, 0, until(), None, -1),
):
    began = time.monotonic()
    wait()
    print(time.monotonic() - began)
"""


@pytest.mark.parametrize("seconds", [86_400, -3600])
def test_waits_until_a_time_of_the_calendar_take_as_long_as_without_a_jump(tmp_path: Path, seconds: int) -> None:
    clock = Clock(tmp_path)
    clock.set(seconds)
    command = [sys.executable, "-c", WAITS]
    done = subprocess.run(command, env=clock.environment, capture_output=True, check=True, timeout=60)
    took = list(map(float, done.stdout.split()))
    assert len(took) == 4
    assert all(0.4 < one < 20 for one in took), took


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """In front of a server that answers each connection's first bytes with ten thousand more."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            client.recv(100)
            client.sendall(b"x" * 10_000)
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    made = Proxy(server.getsockname()[1])
    yield made
    made.close()
    server.close()


def ask(proxy: Proxy, seconds: float = 10.0) -> int:
    """How many bytes come back. Raises what a client sees."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=seconds) as client:
        client.sendall(b"ask")
        total = 0
        while part := client.recv(1 << 16):
            total += len(part)
        return total


def test_storage_is_refused_cut_and_silent_and_comes_back(proxy: Proxy) -> None:
    assert ask(proxy) == 10_000
    for mode, error in ((REFUSE, ConnectionError), (CUT, ConnectionError), (HANG, TimeoutError)):
        proxy.mode = mode
        with pytest.raises(error):
            ask(proxy, 0.5)
        proxy.mode = PASS
        assert ask(proxy) == 10_000
    assert proxy.hit >= 3


def test_every_kind_is_injected_and_a_seed_repeats_the_order() -> None:
    for number in (60, 100):
        drawn = draw(number, KINDS, Random(1))
        assert len(drawn) == number
        assert {kind.name for kind in drawn} == {kind.name for kind in KINDS}
        assert drawn == draw(number, KINDS, Random(1))
        assert drawn != draw(number, KINDS, Random(2))


def test_a_fault_waits_for_its_process_and_for_a_commit_after_one_that_lost_work() -> None:
    supervisor = SimpleNamespace(was_set_back=False, seconds=100.0)
    there: dict[str, list[int]] = {RANK: [1]}
    world: Any = SimpleNamespace(pids=lambda title: there.get(title, []))
    scene = Scene(world, supervisor, Random(1))  # type: ignore[arg-type]
    rank, both, clock = (
        next(kind for kind in KINDS if kind.name == name)
        for name in ("learner rank killed", "rank and engine killed", "clock jumps")
    )
    assert [kind.may_come(scene) for kind in (rank, both, clock)] == [True, False, True]
    there[ENGINE] = [2]
    assert both.may_come(scene)
    supervisor.was_set_back = True
    assert [kind.may_come(scene) for kind in (rank, both, clock)] == [False, False, True]
    supervisor.was_set_back = False
    scene.pid_of(RANK)
    assert [kind.may_come(scene) for kind in (rank, both, clock)] == [False, False, True]
    supervisor.seconds += 20
    assert rank.may_come(scene)


def test_the_first_fault_in_order_comes_first_unless_it_keeps_the_others_waiting() -> None:
    supervisor = SimpleNamespace(was_set_back=True, seconds=100.0)
    scene = Scene(SimpleNamespace(), supervisor, Random(1))  # type: ignore[arg-type]
    drain, clock = (next(kind for kind in KINDS if kind.name == name) for name in ("driver killed", "clock jumps"))
    met = replace(clock, name="met", applies=lambda _: True)
    assert next_of([drain, clock], scene, 1.0) is None
    assert next_of([drain, clock], scene, MOST_WAIT + 1) is clock
    assert next_of([drain, clock, met], scene, 1.0) is met
    supervisor.was_set_back = False
    assert next_of([drain, clock], scene, 1.0) is drain
    assert next_of([], scene, 1.0) is None


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Callable[..., tuple[Supervisor, RunDirectory]]]:
    """A supervisor of a process that does nothing, and the run that the test writes in its place."""
    started: list[Supervisor] = []

    def make(program: str = "import time; time.sleep(60)") -> tuple[Supervisor, RunDirectory]:
        def driver(*_: object, **__: object) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", program], start_new_session=True)

        world: Any = SimpleNamespace(
            root=lambda **_: str(tmp_path),
            driver=driver,
            cluster=SimpleNamespace(address=""),
            teacher=SimpleNamespace(hit=0),
            endpoint=SimpleNamespace(seen=[]),
        )
        supervisor = Supervisor(world, [], tmp_path / "log")
        started.append(supervisor)
        return supervisor, RunDirectory(str(tmp_path), NAME)

    yield make
    for supervisor in started:
        supervisor.end()


def test_commits_are_recorded_and_going_back_is_seen(
    supervised: Callable[..., tuple[Supervisor, RunDirectory]],
) -> None:
    supervisor, run = supervised()
    for step in (1, 2):
        run.write_state(RunState(1, "sft", step, step))
        supervisor.watch(0.0)
    assert [commit[1:] for commit in supervisor.commits] == [("1-sft", 1), ("1-sft", 2)]
    run.write_state(RunState(1, "sft", 1, 2))
    with pytest.raises(Broken, match="step 1 was committed after step 2"):
        supervisor.watch(0.0)


def test_a_stage_that_is_lost_is_seen(supervised: Callable[..., tuple[Supervisor, RunDirectory]]) -> None:
    supervisor, run = supervised()
    run.write_state(RunState(1, "sft", 2, 2, extra={"assessed": ["base"], "completed": ["1-sft"]}))
    supervisor.watch(0.0)
    run.write_state(RunState(1, "self_supervised", 0, 2, extra={"assessed": ["base"]}))
    with pytest.raises(Broken, match="completed 1-sft"):
        supervisor.watch(0.0)


def test_rows_that_change_after_their_commit_are_seen(
    supervised: Callable[..., tuple[Supervisor, RunDirectory]],
) -> None:
    supervisor, run = supervised()
    run.verdicts.write("1-sft", 0, [Verdict("a", "task", "cpu", Outcome.OK)])
    run.write_state(RunState(1, "sft", 1, 1))
    supervisor.watch(0.0)
    supervisor.check_rows()
    run.verdicts.write("1-sft", 1, [Verdict("b", "task", "cpu", Outcome.OK)])
    supervisor.check_rows()  # nobody has committed that step
    run.verdicts.write("1-sft", 0, [Verdict("a", "task", "cpu", Outcome.WRONG)])
    with pytest.raises(Broken, match="verdicts of 1-sft step 0 changed"):
        supervisor.check_rows()


def test_a_driver_that_ends_is_started_again_after_a_fault_that_may_end_it_alone(
    supervised: Callable[..., tuple[Supervisor, RunDirectory]],
) -> None:
    supervisor, _ = supervised()
    supervisor.may_end = True
    supervisor.kill()
    supervisor.watch(0.0)
    assert supervisor.starts == 2
    supervisor.kill()
    with pytest.raises(Broken, match="ended with code -9"):
        supervisor.watch(0.0)


def test_silence_is_seen(
    supervised: Callable[..., tuple[Supervisor, RunDirectory]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.chaos.supervisor.MOST_SILENCE", 0.2)
    supervisor, _ = supervised()
    with pytest.raises(Broken, match="nothing has moved"):
        supervisor.watch(5.0)


def test_two_verdicts_on_a_program_are_seen(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path), NAME)
    for step, outcome in enumerate((Outcome.OK, Outcome.OK)):
        run.verdicts.write("1-sft", step, [Verdict("a", "task", "cpu", outcome)])
    assert single_verdicts(run) == 1
    run.verdicts.write("1-sft", 2, [Verdict("a", "task", "cpu", Outcome.WRONG)])
    with pytest.raises(Broken, match="candidate a has 2 verdicts"):
        single_verdicts(run)


def test_no_node_leaves_while_the_clock_lags_and_none_goes_back_right_after_one_left(tmp_path: Path) -> None:
    clock, left = Clock(tmp_path), []
    cluster = SimpleNamespace(nodes=[0, 1, 2], add=lambda: None, remove=lambda _: left.append(clock.seconds))
    supervisor = SimpleNamespace(seconds=0.0, watch=lambda _: None)
    scene = Scene(SimpleNamespace(cluster=cluster, clock=clock), supervisor, Random(1))  # type: ignore[arg-type]
    node, jump = (
        next(kind for kind in KINDS if kind.name == name) for name in ("node leaves and returns", "clock jumps")
    )
    moves = []
    for index in range(200):
        supervisor.seconds += 10.0 if index % 8 else 100.0
        if index % 8 == 4:
            node.inject(scene)
            assert left[-1] == clock.latest
        before, since = clock.seconds, supervisor.seconds - scene.hits.get("node", -100.0)
        jump.inject(scene)
        moves.append((clock.seconds - before, since))
    assert all(moved > 0 for moved, since in moves if since <= 30)
    assert {moved for moved, since in moves if since > 30} == {-86_400, -3600, -60, 60, 3600, 86_400}
