"""All lock files of a place are held, or none; and they are free again when their process ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evaluators.failures import InfraError
from evaluators.host.locks import HostLocks, shared_folder
from tests.folders import open_folder


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_place_that_is_partly_taken_leaves_the_rest_free() -> None:
    holder, wanting, third = HostLocks[str](), HostLocks[str](), HostLocks[str]()
    assert holder.acquire([("b", ["b"])], 1.0) == "b"
    with pytest.raises(TimeoutError):
        wanting.acquire([("a and b", ["a", "b"])], 0.1)
    assert third.acquire([("a", ["a"])], 0.1) == "a"
    for locks in (holder, third):
        locks.release()
    assert wanting.acquire([("a and b", ["a", "b"])], 0.1) == "a and b"
    wanting.release()


def test_the_first_free_place_is_taken() -> None:
    places = [(name, [name]) for name in ("a", "b", "c")]
    holders = [HostLocks[str]() for _ in places]
    assert [locks.acquire(places, 0.1) for locks in holders] == ["a", "b", "c"]
    holders[1].release()
    late = HostLocks[str]()
    assert late.acquire(places, 0.1) == "b"
    for locks in (*holders, late):
        locks.release()


def test_a_lock_ends_with_its_process(tmp_path) -> None:
    holds = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from evaluators.host.locks import HostLocks\n"
        "HostLocks().acquire([('a', ['a'])], 1.0); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holds, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        late = HostLocks[str]()
        with pytest.raises(TimeoutError, match=str(shared_folder())):
            late.acquire([("a", ["a"])], 0.1)
        holder.kill()
        holder.wait()
        assert late.acquire([("a", ["a"])], 1.0) == "a"
        late.release()


def test_the_folder_is_for_every_user_and_nobody_removes_the_files_of_others() -> None:
    assert shared_folder().stat().st_mode & 0o7777 == 0o1777


def test_an_own_folder_of_an_earlier_version_becomes_sticky(tmp_path) -> None:
    (tmp_path / "warpsmith-slots").mkdir()
    (tmp_path / "warpsmith-slots").chmod(0o777)
    assert shared_folder().stat().st_mode & 0o7777 == 0o1777


def make_link(place: Path) -> None:
    (place.parent / "elsewhere").mkdir()
    place.symlink_to(place.parent / "elsewhere")


def give_away(place: Path, mode: int = 0o777) -> None:
    place.mkdir()
    place.chmod(mode)
    os.chown(place, 65534, 65534)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a folder of another user")


@pytest.mark.parametrize("make", [make_link, Path.touch], ids=["link", "file"])
def test_a_folder_that_is_none_is_refused(tmp_path, make) -> None:
    make(tmp_path / "warpsmith-slots")
    with pytest.raises(InfraError, match=r"warpsmith-slots.* (remove|chmod)"):
        shared_folder()


AS_A_THIRD_USER = """
import os, sys, tempfile
from evaluators.host.locks import shared_folder
tempfile.tempdir = sys.argv[1]
os.setgroups([]); os.setgid(65533); os.setuid(65533)
try:
    print(shared_folder())
except Exception as error:
    print(type(error).__name__, error)
"""


@needs_root
@pytest.mark.parametrize(("mode", "answer"), [(0o1777, "/"), (0o777, "InfraError"), (0o1755, "InfraError")])
def test_the_folder_of_another_user_must_be_sticky_and_open(mode, answer, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)  # pytest's own folders are closed to other users
    with open_folder() as place:
        give_away(place / "warpsmith-slots", mode)
        done = subprocess.run([sys.executable, "-c", AS_A_THIRD_USER, place], capture_output=True, text=True)
        assert done.stdout.startswith(answer), done.stdout + done.stderr


def test_a_link_in_place_of_a_lock_is_not_followed(tmp_path) -> None:
    (shared_folder() / "a").symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match="symbolic links"):
        HostLocks[str]().acquire([("a", ["a"])], 0.1)
    assert not (tmp_path / "made").exists()
