"""What a folder holds is counted however it is nested, linked, closed or changed meanwhile, and no further than need
be."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from evaluators.host.folders import remove_folder
from evaluators.host.quota import Amount, Contents, FolderQuota, OverQuota, contents_of

PAGE = 4096


def test_every_file_folder_and_link_counts_and_no_link_is_followed(tmp_path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for number in range(100):
        (outside / str(number)).write_bytes(bytes(PAGE))
    folder = tmp_path / "folder"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_bytes(bytes(10 * PAGE))
    os.mkfifo(folder / "a/pipe")
    (folder / "link").symlink_to(outside)
    found = contents_of(folder)
    assert found.counted_all
    assert found.amount.files == 5
    assert 10 * PAGE <= found.amount.bytes <= 20 * PAGE
    (tmp_path / "other").symlink_to(outside)
    assert not contents_of(tmp_path / "other").counted_all
    assert contents_of(tmp_path / "absent") == Contents(Amount(0, 0), True)


def test_a_file_counts_as_the_room_that_it_takes(tmp_path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 30)
    assert contents_of(tmp_path).amount.bytes < 1 << 20


def test_counting_ends_where_the_quota_does(tmp_path) -> None:
    for number in range(1000):
        (tmp_path / str(number)).touch()
    assert contents_of(tmp_path, Amount(1 << 30, 1000)).counted_all
    assert contents_of(tmp_path, Amount(1 << 30, 10)) == Contents(Amount(0, 11), False)


def test_a_folder_that_nobody_can_count_is_over_the_quota(tmp_path) -> None:
    deepest = tmp_path / "deep"
    deepest.mkdir()
    quota = FolderQuota([deepest], Amount(1 << 20, 1000))
    quota.check()
    path = str(deepest)
    for _ in range(65):
        path += "/d"
        os.mkdir(path)
    with pytest.raises(OverQuota, match="nobody can count"):
        quota.check()
    assert quota.overfull() == [deepest]
    remove_folder(deepest)
    quota.check()


def test_a_folder_that_changes_meanwhile_can_be_counted(tmp_path) -> None:
    """Folders turn into links and back, appear and disappear."""
    ended, place = threading.Event(), tmp_path / "place"

    def change() -> None:
        while not ended.is_set():
            place.mkdir()
            (place / "x").touch()
            (place / "x").unlink()
            place.rmdir()
            place.symlink_to("/usr")
            place.unlink()

    changing = threading.Thread(target=change)
    changing.start()
    try:
        most = max(contents_of(Path(tmp_path)).amount.files for _ in range(2000))
    finally:
        ended.set()
        changing.join()
    assert most <= 2
