"""A CUDA GPU as a device, from the judge's side.

Runs in the judge's process (trusted). The judge has a context of its own on the GPU, which the crash of a runner does
not reach. One lock per GPU (by UUID) keeps other evaluators of the host, and all else that Warpsmith runs there, away
while a candidate is measured.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

from evaluators.failures import InfraError
from evaluators.host.cpu_device import thread_environment
from evaluators.host.device import Slot
from evaluators.host.gate import Gate, GateTimer
from evaluators.host.locks import HostLocks
from evaluators.host.native import cuda_library
from evaluators.host.nvml import Nvml
from evaluators.records import ClockSample
from evaluators.shared.cuda_memory import CudaMemoryError, allocate
from evaluators.shared.region import Region
from evaluators.timing.clocks import Clock, EventClock

_FLUSHED_CACHES, _LEAST_FLUSH_BYTES = 3, 64 << 20  # a flush writes as much as so many L2 caches hold
_BLOCK_SECONDS, _BESIDE_SECONDS = 0.003, 3.8e-4  # of the calls of a burst; what one takes for flushes, waits and copies
_SHORT_SECONDS = 20e-6  # the times of shorter calls deviate by more of themselves: twice as many are made
_MAX_CALLS = 24
_WARM_UP_CALLS = 2
_SHARED_BYTES = 4 << 30  # the most that inputs and outputs of both sides together take at once
_GATE_BYTES, _GATE_PART = 8 << 30, 20  # the most that one runner has of memory that the judge reads; of the GPU's
_WARM_UP_SECONDS = 0.5
_KEPT_SHARE = 0.25  # of the GPU's memory: the judge may hold so much between evaluations
_HEALTH_SIZE = 2048
_CACHE_FACTOR = 4.0  # the L2 cache takes more bytes a second than memory: two to three times as many on GPUs so far
_HEALTH_FACTOR = 3.0  # times its first duration; lower clocks in between account for 2 at most
# Deviation between pairs of processes on one H200, beyond what their calibration and measurement show: about 10 ns for
# kernels of 4 to 16 µs, 70 ns for 130 µs.
_SPREAD_SECONDS, _SPREAD_SHARE, _MOST_SPREAD_SECONDS = 10e-9, 4e-4, 70e-9
_PASSED_ON = (
    *("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH"),
    "CUDA_MPS_PIPE_DIRECTORY",  # an evaluator that keeps away from MPS keeps its runners away, too
)


def arch_of(name: str) -> str:
    """Ray's accelerator name of a GPU, from its product name: `NVIDIA H200` gives `H200`, `NVIDIA A100-SXM4-80GB` gives
    `A100`."""
    words = re.sub(r"\b(NVIDIA|Tesla|GeForce|Quadro)\b", "", name).split()
    if words[:1] == ["RTX"]:
        return "-".join(words[:2])
    return re.split(r"[-\s]", words[0])[0] if words else "GPU"


class CudaDevice:
    """The GPU that is torch's current one in this process."""

    own_memory = True
    calibrated_seconds = 5e-3
    looks_first = starts_ahead = True
    keeps_reference = False  # not measured yet
    shares_tensors = False
    clock: Clock = EventClock()

    def __init__(self, *, threads: int = 1) -> None:
        self.threads = threads
        self.ordinal = torch.cuda.current_device()
        self.torch_device = torch.device("cuda", self.ordinal)
        properties = torch.cuda.get_device_properties(self.ordinal)
        self.arch = arch_of(properties.name)
        self.capability = f"{properties.major}.{properties.minor}"
        self.uuid = self.name = f"GPU-{properties.uuid}"
        self._properties = properties
        self._flush_bytes = max(_LEAST_FLUSH_BYTES, _FLUSHED_CACHES * properties.L2_cache_size)
        self._nvml = Nvml(self.uuid)
        self.hidden: Sequence[str] = self._nvml.other_gpus()
        self._locks: HostLocks[Slot] = HostLocks()
        self._shared: HostLocks[None] = HostLocks()
        self._lock = f"gpu-{self.uuid}"
        self._healthy: tuple[float, float] | None = None
        self._ballast: torch.Tensor | None = None
        self._gate_timer: GateTimer | None = None

    def allocate(self, size: int) -> Region:
        try:
            return allocate(size, self.ordinal)
        except CudaMemoryError as error:
            raise InfraError(f"{size / 2**30:.2f} GiB on {self.arch}: {error}") from error

    def new_gate(self, output_bytes: int, memory_bytes: int) -> Gate:
        size = min(_GATE_BYTES, self._properties.total_memory // _GATE_PART, memory_bytes)
        try:
            if self._gate_timer is None or self._gate_timer.is_stuck:
                self._gate_timer = GateTimer(self._flush_bytes, self.ordinal)
            return Gate(self._gate_timer, self.ordinal, output_bytes, size)
        except CudaMemoryError as error:
            raise InfraError(f"{size / 2**30:.2f} GiB behind a gate on {self.arch}: {error}") from error

    def acquire(self, timeout: float) -> Slot:
        near = sorted(self._nvml.cores() & os.sched_getaffinity(0) or os.sched_getaffinity(0))
        index = self._nvml.index() % len(near)
        core = near[-1 - index]  # the same for both sides, since no two cores are alike
        slot = Slot(self.ordinal, (core,), tuple(other for other in near if other != core) or (core,))
        return self._locks.acquire([(slot, [self._lock])], timeout)

    @contextmanager
    def unmeasured(self, timeout: float) -> Iterator[None]:
        self._shared.acquire([(None, [self._lock])], timeout, shared=True)
        try:
            yield
        finally:
            self._shared.release()

    def release(self) -> None:
        if torch.cuda.memory_reserved(self.ordinal) > _KEPT_SHARE * self._properties.total_memory:
            self.trim()
        self._locks.release()

    def trim(self) -> None:
        torch.cuda.empty_cache()

    def environment(self) -> Mapping[str, str]:
        return {
            **thread_environment(self.threads),
            **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            "CUDA_VISIBLE_DEVICES": self.uuid,
            # Otherwise `torch.cuda.is_available` in the zygote would start CUDA there, and no child could use it.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "TORCH_CUDA_ARCH_LIST": self.capability,
            "LD_PRELOAD": str(cuda_library()),
        }

    def versions(self) -> Mapping[str, str]:
        return {
            "arch": self.arch,
            "gpu": self._properties.name,
            "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda),
            "driver": self._nvml.driver_version(),
        }

    def runner_options(self, memory_bytes: int) -> dict[str, Any]:
        return {
            "kind": "cuda",
            "threads": self.threads,
            "flush_bytes": self._flush_bytes,
            "memory_bytes": memory_bytes,
        }

    def generators(self) -> Sequence[torch.Generator]:
        return (torch.default_generator, torch.cuda.default_generators[self.ordinal])

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.ordinal)

    def max_calls(self, slot_bytes: int) -> int:
        free, _ = torch.cuda.mem_get_info(self.ordinal)
        wanted = max(_WARM_UP_CALLS, _SHARED_BYTES // max(2 * slot_bytes, 1))
        return int(max(1, min(_MAX_CALLS, wanted, free // 3 // max(2 * slot_bytes, 1))))

    def calls(self, seconds: float, most: int) -> tuple[int, int]:
        block = _BLOCK_SECONDS if seconds >= _SHORT_SECONDS else 2 * _BLOCK_SECONDS
        measured = max(2, round(block / (max(seconds, 1e-6) + _BESIDE_SECONDS)))
        warm = _WARM_UP_CALLS if most >= 8 else int(most > 1)
        return min(most, measured + warm), warm

    def warm_up(self) -> None:
        if self._ballast is None:
            self._ballast = torch.ones(_HEALTH_SIZE, _HEALTH_SIZE, device=self.torch_device)
        wanted, deadline = 0.95 * self._nvml.highest_sm_mhz(), time.perf_counter() + _WARM_UP_SECONDS
        while time.perf_counter() < deadline:
            for _ in range(20):
                torch.mm(self._ballast, self._ballast)
            self.synchronize()
            if self._nvml.sample().sm_mhz >= wanted:
                return

    def clock_sample(self) -> ClockSample:
        return self._nvml.sample()

    def memory_in_use(self) -> int:
        # Without the memory that the judge's own allocator holds.
        return self._nvml.memory_in_use() - int(torch.cuda.memory_reserved(self.ordinal))

    def spread(self, seconds: float) -> float:
        return min(_MOST_SPREAD_SECONDS, _SPREAD_SECONDS + _SPREAD_SHARE * seconds) / seconds

    def floor_seconds(self, written: int) -> float:
        memory = self._nvml.highest_bytes_a_second()
        if not memory:
            return 0.0
        # Bytes that the L2 cache holds may get to memory after the call.
        beyond_cache = max(0, written - self._properties.L2_cache_size) / memory
        return float(max(written / (_CACHE_FACTOR * memory), beyond_cache))

    def check_health(self) -> None:
        self.warm_up()
        total, seconds = self._probe()
        if self._healthy is None:
            self._healthy = total, seconds
        healthy_total, healthy_seconds = self._healthy
        if total != healthy_total:
            raise InfraError(f"{self.arch} computes {total}; when it was healthy it computed {healthy_total}")
        if seconds > _HEALTH_FACTOR * healthy_seconds:
            raise InfraError(f"{self.arch} takes {seconds:.2e} s; when it was healthy it took {healthy_seconds:.2e} s")

    def _probe(self) -> tuple[float, float]:
        """The sum of a fixed product of small integers, exact in any order of addition; and its median seconds."""
        row = torch.arange(_HEALTH_SIZE, device=self.torch_device)
        left = ((row[:, None] * 7 + row[None, :] * 3) % 5).to(torch.float32)
        seconds = []
        for _ in range(5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            product = left @ left
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) * 1e-3)
        return float(product.sum(dtype=torch.float64)), median(seconds)
