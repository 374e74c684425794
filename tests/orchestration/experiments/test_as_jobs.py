"""A sweep as jobs of a cluster: so many at once, and the same command goes on. The server keeps records alone."""

from __future__ import annotations

from pathlib import Path

from cluster.attempts import finished_line
from cluster.client import Jobs, JobState
from cluster.job import RUN
from orchestration.experiments.as_jobs import run_as_jobs
from orchestration.experiments.sweep import Sweep, read_sweep
from tests.cluster.fake_jobs import FakeJobs, serving

EARLY = "EARLY"


def sweep_in(folder: Path) -> Sweep:
    path = folder / "study.yml"
    path.write_text(f"root: {folder}/runs\narms: [local, h200]\nseeds: [0, 1]\n")
    return read_sweep(path)


def take(sweep: Sweep, fake: FakeJobs, at_once: int, ends: dict[str, str]) -> tuple[list[str], list[str], int]:
    """What the sweep tells, the runs that failed, and the most jobs that were under way. With every fourth look at the
    jobs the oldest one under way ends as `ends` says, SUCCEEDED unless told, or EARLY: its job alone does."""
    told, most, looks = list[str](), 0, 0

    class Watched(Jobs):
        def all(self) -> list[JobState]:
            nonlocal most, looks
            looks += 1
            under_way = [name for name, job in fake.jobs.items() if job.status == "RUNNING"]
            most = max(most, len(under_way))
            if under_way and looks % 4 == 0:
                name = under_way[0]
                end = ends.get(name, "SUCCEEDED")
                run = fake.submitted(name)["metadata"][RUN]
                fake.jobs[name].log = "" if end == EARLY else f"{finished_line(run)}\n"
                fake.end(name, "SUCCEEDED" if end == EARLY else end, 0)
            return super().all()

    failed = run_as_jobs(sweep, Watched(fake.url), at_once, told.append, installed=True, poll_seconds=0.01)
    return told, [trial.name for trial in failed], most


def test_all_runs_are_submitted_so_many_at_once_and_failures_stop_no_other(tmp_path: Path) -> None:
    with serving() as fake:
        told, failed, most = take(sweep_in(tmp_path), fake, 2, {"h200-s0": "FAILED"})
        assert list(fake.jobs) == ["local-s0", "h200-s0", "local-s1", "h200-s1"]
        assert failed == ["h200-s0"]
        assert most <= 2
        assert "h200-s0: job h200-s0 is FAILED" in told
        assert fake.submitted("local-s1")["metadata"]["warpsmith.directory"] == f"{tmp_path}/runs/local-s1"
        again, failed, _ = take(sweep_in(tmp_path), fake, 1, {})
        assert failed == []
        assert list(fake.jobs) == ["local-s0", "h200-s0", "local-s1", "h200-s1", "h200-s0-2"]
        assert "local-s0: finished, job local-s0" in again


def test_a_run_that_was_stopped_is_not_taken_for_finished(tmp_path: Path) -> None:
    """Its job succeeds: the run ended as it was asked to."""
    with serving() as fake:
        told, failed, _ = take(sweep_in(tmp_path), fake, 2, {"h200-s0": EARLY})
        assert failed == ["h200-s0"]
        assert "h200-s0: job h200-s0 is SUCCEEDED, but the run ended early; the same command goes on" in told
        assert take(sweep_in(tmp_path), fake, 2, {})[1] == []
        assert list(fake.jobs) == ["local-s0", "h200-s0", "local-s1", "h200-s1", "h200-s0-2"]
