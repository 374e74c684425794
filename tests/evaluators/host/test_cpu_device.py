"""One evaluator at a time holds a measuring slot, and shared memory keeps its size whatever a runner does."""

from __future__ import annotations

import mmap
import os
import tempfile
import time

import pytest
import torch

from evaluators.host.cpu_device import CpuDevice
from evaluators.host.open_device import open_device
from evaluators.runner.device import runner_device

CORES = len(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_every_slot_is_held_by_one_device_at_a_time() -> None:
    devices = [CpuDevice() for _ in range(CORES)]
    slots = [device.acquire(1.0) for device in devices]
    assert len({slot.cores for slot in slots}) == CORES
    late = CpuDevice()
    with pytest.raises(TimeoutError, match="no free measuring slot"):
        late.acquire(0.1)
    devices[0].release()
    assert late.acquire(1.0) == slots[0]
    for device in (*devices, late):
        device.release()


def test_slots_of_different_widths_never_share_a_core() -> None:
    narrow, wide = CpuDevice(threads=1), CpuDevice(threads=CORES)
    for _ in range(2):
        slot = narrow.acquire(1.0)
        with pytest.raises(TimeoutError):
            wide.acquire(0.1)
        narrow.release()
        assert set(slot.cores) <= set(wide.acquire(1.0).cores)
        with pytest.raises(TimeoutError):
            narrow.acquire(0.1)
        wide.release()


def test_a_release_without_a_slot_does_nothing() -> None:
    CpuDevice().release()


def test_shared_memory_keeps_its_size() -> None:
    region = CpuDevice().allocate(4096)
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(region.descriptor, size)
    with mmap.mmap(region.descriptor, 4096) as other:
        other[:4] = b"\x01\x02\x03\x04"
    assert region.memory[:4].tolist() == [1, 2, 3, 4]
    assert region.memory.dtype is torch.uint8
    region.close()


def test_versions_differ_with_the_number_of_threads() -> None:
    assert set(CpuDevice().versions()) == {"arch", "torch", "cpu", "threads"}
    assert CpuDevice(threads=1).versions() != CpuDevice(threads=2).versions()


@pytest.mark.parametrize("most", [1, 3, 8])
@pytest.mark.parametrize("seconds", [0.0, 1e-7, 1e-3, 2.0])
def test_a_burst_is_longer_for_shorter_calls_and_fits_its_slots(seconds, most) -> None:
    calls, warm = CpuDevice().calls(seconds, most)
    assert calls >= 1
    assert calls == 1 or 2 * calls <= most, "a burst of twice as many calls must fit, too"
    assert warm == 0
    assert calls >= CpuDevice().calls(2 * seconds, most)[0]
    assert CpuDevice().calls(1e-7, most)[0] == max(1, most // 2)
    assert CpuDevice().calls(2.0, most)[0] == 1


def test_the_runners_half_reads_and_writes_the_judges_memory() -> None:
    device = CpuDevice()
    region = device.allocate(4096)
    half = runner_device(device.runner_options(1 << 30))
    theirs = half.map(os.dup(region.descriptor), region.size)
    theirs[:3] = torch.tensor([5, 6, 7], dtype=torch.uint8)
    region.memory[3] = 8
    assert region.memory[:3].tolist() == [5, 6, 7]
    assert int(theirs[3]) == 8
    region.close()


def test_the_runners_half_times_one_call_and_seeds_it() -> None:
    half = runner_device(CpuDevice().runner_options(1 << 30))

    def forward(size: int) -> torch.Tensor:
        time.sleep(0.02)
        return torch.rand(size)

    drawn = []
    for seed in (1, 1, 2):
        half.seed(seed)
        output, seconds = half.timed(forward, [8])
        assert 0.02 <= seconds < 1.0
        drawn.append(output)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert half.tracer() is None


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(ValueError, match="Z80"):
        open_device("Z80")
