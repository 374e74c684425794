"""Windows of a run with its real processes: one is killed, one is stopped in time, one ends the run elsewhere, and one
begins another run with what that has done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from benchmarks.window import words_of
from orchestration.run.bundle_folder import read_bundle, read_manifest
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import RunDirectoryError
from tests.orchestration.test_windows import REPOSITORY, SMALL

PHASES = ["sft.epochs=3", "schedule.phases=[sft,contrastive_rl]", "contrastive_rl.steps=500"]
RUN = ["local", "root=first", *SMALL, *PHASES]


def window(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-m", "benchmarks.window", *words]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def is_locked(run: RunDirectory) -> bool:
    """Whether a process is running in it."""
    try:
        with run.lock():
            return False
    except RunDirectoryError:
        return True


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_in_windows_of_which_one_is_killed(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "first"), "small")
    bundle = tmp_path / "out" / "bundle"

    killed = window(tmp_path, "--out", "out", "--minutes", "20", "--every", "0.4", *RUN)
    deadline = time.monotonic() + 1200
    while not bundle.is_dir() or read_manifest(bundle)["run"]["phase"] != "contrastive_rl":
        assert killed.poll() is None, killed.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    left = read_bundle(bundle).about["run"]["policy_version"]
    while is_locked(run):
        assert time.monotonic() < deadline + 60, "a run ends with its window"
        time.sleep(0.2)

    stopped = window(tmp_path, "--out", "out", "--minutes", "1", "--reserve", "0.4", "--patience", "15", *RUN)
    said, _ = stopped.communicate(timeout=1200)
    assert stopped.returncode == 0, said
    assert "stopped after a commit; at 1-contrastive_rl step" in said
    made = read_manifest(bundle)["run"]
    assert made["policy_version"] > left
    state = run.read_state()
    assert state is not None
    assert state.policy_version == made["policy_version"]

    last = window(tmp_path, "--out", "last", "--assess-at", "0.2", "--from", "out/bundle", "root=second")
    said, _ = last.communicate(timeout=1200)
    assert last.returncode == 0, said
    assert "asked to end early; at 1-contrastive_rl step" in said
    assert ", finished" in said
    assert "assess/1-contrastive_rl" in said
    assert "assess/base" not in said, "that was another window's"
    assert read_manifest(tmp_path / "last" / "bundle")["run"]["finished"]
    with tarfile.open(tmp_path / "last" / "page.tar.gz") as archive:
        member = archive.extractfile("small/README.md")
        assert member is not None
        page = member.read().decode()
    for stage in ("base", "sft", "contrastive_rl"):
        assert f"| {stage} |" in page
    steps = RunDirectory(str(tmp_path / "second"), "small").metrics.read("1-contrastive_rl").to_pylist()
    logged = [row["step"] for row in steps if row["name"] == "step_seconds"]
    assert sorted(logged) == list(range(len(logged))), "each step was made once, as far as committed"

    later = ["schedule.phases=[sft,contrastive_rl,self_supervised]", "self_supervised.samples=1"]
    branch = window(tmp_path, "--out", "arm", "--from", "last/bundle", "--branch", "root=third", "name=arm", *later)
    said, _ = branch.communicate(timeout=1200)
    assert branch.returncode == 0, said
    assert "arm: ended by itself, exit code 0; at 1-self_supervised step 1, finished" in said
    own = {line.split()[0] for line in said.splitlines() if line.startswith((" 1-", " assess/"))}
    assert own == {"1-self_supervised", "assess/1-self_supervised"}, "all before was the other run's"
    arm = RunDirectory(str(tmp_path / "third"), "arm")
    assert arm.metrics.read("1-contrastive_rl").to_pylist() == steps
    assert arm.identity() != run.identity()


def test_a_window_goes_on_from_its_own_bundle_before_any_other(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    words = ["local", "name=x"]
    assert words_of(out, None, words, branch=False) == words
    assert words_of(out, other, words, branch=True) == ["--from-bundle", str(other), "--branch", "name=x"]
    (out / "bundle").mkdir(parents=True)
    (out / "bundle" / "manifest.json").write_text("{}")
    assert words_of(out, other, words, branch=True) == ["--from-bundle", str(out / "bundle"), "name=x"]


@pytest.mark.slow
def test_a_window_refuses_what_the_run_would_refuse(tmp_path: Path) -> None:
    refused = window(tmp_path, "--out", "out", "--from", "nothing")
    said, _ = refused.communicate(timeout=120)
    assert refused.returncode == 2
    assert "nothing is no bundle" in said
    assert not (tmp_path / "out").exists()
