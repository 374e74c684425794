"""A lease keeps a second driver out of a run on a file system without locks; a driver that lost it never commits."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from learners.patience import Patience
from orchestration.run import lease
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import LeaseLost, RunDirectoryError
from orchestration.run.lock import Holder
from orchestration.run.state import RunState
from orchestration.run.storage import Storage
from tests.flaky_files import flaky, remote

REPOSITORY = Path(__file__).parents[3]
LEASE = 1.2  # a loaded machine keeps threads waiting
HERE = Holder(os.getpid(), os.uname().nodename)


def run_in(folder: Path, name: str = "demo") -> RunDirectory:
    """A run on a file system without locks, whose times are those of the disk."""
    return RunDirectory("", name, storage=Storage(remote(folder), name, f"remote://{name}"))


class Outage:
    """A file system that is away for one driver while `is_on`."""

    is_on = False

    def __call__(self, operation: str) -> OSError | None:
        return OSError(errno.EIO, "away") if self.is_on else None

    def run_in(self, folder: Path) -> RunDirectory:
        return RunDirectory("", "demo", storage=Storage(flaky(remote(folder), self), "demo", "remote://demo"))


class Uploads:
    """A store's uploads, which take so many seconds, and its dates, which are those of their beginnings."""

    def __init__(self) -> None:
        self.seconds, self.began = 0.0, threading.Event()

    def storage(self, folder: Path) -> Storage:
        return Uploading(remote(folder), "demo", "remote://demo", uploads=self, folder=folder)


@dataclass(frozen=True)
class Uploading(Storage):
    uploads: Uploads | None = None
    folder: Path = Path()

    def write(self, path: str, content: bytes, **options: Any) -> None:
        assert self.uploads is not None
        began, seconds = time.time_ns(), self.uploads.seconds
        if seconds and path.startswith("lease/"):
            self.uploads.began.set()
            time.sleep(seconds)
        super().write(path, content, **options)
        os.utime(self.folder / self.full(path), ns=(began, began))


def contend(make: Callable[[], RunDirectory], drivers: int, lease: float) -> list[str]:
    """What becomes of drivers that start at the same moment, while the one that runs stays."""
    ready, refused = threading.Barrier(drivers), threading.Semaphore(0)

    def drive() -> str:
        run = make()
        ready.wait(timeout=30)
        try:
            with run.lock(lease):
                run.write_state(RunState(step=1))
                assert all(refused.acquire(timeout=30) for _ in range(drivers - 1))
                return "runs"
        except RunDirectoryError as error:
            refused.release()
            return str(error)

    with ThreadPoolExecutor(drivers) as pool:
        return sorted(pool.map(lambda _: drive(), range(drivers)))


def test_of_drivers_that_start_together_exactly_one_runs(tmp_path: Path) -> None:
    for repetition in range(6):
        ends = contend(lambda: run_in(tmp_path, f"run-{repetition}"), 3, 4.0)  # noqa: B023 - called at once
        refused = f"remote://run-{repetition}: process {HERE} is running in it; stop that one, or choose another name"
        assert [end.removesuffix("=...") for end in ends] == [refused, refused, "runs"]


@dataclass(frozen=True)
class HalfRead(Storage):
    """Every second look at a claim finds it just being written."""

    reads: list[str] = field(default_factory=list)

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path) if self.reads.count(path) % 2 else b""


def test_a_claim_that_is_just_being_written_is_not_taken_for_another_process(tmp_path: Path) -> None:
    second = RunDirectory("", "demo", storage=HalfRead(remote(tmp_path), "demo", "remote://demo"))
    first, refused = run_in(tmp_path), f"process {HERE} is running in it"
    with first.lock(LEASE), pytest.raises(RunDirectoryError, match=refused), second.lock(LEASE):
        pass


def test_of_drivers_on_an_object_store_exactly_one_runs(object_store: str, tmp_path: Path) -> None:
    root = object_store.format(tmp_path.name)
    for repetition in range(2):
        name = f"run-{repetition}"
        patience = Patience(20.0)  # pyarrow fails to read what the server of a busy machine cuts off
        ends = contend(lambda: RunDirectory(root, name, patience=patience), 2, 5.0)  # noqa: B023 - called at once
        assert ends[0] == "runs"
        assert f"/{name}: process {HERE} is running in it" in ends[1]
        assert "password" not in ends[1]
        assert RunDirectory(root, name).storage.files("lease", ".json") == []


def test_a_second_driver_is_refused_while_the_first_renews_and_holder_names_it(tmp_path: Path) -> None:
    first, second = run_in(tmp_path), run_in(tmp_path)
    assert first.holder() is None
    with first.lock(3.0):
        with pytest.raises(RunDirectoryError, match="is running in it"), second.lock(3.0):
            pass
        assert second.holder() == HERE
        first.write_state(RunState(step=1))
    assert second.holder() is None
    with second.lock(LEASE):
        pass


def test_a_driver_that_stops_renewing_loses_the_run_and_cannot_commit(tmp_path: Path) -> None:
    outage = Outage()
    first, second = outage.run_in(tmp_path), run_in(tmp_path)
    with first.lock(LEASE):
        first.write_state(RunState(step=1))
        outage.is_on = True
        with second.lock(LEASE):
            second.write_state(RunState(step=2))
            outage.is_on = False
            with pytest.raises(LeaseLost, match=r"demo: .* in it; .*storage\.lease=1\.2.* its last"):
                first.write_state(RunState(step=3))
        with pytest.raises(LeaseLost):
            first.write_state(RunState(step=4))
        assert second.read_state() == RunState(step=2)


