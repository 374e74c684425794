"""A runner that does not start says why, Inductor is set up once, and shared folders are safe from other users."""

from __future__ import annotations

import os
import time

import pytest

from configs.schema import LimitsConfig
from evaluators.compile.run_settings import runner_limits
from evaluators.failures import InfraError
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.folders import own_folder
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.zygote_handle import ZygoteHandle


@pytest.mark.parametrize("wait", [0.0, 0.5])  # whether it has ended before it is asked
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
    zygote, slot = ZygoteHandle(device), device.acquire(300.0)
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


KNOWS = """
from torch._inductor import cpu_vec_isa
known = cpu_vec_isa.valid_vec_isa_list.cache_info().currsize
ModelNew = 1 / known
"""


@pytest.mark.slow
def test_a_runner_inherits_the_vector_instructions_that_inductor_can_use(limits: LimitsConfig) -> None:
    device = CpuDevice()
    zygote, slot = ZygoteHandle(device), device.acquire(300.0)
    try:
        zygote.prepare_inductor()
        runner = RunnerHandle(zygote, device, slot, 0, runner_limits(limits))
        try:
            runner.begin_start()
            runner.end_start(10.0)
            runner.load(KNOWS, "ModelNew", 10.0)
        finally:
            runner.close()
    finally:
        zygote.close()
        device.release()


def test_files_that_root_will_run_are_in_a_folder_of_its_own(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = own_folder("made")
    assert own == own_folder("made")
    assert own.parent == tmp_path
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"linked-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    assert own_folder("linked").name.startswith("linked-")
    assert not own_folder("linked").is_symlink()
    own.chmod(0o777)
    assert own_folder("made") != own
