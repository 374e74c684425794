"""Folders of dead judges are removed, and those of living ones are not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evaluators.evaluator import Evaluator
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.folders import own_prefix, remove_left_folders
from evaluators.host.zygote_handle import ZygoteHandle

MAKES = """
import sys, tempfile
from evaluators.host.folders import own_prefix
tempfile.tempdir = sys.argv[1]
print(*(tempfile.mkdtemp(prefix=own_prefix(kind)) for kind in ("runner", "store", "build")), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_the_folders_of_a_judge_are_removed_after_its_end_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKES, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as judge:
        assert judge.stdout is not None
        made = [Path(name) for name in judge.stdout.readline().split()]
        (made[0] / "file").touch()
        remove_left_folders()
        assert [folder.is_dir() for folder in made] == [True] * 3
        judge.kill()
        judge.wait()
    remove_left_folders()
    assert [folder.exists() for folder in made] == [False] * 3


@pytest.mark.parametrize(
    "change",
    [
        lambda name: name.replace(f"-{os.getpid()}-", "-1-"),  # the number was given to another process
        lambda name: name.replace(f"-{os.getpid()}-", f"-{2**22 + 1}-"),
    ],
    ids=["number given again", "no such process"],
)
def test_a_folder_whose_judge_is_gone_is_left_over(tmp_path: Path, change) -> None:
    (left := tmp_path / f"{change(own_prefix('runner'))}abc").mkdir()
    remove_left_folders()
    assert not left.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda name: name,
        lambda name: "warpsmith-runner-abcdefgh",
        lambda name: name.replace("runner", "slots"),
        lambda name: "warpsmith-runner-" + "0" * 8 + f"-{2**22 + 1}-5-",
        lambda name: f"other-{name}",
    ],
    ids=["alive", "of no known judge", "another kind", "another host or container", "another program's"],
)
def test_no_other_folder_is_removed(tmp_path: Path, change) -> None:
    (kept := tmp_path / f"{change(own_prefix('runner'))}abc").mkdir()
    remove_left_folders()
    assert kept.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (kept := tmp_path / "kept").mkdir()
    (tmp_path / f"{own_prefix('runner')}abc".replace(f"-{os.getpid()}-", f"-{2**22 + 1}-")).symlink_to(kept)
    remove_left_folders()
    assert kept.exists()


def test_a_zygote_removes_what_is_left_of_others_when_it_starts(tmp_path: Path) -> None:
    (left := tmp_path / f"{own_prefix('store')}abc".replace(f"-{os.getpid()}-", f"-{2**22 + 1}-")).mkdir()
    zygote = ZygoteHandle(CpuDevice())
    try:
        zygote.start()
        assert not left.exists()
    finally:
        zygote.close()


def test_an_evaluators_own_store_names_its_process() -> None:
    with Evaluator("cpu") as evaluator:
        assert evaluator.store.name.startswith(own_prefix("store"))
