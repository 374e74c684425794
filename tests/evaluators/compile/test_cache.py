"""Entries of the build cache are whole or absent, whatever happens to the processes that write them."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from evaluators.compile.cache import BuildCache
from evaluators.failures import InfraError

DIGEST = "ab" * 32
OTHER = "cd" * 32


@pytest.fixture
def made(tmp_path) -> dict[str, Path]:
    path = tmp_path / "made.so"
    path.write_bytes(b"library" * 1000)
    return {"extension.so": path}


def test_an_entry_is_there_for_other_processes(tmp_path, made) -> None:
    entry = BuildCache(tmp_path / "cache").put(DIGEST, {"error": ""}, made)
    again = BuildCache(tmp_path / "cache").get(DIGEST)
    assert again == entry
    assert again.record["error"] == ""
    assert (again.folder / "extension.so").read_bytes() == made["extension.so"].read_bytes()
    assert (again.folder / "extension.so").stat().st_mode & 0o222 == 0
    assert BuildCache(tmp_path / "cache").get(OTHER) is None


def test_the_first_of_two_writers_counts(tmp_path, made) -> None:
    cache = BuildCache(tmp_path / "cache")
    cache.put(DIGEST, {"error": ""}, made)
    assert BuildCache(tmp_path / "cache").put(DIGEST, {"error": "another"}, {}).record["error"] == ""
    assert list((tmp_path / "cache/partial").iterdir()) == []


def _damage(entry: Path, how: str) -> None:
    library, record = entry / "extension.so", entry / "record.json"
    for path in (library, record):
        path.chmod(0o644)
    if how == "truncated":
        library.write_bytes(library.read_bytes()[:100])
    elif how == "changed":
        library.write_bytes(b"LIBRARY" * 1000)
    elif how == "missing":
        library.unlink()
    elif how == "record truncated":
        record.write_text(record.read_text()[:20])
    elif how == "record missing":
        record.unlink()


@pytest.mark.parametrize("how", ["truncated", "changed", "missing", "record truncated", "record missing"])
def test_a_damaged_entry_is_gone_and_the_log_says_so(tmp_path, made, caplog, how) -> None:
    entry = BuildCache(tmp_path / "cache").put(DIGEST, {"error": ""}, made)
    _damage(entry.folder, how)
    with caplog.at_level(logging.WARNING):
        cache = BuildCache(tmp_path / "cache")
        assert cache.get(DIGEST) is None
    assert "is removed" in caplog.text
    assert DIGEST in caplog.text
    assert cache.put(DIGEST, {"error": ""}, made) == entry
    assert cache.get(DIGEST) == entry


def test_a_writer_that_ends_at_any_step_leaves_no_half_entry(tmp_path, made) -> None:
    folder = tmp_path / "cache"
    for step in range(100):
        process = os.fork()
        if process == 0:
            _put_and_end(folder, made, step)
        os.waitpid(process, 0)
        entry = BuildCache(folder).get(DIGEST)
        if entry is not None:
            break
    assert entry is not None
    assert step > 5
    assert (entry.folder / "extension.so").read_bytes() == made["extension.so"].read_bytes()


def _put_and_end(folder: Path, made: dict[str, Path], steps: int) -> None:
    """Puts an entry, and ends the process before the change to files with the given number."""
    left = steps

    def count(event: str, _: object) -> None:
        nonlocal left
        if event in ("open", "os.mkdir", "os.rename", "os.chmod", "shutil.copyfile", "os.utime"):
            left -= 1
            if left < 0:
                os._exit(1)

    cache = BuildCache(folder)
    sys.addaudithook(count)
    cache.put(DIGEST, {"error": ""}, made)
    os._exit(0)


def _put_many(folder: Path, path: Path, queue: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    cache = BuildCache(folder)
    for number in range(20):
        entry = cache.put(f"{number:064x}", {"error": ""}, {"extension.so": path})
        queue.put((entry.folder / "extension.so").read_bytes() == path.read_bytes())


def test_eight_processes_write_the_same_entries(tmp_path, made) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    arguments = (tmp_path / "cache", made["extension.so"], queue)
    processes = [context.Process(target=_put_many, args=arguments) for _ in range(8)]
    for process in processes:
        process.start()
    assert all(queue.get(timeout=60) for _ in range(8 * 20))
    for process in processes:
        process.join()
    assert len(list((tmp_path / "cache").glob("??/*"))) == 20
    assert list((tmp_path / "cache/partial").iterdir()) == []


def test_entries_reach_another_node_by_the_other_file_system(tmp_path, made, caplog) -> None:
    remote = f"file://{tmp_path}/shared"
    entry = BuildCache(tmp_path / "one", remote=remote).put(DIGEST, {"error": ""}, made)
    far = BuildCache(tmp_path / "two", remote=remote).get(DIGEST)
    assert far.record == entry.record
    assert (far.folder / "extension.so").read_bytes() == made["extension.so"].read_bytes()
    assert far.folder.is_relative_to(tmp_path / "two")
    assert BuildCache(tmp_path / "two", remote=remote).get(OTHER) is None
    shared = next((tmp_path / "shared").glob(f"*/{DIGEST}")) / "extension.so"
    shared.write_bytes(b"short")
    assert BuildCache(tmp_path / "three", remote=remote).get(DIGEST) is None
    assert "cannot be used" in caplog.text


def test_without_the_other_file_system_the_local_entry_serves(tmp_path, made, caplog) -> None:
    (tmp_path / "shared").write_text("a file, where a folder is wanted")
    cache = BuildCache(tmp_path / "one", remote=f"file://{tmp_path}/shared")
    assert cache.put(DIGEST, {"error": ""}, made) == cache.get(DIGEST)
    assert "does not reach" in caplog.text


def test_least_recently_used_entries_go_first(tmp_path, made) -> None:
    cache = BuildCache(tmp_path / "cache", max_bytes=25_000)
    digests = [f"{number:064x}" for number in range(8)]
    for age, digest in enumerate(digests[:3]):
        entry = cache.put(digest, {"error": ""}, made)
        old = time.time() - 5000 + age
        os.utime(entry.folder / "record.json", (old, old))
    cache.get(digests[0])  # which makes it the last used
    for digest in digests[3:5]:
        cache.put(digest, {"error": ""}, made)
    left = {digest for digest in digests if cache.get(digest)}
    assert digests[0] in left
    assert digests[1] not in left
    assert {digests[3], digests[4]} <= left


def test_a_full_disk_makes_the_cache_remove_entries(tmp_path, made, monkeypatch, caplog) -> None:
    cache = BuildCache(tmp_path / "cache")
    for number in range(4):
        cache.put(f"{number:064x}", {"error": ""}, made)
    full = [2]  # how many more times the disk is full

    def copyfile(source: Path, target: Path) -> Path:
        if full[0]:
            full[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return Path(real(source, target))

    real = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", copyfile)
    assert cache.put(DIGEST, {"error": ""}, made).record["error"] == ""
    assert "No space left on device" in caplog.text
    assert len(list((tmp_path / "cache").glob("??/*"))) < 5
    full[0] = 10**6
    with pytest.raises(InfraError, match="No space left"):
        cache.put(OTHER, {"error": ""}, made)
    assert cache.get(OTHER) is None
