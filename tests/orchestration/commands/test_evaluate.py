"""What the options of `evaluate` and `baseline` become, and the second opinion of another GPU."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
import torch

from evaluators.evaluator import Evaluator
from evaluators.host.open_device import open_device
from evaluators.records import Task
from evaluators.tasks import find_task
from orchestration.commands.evaluate import (
    baselines_named,
    chosen_levels,
    confirmation,
    default_store,
    measured_by,
    open_to_runners,
    second_gpu,
    warn_if_closed,
)

WRONG = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x"
SAME = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.nn.functional.gelu(x)
"""
GELU = Task(
    "level1/9",
    1,
    "gelu",
    SAME.replace("ModelNew", "Model")
    + "\nrows = 64\ndef get_inputs(): return [torch.randn(rows, 512)]\ndef get_init_inputs(): return []\n",
)


def test_all_stands_for_the_baselines_of_the_architecture() -> None:
    assert baselines_named("all", "cpu") == ("eager", "torch_compile", "torch_compile_reduce_overhead")
    assert baselines_named("all", "H200")[-2:] == ("cuda_graph", "cudnn")
    assert baselines_named("eager, torch_compile,eager", "cpu") == ("eager", "torch_compile")


def test_levels_choose_tasks() -> None:
    tasks = [Task(f"level{level}/1", level, "x", "") for level in (1, 2, 3)]
    assert [task.level for task in chosen_levels(tasks, "1, 3")] == [1, 3]
    assert chosen_levels(tasks, "") == tasks


def test_the_default_store_follows_the_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_store() == tmp_path / "warpsmith"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for user, folder in ((0, Path("/var/cache/warpsmith")), (1000, tmp_path / ".cache/warpsmith")):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        assert default_store() == folder


def test_other_users_may_enter_a_store_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with open_to_runners():
            Evaluator("cpu", store=tmp_path / "store").close()
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o755


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_root_is_told_of_a_store_that_its_runners_cannot_enter(
    mode: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with tempfile.TemporaryDirectory() as place:  # pytest's own stands in a private one
        folder = Path(place)
        folder.chmod(mode)
        (folder / "store").mkdir(mode=0o755)
        warn_if_closed(folder / "store")
        assert [place in line for line in caplog.messages] == ([True] if mode == 0o700 else [])


def test_a_cpu_has_no_second_of_its_kind(tmp_path: Path) -> None:
    device = open_device("cpu")
    assert second_gpu(device) is None
    assert confirmation(device, tmp_path)(find_task("softmax"), SAME) is None


@pytest.mark.slow
def test_a_second_opinion_is_the_speedup_of_a_process_of_its_own(tmp_path: Path) -> None:
    speedup = measured_by("", "cpu", GELU, SAME, tmp_path)
    assert speedup is not None
    assert 0.5 < speedup < 2.0


def test_a_program_that_is_wrong_there_is_not_confirmed(tmp_path: Path) -> None:
    assert measured_by("", "cpu", GELU, WRONG, tmp_path) == 0.0


def test_without_a_verdict_there_is_no_second_opinion(tmp_path: Path) -> None:
    assert measured_by("", "K80", GELU, SAME, tmp_path) is None


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_second_gpu_of_the_same_name_gives_the_second_opinion(tmp_path: Path) -> None:
    device = open_device("auto")
    other = second_gpu(device)
    assert other is not None
    assert other != device.name
    speedup = confirmation(device, tmp_path)(GELU, SAME)
    assert speedup is not None
    assert 0.5 < speedup < 2.0
