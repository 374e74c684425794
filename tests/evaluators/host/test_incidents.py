"""Evaluators learn of faults of other devices that happened after a given time, and of no others."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from evaluators.host.incidents import Incidents
from evaluators.host.locks import shared_folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def age(device: str, seconds: float) -> None:
    """Moves a device's last fault `seconds` into the past."""
    then = time.time() - seconds
    os.utime(shared_folder() / f"incident-{device}", (then, then))


def test_a_fault_concerns_other_devices_but_not_its_own() -> None:
    start = time.time() - 1.0  # the time of a file may lag by some milliseconds
    broken, beside = Incidents("GPU-a"), Incidents("GPU-b")
    assert beside.since(start) == []
    broken.record()
    assert beside.since(start) == ["GPU-a"]
    assert broken.since(start) == []


def test_only_faults_after_the_start_count() -> None:
    broken, beside = Incidents("GPU-a"), Incidents("GPU-b")
    broken.record()
    age("GPU-a", 60.0)
    assert beside.since(time.time() - 30.0) == []
    assert beside.since(time.time() - 90.0) == ["GPU-a"]
    broken.record()  # it fails again
    assert beside.since(time.time() - 30.0) == ["GPU-a"]


def test_several_devices_are_all_named() -> None:
    for name in ("GPU-a", "GPU-b", "GPU-c"):
        Incidents(name).record()
    assert sorted(Incidents("GPU-b").since(time.time() - 1.0)) == ["GPU-a", "GPU-c"]


def test_locks_in_the_same_folder_are_no_faults() -> None:
    (shared_folder() / "cpu-0").touch()
    assert Incidents("GPU-a").since(0.0) == []


def test_a_fault_just_after_the_start_counts() -> None:
    broken, beside = Incidents("GPU-a"), Incidents("GPU-b")
    for _ in range(200):
        start = time.time()
        broken.record()
        assert beside.since(start) == ["GPU-a"]


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path) -> None:
    (target := tmp_path / "target").touch(0o600)
    (shared_folder() / "incident-GPU-a").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        Incidents("GPU-a").record()
    assert target.stat().st_mode & 0o777 == 0o600


_AS_ANOTHER_USER = """
import os, sys, tempfile
from evaluators.host.incidents import Incidents
tempfile.tempdir = sys.argv[1]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
Incidents("GPU-a").record()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_evaluators_of_two_users_record_faults_of_one_device(monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        Path(folder).chmod(0o777)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        Incidents("GPU-a").record()
        age("GPU-a", 60.0)
        command = [sys.executable, "-c", _AS_ANOTHER_USER, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert Incidents("GPU-b").since(time.time() - 30.0) == ["GPU-a"]
