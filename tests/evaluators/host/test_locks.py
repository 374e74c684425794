"""All lock files of a place are held, or none; and they are free again when their process ends."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

from evaluators.host.locks import HostLocks, shared_folder


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


def test_the_folder_is_for_every_user() -> None:
    assert shared_folder().stat().st_mode & 0o777 == 0o777