def test_a_driver_that_was_replaced_by_one_that_has_ended_cannot_commit_either(tmp_path: Path) -> None:
    outage = Outage()
    first, second = outage.run_in(tmp_path), run_in(tmp_path)
    with first.lock(LEASE):
        outage.is_on = True
        with second.lock(LEASE):
            second.write_state(RunState(step=2))
        outage.is_on = False
        with pytest.raises(LeaseLost, match="another process has run in it"):
            first.write_state(RunState(step=3))
    assert second.read_state() == RunState(step=2)
    assert second.holder() is None


def test_a_renewal_that_takes_longer_than_the_lease_is_none_whatever_its_date(tmp_path: Path) -> None:
    """Object stores date an object by when its upload began, and others have not seen it while it was under way."""
    uploads = Uploads()
    first, second = RunDirectory("", "demo", storage=uploads.storage(tmp_path)), run_in(tmp_path)
    with first.lock(LEASE), ThreadPoolExecutor(1) as pool:
        uploads.seconds = 2 * LEASE
        commit = pool.submit(first.write_state, RunState(step=3))
        assert uploads.began.wait(timeout=30)
        uploads.seconds = 0.0
        with second.lock(LEASE):
            second.write_state(RunState(step=2))
            with pytest.raises(LeaseLost):
                commit.result(timeout=60)
            assert second.read_state() == RunState(step=2)


@dataclass(frozen=True)
class StandsStill(Storage):
    """Whoever is about to say that it holds the run stands still until something has happened, and for so many seconds,
    as often."""

    seconds: float = 0.0
    until: Callable[[], object] = lambda: None
    stops: list[str] = field(default_factory=list)

    def write(self, path: str, content: bytes, **options: Any) -> None:
        if path == "lease/last" and self.stops:
            self.stops.pop()
            self.until()
            time.sleep(self.seconds)
        super().write(path, content, **options)


def stands_still(folder: Path, seconds: float, times: int, until: Callable[[], object] = lambda: None) -> RunDirectory:
    stops = ["once"] * times
    storage = StandsStill(remote(folder), "demo", "remote://demo", seconds=seconds, until=until, stops=stops)
    return RunDirectory("", "demo", storage=storage)


def test_a_driver_that_stood_still_before_it_held_the_run_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_is_gone", lambda _: False)  # they are on two machines
    seconds = 3.0 * LEASE  # the second one must renew its claim in time
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:

        def second() -> None:
            time.sleep(0.3 * seconds)
            stack.enter_context(run_in(tmp_path).lock(seconds))

        taken = pool.submit(second)
        first = stands_still(tmp_path, 0.0, 1, lambda: taken.result(60))
        with pytest.raises(RunDirectoryError, match="is running in it"), first.lock(seconds):
            pass


def test_a_driver_that_stood_still_alone_holds_the_run(tmp_path: Path) -> None:
    run = stands_still(tmp_path, 0.8 * LEASE, 1)
    with run.lock(LEASE):
        run.write_state(RunState(step=1))


def test_a_store_that_is_slower_than_the_lease_refuses_the_run(tmp_path: Path) -> None:
    refused = pytest.raises(RunDirectoryError, match=r"storage\.lease")
    with refused, stands_still(tmp_path, 0.8 * LEASE, 9).lock(LEASE):
        pass


def test_after_an_outage_in_which_nobody_came_the_driver_goes_on(tmp_path: Path) -> None:
    outage = Outage()
    run = outage.run_in(tmp_path)
    with run.lock(LEASE):
        outage.is_on = True
        time.sleep(1.5 * LEASE)
        with pytest.raises(OSError, match="away"):
            run.write_state(RunState(step=1))
        outage.is_on = False
        run.write_state(RunState(step=1))
        with pytest.raises(RunDirectoryError, match="is running in it"), run_in(tmp_path).lock(LEASE):
            pass
        run.write_state(RunState(step=2))
    assert run.read_state() == RunState(step=2)


def test_a_claim_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    with run.lock(LEASE):
        for path in run.storage.files("lease", ".json"):
            run.storage.delete(path)
        run.write_state(RunState(step=1))
        assert run.holder() == HERE


def test_the_claim_of_another_machine_that_is_not_renewed_counts_for_its_lease(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    claim = {"pid": 1, "host": "elsewhere", "kernel": "another", "started": "1", "seconds": LEASE, "holds": True}
    started = time.monotonic()
    run.storage.write("lease/0.json", json.dumps(claim).encode())
    assert run.holder() == Holder(1, "elsewhere")
    with run.lock(30.0):
        assert LEASE <= time.monotonic() - started < 10.0
        assert run.holder() == HERE
    assert run.storage.files("lease", ".json") == []


HOLDS = """
import sys
from pathlib import Path
from tests.orchestration.run.test_lease import run_in
with run_in(Path(sys.argv[1])).lock(600.0):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[int]:
    """The id of a driver that was killed, and whose claim stays."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": REPOSITORY}
    with subprocess.Popen(command, **options) as process:
        assert process.stdout.readline() == "held\n"
        assert run_in(tmp_path).holder() == Holder(process.pid, HERE.host)
        process.kill()
        process.wait(timeout=30)
        yield process.pid


def test_the_same_machine_does_not_wait_for_a_driver_that_was_killed(killed: int, tmp_path: Path) -> None:
    run = run_in(tmp_path)
    assert len(run.storage.files("lease", ".json")) == 1
    assert run.holder() is None
    started = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(run.lock(600.0))
        assert time.monotonic() - started < 30.0
        assert run.holder() == HERE
