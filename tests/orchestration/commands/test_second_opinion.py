"""The second opinion of another GPU of the same kind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evaluators.host.open_device import open_device
from evaluators.records import Task
from evaluators.tasks import find_task
from orchestration.commands.second_opinion import find_second_gpu, make_confirm, measure_on_gpu

WRONG = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x"
SAME = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.nn.functional.gelu(x)
"""
SLOWER = SAME.replace("import torch\n", "import time\n\nimport torch\n", 1).replace(
    "return ", "time.sleep(0.02); return "
)
GELU = Task(
    "level1/9",
    1,
    "gelu",
    SAME.replace("ModelNew", "Model")
    + "\nrows = 64\ndef get_inputs(): return [torch.randn(rows, 512)]\ndef get_init_inputs(): return []\n",
)


def test_a_cpu_gives_no_second_opinion(tmp_path: Path) -> None:
    device = open_device("cpu")
    assert find_second_gpu(device) is None
    assert make_confirm(device, tmp_path)(find_task("softmax"), SAME) is None


@pytest.mark.slow
def test_a_separate_process_measures_the_second_opinion(tmp_path: Path) -> None:
    same, slower = (measure_on_gpu("", "cpu", GELU, source, tmp_path) for source in (SAME, SLOWER))
    assert same is not None
    assert slower is not None
    assert 0.0 < slower < same / 2  # 30 us beside 20 ms: no load of the machine hides that


@pytest.mark.slow
def test_a_wrong_program_is_not_confirmed(tmp_path: Path) -> None:
    assert measure_on_gpu("", "cpu", GELU, WRONG, tmp_path) == 0.0


@pytest.mark.slow
def test_without_a_verdict_there_is_no_second_opinion(tmp_path: Path) -> None:
    assert measure_on_gpu("", "K80", GELU, SAME, tmp_path) is None


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_second_gpu_of_the_same_name_gives_the_second_opinion(tmp_path: Path) -> None:
    device = open_device("auto")
    other = find_second_gpu(device)
    assert other is not None
    assert other != device.name
    speedup = make_confirm(device, tmp_path)(GELU, SAME)
    assert speedup is not None
    assert 0.5 < speedup < 2.0
