"""The difference between two processes is measured before the candidate is loaded, and leaves it nothing to find."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import pytest

from configs.schema import LimitsConfig
from evaluators.compile.run_settings import runner_limits
from evaluators.evaluator import Evaluator
from evaluators.failures import InfraError
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.judge.calibration import calibrate
from evaluators.judge.pair import RunnerPair
from evaluators.records import Outcome, Task
from evaluators.tasks import TaskProgram
from tests.evaluators.outcomes import assert_ok

pytestmark = pytest.mark.measures

SOURCE = """import os
import time

import torch
import torch.nn as nn

FACTOR = 1


class Model(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, x):
        until = time.perf_counter() + self.seconds + 2e-4 * os.environ.get("SIDE", "").endswith("slow")
        while time.perf_counter() < until:
            pass
        return x * FACTOR


def get_inputs():
    return [torch.randn(64)]


def get_init_inputs():
    return [1e-4]
"""
TASK = Task("test/waits", 1, "waits", SOURCE)


@pytest.fixture
def device(monkeypatch) -> CpuDevice:
    """A CPU whose processes are calibrated, as a GPU's are."""
    monkeypatch.setattr(CpuDevice, "calibrated_seconds", 1e-2)
    return CpuDevice()


@pytest.fixture
def pair(device: CpuDevice, limits: LimitsConfig, tmp_path) -> Iterator[RunnerPair]:
    """Two processes with inputs and outputs bound. In the candidate's, a call takes 0.2 ms longer: bursts are so short
    that other load interrupts few of their calls."""
    zygote, slot = ZygoteHandle(device), device.acquire(300.0)
    runners = [
        RunnerHandle(zygote, device, slot, side, runner_limits(limits), {"SIDE": str(tmp_path / name)})
        for side, name in enumerate(("plain", "slow"))
    ]
    for runner in runners:
        runner.begin_start()
        runner.end_start(10.0)
    made = RunnerPair(device, runners[0], runners[1], TASK.id)
    yield made
    for runner in runners:
        runner.close()
    zygote.close()
    device.release()


def offsets(pair: RunnerPair, task: Task) -> list[float]:
    program = TaskProgram(task)
    pair.runners[0].load(program.source, "Model", 10.0)
    example = program.inputs(1)
    pair.bind(example, program.output_spec(1, program.init_inputs(1), example), 10.0)
    return calibrate(pair, program, program.init_inputs(1), pair.device, 10.0).offsets


def test_the_reference_alone_shows_that_a_process_is_slower(pair) -> None:
    found = offsets(pair, TASK)
    assert len(found) >= 6
    assert median(found) == pytest.approx(2e-4, rel=0.2)


def test_a_long_reference_needs_no_calibration(pair, monkeypatch) -> None:
    monkeypatch.setattr(CpuDevice, "calibrated_seconds", 1e-4)
    assert offsets(pair, TASK) == [0.0]


def test_a_reference_that_fails_in_either_process_is_our_failure(pair) -> None:
    source = SOURCE.replace(
        "        until", "        assert not os.environ.get('SIDE', '').endswith('slow')\n        until"
    )
    with pytest.raises(InfraError, match="test/waits"):
        offsets(pair, Task("test/waits", 1, "waits", source))


def test_calibration_changes_no_judgement(device, limits) -> None:
    # It has as many bytes as the reference. Python's bytecode cache would take it for the same file.
    candidate = SOURCE.replace("class Model(", "class ModelNew(").replace("FACTOR = 1\n", "FACTOR = 2\n")
    reference = SOURCE.replace("FACTOR = 1\n", "FACTOR = 1  #\n")
    assert len(candidate) == len(reference)
    with Evaluator(arch="cpu", limits=limits) as evaluator:
        evaluator.device.calibrated_seconds = 1e-2
        task = Task("test/waits", 1, "waits", reference)
        wrong = evaluator.evaluate(task, candidate)
        right = evaluator.evaluate(task, candidate.replace("FACTOR = 2", "FACTOR = 1"))
    assert wrong.outcome is Outcome.WRONG
    assert_ok(right)
    assert right.cost["calibrate"] > 0


@pytest.mark.parametrize(
    "finds",
    [
        "'reference' in sys.modules",
        "os.path.exists('reference.py')",
        "os.path.exists('__pycache__')",
        "any(kind.__module__ == 'reference' for kind in nn.Module.__subclasses__())",
    ],
)
def test_the_candidate_finds_no_reference_in_its_process(device, limits, finds) -> None:
    """It would gain nothing by that, but a freshly imported program should not depend on what ran before it."""
    top = f"import torch.nn as nn\nimport sys\nassert not {finds}\n"
    candidate = SOURCE.replace("import torch.nn as nn\n", top, 1).replace("class Model(", "class ModelNew(")
    with Evaluator(arch="cpu", limits=limits) as evaluator:
        evaluator.device.calibrated_seconds = 1e-2
        verdict = evaluator.evaluate(TASK, candidate)
        assert_ok(verdict)


def test_a_reference_whose_form_changes_is_our_failure_with_calibration_too(device, limits) -> None:
    source = SOURCE.replace("return x * FACTOR", "return x * FACTOR, float(x.sum())")
    with Evaluator(arch="cpu", limits=limits) as evaluator:
        evaluator.device.calibrated_seconds = 1e-2
        verdict = evaluator.evaluate(Task("test/waits", 1, "waits", source), source.replace("Model(", "ModelNew("))
    assert verdict.outcome is Outcome.INFRA
    assert "output changes" in verdict.message
