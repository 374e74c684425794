"""The newest checkpoints and the best stay, with their buffers; the committed one always, and the others until then."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest

from learners.checkpoint_files import CheckpointFolder
from orchestration.run.commits import Commits, Snapshot
from orchestration.run.directory import RunDirectory
from orchestration.run.retention import SCORES, Retention, best, scored
from orchestration.run.state import RunState
from orchestration.run.storage import Storage
from tests.flaky_files import flaky, remote


@pytest.fixture(params=["local", "remote"])
def run(request, tmp_path: Path) -> RunDirectory:
    if request.param == "local":
        return RunDirectory(tmp_path, "demo")
    return RunDirectory("", "demo", storage=Storage(remote(tmp_path), "demo", "remote://demo"))


def snapshot(run: RunDirectory, version: int) -> Snapshot:
    storage = run.storage
    draft = run.checkpoints.begin(f"step-{version:06d}")
    place, system = (draft.place, None) if run.local_path else (storage.full(draft.path), storage.filesystem)
    with CheckpointFolder(place, system=system).new_files(0) as (folder, written):
        (folder / "weights").write_text(str(version))
    checkpoint = run.checkpoints.commit(draft, written)
    return Snapshot(version, checkpoint, run.buffers.write(pa.table({"score": [version]}), version))


def assess(commits: Commits, run: RunDirectory, version: int, faster: float, success: float = 0.5) -> None:
    """A phase that ends, and the assessment of its policy."""
    key = f"{version}-sft"
    commits.complete(key, 1, {}, snapshot(run, version))
    commits.record_assessment(key, {"faster_rate": faster, "success_rate": success, "mean_speedup": 9.0})


def kept(run: RunDirectory) -> list[int]:
    """The versions whose checkpoints stand there; their buffers must, too, and no other."""
    versions = [int(path[-6:]) for path in run.checkpoints.paths()]
    buffers = [int(path.split("-")[1]) for path in run.storage.files("buffer")]
    assert sorted(versions) == sorted(buffers)
    return sorted(versions)


def test_the_newest_and_the_best_stay_beside_the_committed_one(run: RunDirectory) -> None:
    commits = Commits(run, RunState(), Retention(last=1, best=2))
    seen = []
    for version, faster in enumerate((0.2, 0.9, 0.1, 0.5, 0.3, 0.2), start=1):
        assess(commits, run, version, faster)
        seen.append(kept(run))
    assert seen == [[1], [1, 2], [1, 2, 3], [2, 3, 4], [2, 4, 5], [2, 4, 5, 6]]
    commits.advance("7-sft", 1, {}, snapshot(run, 7))
    commits.advance("7-sft", 2, {}, snapshot(run, 8))
    assert kept(run) == [2, 4, 7, 8]
    resumed = run.read_state()
    assert resumed is not None
    Commits(run, resumed, Retention(last=0, best=1)).write()
    assert kept(run) == [2, 8]
    Commits(run, resumed, Retention(last=0, best=0)).write()
    assert kept(run) == [8]


def test_nothing_is_removed_before_the_new_state_is_written(tmp_path: Path) -> None:
    is_broken = False

    def fault(operation: str) -> OSError | None:
        return OSError(errno.EIO, "away") if is_broken else None

    run = RunDirectory("", "demo", storage=Storage(flaky(remote(tmp_path), fault), "demo", "remote://demo"))
    commits = Commits(run, RunState(), Retention(last=0, best=0))
    commits.advance("1-sft", 1, {}, snapshot(run, 1))
    second, is_broken = snapshot(run, 2), True
    with pytest.raises(OSError, match="away"):
        commits.advance("1-sft", 2, {}, second)
    is_broken = False
    assert kept(run) == [1, 2]
    state = run.read_state()
    assert state is not None
    assert state.policy_version == 1
    commits.advance("1-sft", 2, {}, second)
    assert kept(run) == [2]


def state_with(*scores: tuple[str, float, float]) -> RunState:
    state = RunState()
    for checkpoint, faster, success in scores:
        state = RunState(checkpoint=checkpoint, buffer="b", extra=state.extra)
        rows = scored(state, "stage", {"faster_rate": faster, "success_rate": success})
        state = RunState(checkpoint=checkpoint, extra={SCORES: rows})
    return state


def names(state: RunState, count: int, present: str) -> list[str]:
    return [row["checkpoint"] for row in best(state, count, list(present))]


def test_more_right_samples_and_then_the_later_phase_decide_between_equals() -> None:
    state = state_with(("a", 0.5, 0.6), ("b", 0.5, 0.7), ("c", 0.5, 0.7), ("d", 0.4, 1.0))
    assert names(state, 4, "abcd") == ["c", "b", "a", "d"]


def test_what_is_not_there_takes_no_place_of_the_best() -> None:
    """A bundle has the committed checkpoint alone."""
    state = state_with(("a", 0.9, 0.9), ("b", 0.5, 0.7), ("c", 0.6, 0.7))
    assert names(state, 1, "bc") == ["c"]


def test_the_score_is_that_of_the_held_out_tasks_if_there_are_any() -> None:
    state = RunState(checkpoint="a", buffer="b")
    figures = {"faster_rate": 0.9, "success_rate": 0.8, "held_out/faster_rate": 0.1, "held_out/success_rate": 0.2}
    assert scored(state, "1-sft", figures) == [
        {"stage": "1-sft", "checkpoint": "a", "buffer": "b", "score": [0.1, 0.2]}
    ]


def test_a_policy_that_is_assessed_again_has_its_last_score_alone_and_other_stages_have_none() -> None:
    state = state_with(("a", 0.9, 0.9), ("a", 0.5, 0.7))
    assert [row["score"] for row in state.extra[SCORES]] == [[0.5, 0.7]]
    assert scored(state, "constant/reference", {}) == state.extra[SCORES]
    assert scored(RunState(), "base", {"faster_rate": 0.5, "success_rate": 0.5}) == []
