"""A checkpoint counts once the driver sees all that the ranks wrote, in a shared folder and on an object store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from learners.checkpoint_files import CheckpointFolder, WrittenFile
from learners.errors import LearnerError
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import RunDirectoryError
from orchestration.run.snapshots import Draft


@pytest.fixture(params=["shared folder", "object store"])
def run(request, tmp_path) -> RunDirectory:
    if request.param == "shared folder":
        return RunDirectory(tmp_path, "demo")
    return RunDirectory(request.getfixturevalue("object_store").format(tmp_path.name), "demo")


def save(draft: Draft, content: bytes = b"weights", ranks: int = 2) -> list[WrittenFile]:
    """What the ranks of a learner do, and rank 0's export."""
    files = []
    for rank in range(ranks):
        with CheckpointFolder(draft.place).new_files(rank) as (folder, written):
            (folder / f"shard-{rank}").write_bytes(content)
        files += written
    with CheckpointFolder(draft.place).new_files(0, below="policy") as (folder, written):
        (folder / "model").write_bytes(b"whole")
    return files + written


def content_of(run: RunDirectory, path: str) -> dict[str, bytes]:
    place, files = run.checkpoints.locate(path)
    with CheckpointFolder(place).local_copy(files) as local:
        return {file.path: (local / file.path).read_bytes() for file in files}


def test_a_checkpoint_is_found_as_its_ranks_wrote_it(run: RunDirectory) -> None:
    draft = run.checkpoints.begin("step-000001")
    files = save(draft)
    path = run.checkpoints.commit(draft, files)
    assert path == "checkpoints/step-000001"
    assert run.checkpoints.paths() == [path]
    assert content_of(run, path) == {"shard-0": b"weights", "shard-1": b"weights"}  # not the export
    assert (run.checkpoints.fetch(path) / "policy" / "model").read_bytes() == b"whole"
    with pytest.raises(RunDirectoryError, match="no such checkpoint"):
        run.checkpoints.locate("checkpoints/step-000002")


def test_what_the_driver_does_not_see_is_no_checkpoint(run: RunDirectory) -> None:
    """Ranks that wrote to a folder of their own hosts: nothing was committed, and an older checkpoint stays."""
    old = run.checkpoints.begin("step-000001")
    path = run.checkpoints.commit(old, save(old))
    draft = run.checkpoints.begin("step-000002")
    files = save(draft)
    elsewhere = [*files, replace(files[0], path="shard-2")]
    with pytest.raises(LearnerError, match="shard-2: a learner rank wrote it, and it is not there"):
        run.checkpoints.commit(draft, elsewhere)
    with pytest.raises(LearnerError, match="shard-0: 7 bytes, and 8 were written"):
        run.checkpoints.commit(draft, [replace(files[0], size=8)])
    assert content_of(run, path) == {"shard-0": b"weights", "shard-1": b"weights"}


def test_writing_a_checkpoint_again_leaves_the_committed_one_whole_until_then(run: RunDirectory) -> None:
    first = run.checkpoints.begin("step-000001")
    path = run.checkpoints.commit(first, save(first))
    again = run.checkpoints.begin("step-000001")
    files = save(again, b"newer")
    assert content_of(run, path) == {"shard-0": b"weights", "shard-1": b"weights"}
    newer = run.checkpoints.commit(again, files)
    assert content_of(run, newer) == {"shard-0": b"newer", "shard-1": b"newer"}
    run.checkpoints.prune(0, newer)
    assert run.checkpoints.paths() == [newer]


def test_a_checkpoint_of_an_earlier_version_has_no_list_and_is_found(run: RunDirectory) -> None:
    folder = run.checkpoints.new_folder("step-000001")
    (folder / "shard-0").write_bytes(b"weights")
    path = run.checkpoints.publish(folder, "step-000001")
    assert content_of(run, path) == {"shard-0": b"weights"}
    run.storage.delete(f"{path}/files.json")
    place, files = run.checkpoints.locate(path)
    assert files == []
    with CheckpointFolder(place).local_copy(files) as local:
        assert (local / "shard-0").read_bytes() == b"weights"


def test_the_password_of_a_store_is_in_no_message(object_store: str) -> None:
    run = RunDirectory(object_store.format("private"), "demo")
    assert str(run.storage) == "s3://bucket/private/demo"
    assert "password" in run.storage.uri("checkpoints")
