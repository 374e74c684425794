"""A program that writes more than it may ends in its verdict, on hosts that contain it in different ways. The disk is
as it was, and the next program is judged as ever."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.evaluators.isolation.conftest import CANDIDATE, JudgeProcess

MODES = ("namespaces", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("container", "user", "bare")))
PROGRAM = """
import os, time
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        {work}
        return torch.tanh(x @ x)
"""
SMALL = """
        for n in range(10_000):
            open(f"{folder}/{{n}}", "w").close()
"""
IN_FOLDERS = """
        for n in range(10_000):
            os.makedirs(f"{folder}/{{n % 50}}/{{n}}")
"""
LARGE = """
        for n in range(100):
            with open(f"{folder}/{{n}}", "wb") as file:
                file.write(bytes(4 << 20))
"""
LATER = """
        if os.fork() == 0:
            for n in range(100):
                with open(f"{folder}/{{n}}", "wb") as file:
                    file.write(bytes(4 << 20))
            os._exit(0)
        os.wait()
"""
DEEP = """
        os.chdir(f"{folder}")
        for n in range(200):
            os.mkdir("d")
            os.chdir("d")
"""
WITHOUT_A_NAME = """
        kept = []
        for n in range(400):
            kept.append(open(str(n), "wb"))
            os.unlink(str(n))
            os.posix_fallocate(kept[-1].fileno(), 0, 2 << 20)
            time.sleep(0.01)  # a disk that is full at once has its room back as soon as this raises
"""
OWN, COMPILERS = ".", "{os.environ['TRITON_CACHE_DIR']}"
"""The program's own folder, and that of the caches of what it compiles as it runs (as Triton does)."""
QUOTA = "64 MiB in 1000 files"


def used(judge: JudgeProcess) -> tuple[int, int]:
    """Bytes and files in the folder that the judge and its programs write to."""
    found = [path.lstat() for path in judge.folder.rglob("*")]
    return sum(status.st_blocks * 512 for status in found), len(found)


def assert_ends(judge: JudgeProcess, work: str) -> str:
    """The program with these lines ends as it should, leaves nothing, and the next one is judged. Returns the
    message."""
    assert judge.about
    before = used(judge)
    verdict = judge.judge(PROGRAM.format(work=work.strip()))
    assert verdict["outcome"] == "runtime_error", verdict
    assert QUOTA in verdict["message"]
    after = used(judge)
    assert after[0] - before[0] < 2 << 20  # the judge keeps what it learns of compilers
    assert after[1] - before[1] < 100
    after_it = judge.judge(CANDIDATE + f"\n# {work!r}\nwork = {work!r}\n")
    assert after_it["outcome"] in ("ok", "suspect"), after_it  # a busy machine may doubt times
    return str(verdict["message"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "work",
    [*(pytest.param(work, marks=pytest.mark.slow) for work in (SMALL, IN_FOLDERS)), LARGE, LATER],
    ids=["small", "in folders", "large", "later"],
)
def test_a_program_that_fills_its_folder_ends(judges, mode, work) -> None:
    assert_ends(judges[mode], work.format(folder=OWN))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("work", [SMALL, LARGE, DEEP], ids=["small", "large", "deep"])
def test_a_program_that_fills_the_folder_of_its_artifact_ends(judges, mode, work) -> None:
    judge = judges[mode]
    message = assert_ends(judge, "# triton\n" + work.format(folder=COMPILERS))
    assert message.startswith("the program")


@pytest.fixture(scope="module")
def on_a_small_disk(can_restrict) -> Iterator[JudgeProcess]:
    judge = JudgeProcess("container", disk="512m")
    try:
        yield judge
    finally:
        judge.close()


@pytest.mark.slow
def test_files_without_a_name_fill_no_disk(on_a_small_disk) -> None:
    """They are in no folder, and are gone with the program."""
    message = assert_ends(on_a_small_disk, WITHOUT_A_NAME)
    assert "the program kept" in message


@pytest.mark.slow
def test_a_disk_that_others_have_filled_is_not_held_against_a_program(on_a_small_disk) -> None:
    """A program that finds no room there is judged again when there is room."""
    on_a_small_disk.judge(CANDIDATE)
    others = on_a_small_disk.folder / "others"
    others.touch()
    disk = os.statvfs(others)
    with open(others, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - (16 << 20))
    program = PROGRAM.format(work=LARGE.format(folder=OWN).strip())
    verdict = on_a_small_disk.judge(program)
    assert verdict["outcome"] == "infra", verdict
    assert "is full" in verdict["message"]
    others.unlink()
    assert on_a_small_disk.judge(program)["outcome"] == "runtime_error"
