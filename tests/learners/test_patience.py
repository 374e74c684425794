"""What fails on a file system is tried again while it may pass, for a bounded time, and the user is told once."""

from __future__ import annotations

import errno
import logging
import threading

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from learners.patience import Patience, StorageDown, may_pass
from learners.room import DiskFull


class ToldClock:
    """A clock that moves by what is waited."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def patience(self, seconds: float) -> Patience:
        return Patience(seconds, clock=lambda: self.now, wait=self.wait)


class Fails:
    """Fails some times, then works."""

    def __init__(self, times: float, number: int | None = errno.EIO) -> None:
        self.left, self.number, self.calls = times, number, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise OSError(self.number, "broken") if self.number is not None else OSError("broken")
        return "done"


@pytest.fixture
def clock() -> ToldClock:
    return ToldClock()


def test_pauses_grow_and_are_told_once_with_their_end(clock: ToldClock, caplog) -> None:
    caplog.set_level(logging.INFO)
    patience = clock.patience(100.0)
    assert patience("write state.json", "s3://runs/demo", Fails(5)) == "done"
    assert len(clock.waits) == 5
    assert all(0.25 * 2**n <= wait <= 0.5 * 2**n for n, wait in enumerate(clock.waits))
    begun, ended = (record.getMessage() for record in caplog.records)
    assert begun == (
        "s3://runs/demo: cannot write state.json: [Errno 5] broken. The run waits for it, up to 100 s "
        "(storage.patience)"
    )
    assert ended == f"s3://runs/demo: works again after {clock.now:.0f} s"


def test_what_never_works_ends_after_the_time_with_place_operation_and_time(clock: ToldClock) -> None:
    broken = Fails(float("inf"))
    with pytest.raises(StorageDown) as raised:
        clock.patience(60.0)("read state.json", "/shared/demo", broken)
    assert clock.now == pytest.approx(60.0)
    assert str(raised.value) == (
        "/shared/demo: cannot read state.json: tried for 60 s (storage.patience), and the last answer was: "
        "[Errno 5] broken; check the file system"
    )
    assert max(clock.waits) <= 20.0
    with pytest.raises(StorageDown):  # one operation inside another is not waited for twice
        clock.patience(60.0)("outer", "/shared/demo", lambda: clock.patience(1.0)("inner", "", broken))
    assert clock.now == pytest.approx(61.0)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR])
def test_what_waiting_does_not_mend_is_raised_at_once(clock: ToldClock, number: int) -> None:
    broken = Fails(1, number)
    with pytest.raises(OSError, match="broken") as raised:
        clock.patience(60.0)("read", "", broken)
    assert raised.value.errno == number
    assert (broken.calls, clock.waits) == (1, [])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_at_once_with_its_folder(clock: ToldClock, number: int) -> None:
    with pytest.raises(DiskFull, match=r"s3://runs/demo: .*; make room there"):
        clock.patience(60.0)("write", "s3://runs/demo", Fails(1, number))
    assert clock.waits == []


def test_a_uri_that_means_nothing_is_raised_at_once(clock: ToldClock) -> None:
    with pytest.raises(pa.ArrowInvalid):
        clock.patience(60.0)("find", "", lambda: pafs.FileSystem.from_uri("nothing://bucket"))
    assert clock.waits == []


def test_without_patience_errors_are_raised_as_they_are(clock: ToldClock) -> None:
    with pytest.raises(OSError, match="broken") as raised:
        clock.patience(0.0)("read", "", Fails(1))
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("When getting information for key 'a': AWS Error NETWORK_CONNECTION during HeadObject operation", True),
        ("AWS Error SLOW_DOWN during PutObject operation: Please reduce your request rate", True),
        ("AWS Error INTERNAL_FAILURE during PutObject operation: We encountered an internal error", True),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", False),
        ("AWS Error NO_SUCH_BUCKET during PutObject operation: The specified bucket does not exist", False),
        ("Bucket 'absent' not found", False),
    ],
)
def test_answers_of_object_stores_have_no_number_and_are_told_apart(text: str, passes: bool) -> None:
    assert may_pass(OSError(text)) is passes


def test_an_outage_that_several_threads_meet_is_told_once(caplog) -> None:
    patience = Patience(60.0, first_pause=0.001)
    all_failed = threading.Barrier(4)

    def attempt(state={}) -> None:  # noqa: B006 - one of each thread
        name = threading.current_thread().name
        if state.setdefault(name, 0) == 0:
            state[name] = 1
            all_failed.wait(timeout=30)
            raise OSError(errno.EIO, "broken")
        all_failed.wait(timeout=30)

    threads = [threading.Thread(target=patience, args=("write", "/shared", attempt)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[1][:7] for message in messages] == [" cannot", " works "]


def test_giving_up_ends_the_waits_of_other_threads() -> None:
    patience, errors = Patience(600.0, first_pause=300.0), []
    failed = threading.Event()

    def attempt() -> None:
        failed.set()
        raise OSError(errno.EIO, "broken")

    def work() -> None:
        try:
            patience("write", "/shared", attempt)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert failed.wait(timeout=30)
    patience.give_up()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert [error.errno for error in errors] == [errno.EIO]
