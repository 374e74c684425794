"""Ranks write their own files to the run's file system, and a file that is not what was written is found."""

from __future__ import annotations

from pathlib import Path

import pyarrow.fs as pafs
import pytest

from learners.checkpoint_files import CheckpointFolder, WrittenFile
from learners.errors import LearnerError


@pytest.fixture(params=["shared folder", "object store"])
def place(request, tmp_path) -> str:
    if request.param == "object store":
        return request.getfixturevalue("object_store").format(tmp_path.name)
    (tmp_path / "checkpoint").mkdir()
    return str(tmp_path / "checkpoint")


def written_by(place: str, rank: int, content: bytes = b"weights") -> list[WrittenFile]:
    with CheckpointFolder(place).new_files(rank) as (folder, written):
        (folder / "deep").mkdir()
        (folder / "deep" / f"shard-{rank}").write_bytes(content)
    return written


def overwrite(place: str, path: str, content: bytes | None) -> None:
    system, base = pafs.FileSystem.from_uri(place) if "://" in place else (pafs.LocalFileSystem(), place)
    if content is None:
        system.delete_file(f"{base}/{path}")
        return
    with system.open_output_stream(f"{base}/{path}") as stream:
        stream.write(content)


def test_the_files_of_all_ranks_are_in_one_folder_and_nothing_else(place: str) -> None:
    files = [*written_by(place, 0), *written_by(place, 1, b"more" * 5_000_000)]
    assert [(file.path, file.size) for file in files] == [("deep/shard-0", 7), ("deep/shard-1", 20_000_000)]
    folder = CheckpointFolder(place)
    folder.check(files)
    folder.check_sizes(files)
    with folder.local_copy(files) as local:
        found = {path.relative_to(local).as_posix(): path.read_bytes() for path in local.rglob("*") if path.is_file()}
    assert found == {"deep/shard-0": b"weights", "deep/shard-1": b"more" * 5_000_000}


@pytest.mark.parametrize(
    ("content", "message"), [(None, "missing"), (b"weight", "damaged, 6 bytes"), (b"Weights", "damaged, 7 bytes")]
)
def test_a_damaged_file_is_found_wherever_it_is_read(place: str, content: bytes | None, message: str) -> None:
    files = [*written_by(place, 0), *written_by(place, 1)]
    overwrite(place, "deep/shard-1", content)
    folder = CheckpointFolder(place)
    folder.check(files[:1])
    with pytest.raises(LearnerError, match=f"deep/shard-1: {message}"):
        folder.check(files)
    with pytest.raises(LearnerError, match=f"deep/shard-1: {message}"), folder.local_copy(files):
        pass
    if content != b"Weights":
        with pytest.raises(
            LearnerError, match=r"deep/shard-1: (6 bytes, and 7 were|a learner rank wrote it, and it is not)"
        ):
            folder.check_sizes(files)


def test_ranks_divide_what_they_check_in_a_shared_folder(tmp_path: Path) -> None:
    place = str(tmp_path)
    files = [*written_by(place, 0), *written_by(place, 1)]
    overwrite(place, "deep/shard-1", b"Weights")
    with CheckpointFolder(place).local_copy(files, slice(0, None, 2)) as local:
        assert local == tmp_path
    with pytest.raises(LearnerError, match="damaged"), CheckpointFolder(place).local_copy(files, slice(1, None, 2)):
        pass


def test_a_host_that_does_not_see_the_folder_says_so_and_makes_none(tmp_path: Path) -> None:
    with (
        pytest.raises(LearnerError, match=r"rank 3 does not see the folder .* a folder that all nodes share"),
        CheckpointFolder(str(tmp_path / "elsewhere")).new_files(3),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_message_keeps_what_logs_in_to_itself(place: str) -> None:
    with pytest.raises(LearnerError, match="absent") as raised:
        CheckpointFolder(place).check([WrittenFile("absent", 1, "0")])
    assert "password@" not in str(raised.value)
    assert str(raised.value).startswith(place.replace("name:password@", "").split("?")[0])


def test_a_failed_save_leaves_nothing_of_its_rank(place: str) -> None:
    def save() -> None:
        with CheckpointFolder(place).new_files(0) as (folder, _):
            (folder / "half").write_text("")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        save()
    system, base = pafs.FileSystem.from_uri(place) if "://" in place else (pafs.LocalFileSystem(), place)
    assert not system.get_file_info(pafs.FileSelector(base, recursive=True, allow_not_found=True))
