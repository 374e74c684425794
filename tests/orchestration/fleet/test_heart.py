"""The pulse of a run says what its roles do and how its process ended, and never troubles the run."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from orchestration.fleet.heart import Heart
from orchestration.fleet.ray_metrics import RoleFigures
from orchestration.run.directory import RunDirectory
from orchestration.run.pulse import EXIT_CODES, read_pulse
from orchestration.run.storage import Storage
from orchestration.run.watchdog import Stalled


class Parts:
    """What a heart asks of a run, whose time stands until it is set."""

    def __init__(self) -> None:
        self.now, self.moved, self.is_finished = 100.0, 0, False
        self.roles: list[RoleFigures] | None = None
        self.counts: dict[tuple[str, ...], int] = {}

    def figures(self) -> list[RoleFigures]:
        assert self.roles is not None, "the roles are not there yet"
        return self.roles

    def heart(self, storage: Storage) -> Heart:
        return Heart(
            storage,
            self.figures,
            lambda: self.counts,
            lambda: self.moved,
            lambda: self.is_finished,
            clock=lambda: self.now,
        )


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return RunDirectory(tmp_path, "demo").storage


def test_it_beats_before_there_are_roles_and_tells_them_when_they_are_there(storage: Storage) -> None:
    parts = Parts()
    heart = parts.heart(storage)
    heart.beat()
    first = read_pulse(storage)
    assert first is not None
    assert (first.pid, first.host, first.roles, first.ended) == (os.getpid(), os.uname().nodename, (), "")
    heart.mark("1-sft", 2)
    parts.roles = [RoleFigures("evaluators", "A100", 5, 2, 1, 2, 0.0, is_further=True, lost=3)]
    parts.counts = {("verdicts", "ok"): 4, ("verdicts", "wrong"): 1, ("builds", "built"): 9}
    heart.beat()
    second = read_pulse(storage)
    assert second is not None
    assert (second.phase, second.step, second.verdicts) == ("1-sft", 2, {"ok": 4, "wrong": 1})
    (role,) = second.roles
    assert (role.name, role.queued, role.in_work, role.ready, role.actors) == ("evaluators_A100", 5, 2, 1, 2)
    assert role.lost == 3


def test_it_counts_the_seconds_without_a_move(storage: Storage) -> None:
    parts = Parts()
    heart = parts.heart(storage)
    still = []
    for seconds, moved in ((0, 1), (30, 1), (30, 1), (5, 2)):
        parts.now, parts.moved = parts.now + seconds, moved
        heart.beat()
        pulse = read_pulse(storage)
        assert pulse is not None
        still.append(pulse.still)
    assert still == [0.0, 30.0, 60.0, 0.0]


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (None, "stopped"),
        (KeyboardInterrupt(), "interrupted"),
        (Stalled("nothing has moved for 60 minutes"), "stalled"),
        (OSError("no room\non the disk"), "failed"),
    ],
)
def test_the_last_beat_says_how_the_process_ended(storage: Storage, error: BaseException | None, ended: str) -> None:
    parts = Parts()
    with pytest.raises(type(error)) if error is not None else nullcontext(), parts.heart(storage):
        if error is not None:
            raise error
    pulse = read_pulse(storage)
    assert pulse is not None
    assert pulse.ended == ended
    assert pulse.ended in EXIT_CODES
    if ended == "failed":
        assert pulse.message == "no room on the disk"
    parts.is_finished = True
    with parts.heart(storage):
        pass
    pulse = read_pulse(storage)
    assert pulse is not None
    assert pulse.ended == "finished"


class Away(pafs.FileSystemHandler):  # type: ignore[misc]
    """A file system that fails at once, or does not answer until it is released."""

    def __init__(self, released: threading.Event | None) -> None:
        self._released = released

    def _fail(self, *_: Any, **__: Any) -> Any:
        if self._released is not None:
            self._released.wait(60)
        raise OSError("away")

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _fail
    get_file_info = get_file_info_selector = move = normalize_path = open_append_stream = open_input_file = _fail
    open_input_stream = open_output_stream = _fail

    def get_type_name(self) -> str:
        return "away"


@pytest.mark.parametrize("hangs", [False, True])
def test_a_file_system_that_is_away_neither_ends_nor_holds_a_run(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.fleet.heart._LAST_BEAT", 0.2)
    released = threading.Event() if hangs else None
    storage = Storage(pafs.PyFileSystem(Away(released)), "away/demo", "away/demo")
    with Parts().heart(storage):
        pass
    if released is not None:
        released.set()


def test_a_pulse_of_another_version_is_none(storage: Storage) -> None:
    storage.write("pulse.json", b'{"time": "yesterday"}')
    assert read_pulse(storage) is None
