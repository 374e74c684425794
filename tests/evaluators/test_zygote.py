"""A runner that does not start says why."""

from __future__ import annotations

import time

import pytest

from configs.schema import LimitsConfig
from evaluators.build.builder import runner_limits
from evaluators.device.cpu import CpuDevice
from evaluators.failures import InfraError
from evaluators.runner_handle import RunnerHandle
from evaluators.zygote_handle import ZygoteHandle


@pytest.mark.parametrize("wait", [0.0, 0.5])  # it has ended before it is asked, or not yet
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "cpu", "beads": 7}, "(?s)exit code 70.*beads"),  # before it serves
        ({"kind": "cpu", "threads": "many"}, "(?s)did not start.*str"),  # when it is asked to start
    ],
)
def test_a_runner_that_does_not_start_says_why(limits: LimitsConfig, monkeypatch, options, message, wait) -> None:
    device = CpuDevice()
    monkeypatch.setattr(CpuDevice, "runner_options", lambda self, memory_bytes: options)
    zygote, slot = ZygoteHandle(device), device.acquire(10.0)
    runner = RunnerHandle(zygote, device, slot, 0, runner_limits(limits))
    time.sleep(wait)
    try:
        runner.begin_start()
        with pytest.raises(InfraError, match=message):
            runner.end_start(10.0)
    finally:
        runner.close()
        zygote.close()
        device.release()
