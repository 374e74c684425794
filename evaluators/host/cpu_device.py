"""The CPU as a device, from the judge's side: memory files for shared memory, a set of cores for a slot.

Runs in the judge's process (trusted). Memory that it shares must keep its size whatever a runner does.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from evaluators.host.device import Slot, gpu_files
from evaluators.host.locks import HostLocks
from evaluators.host.native import cpu_library
from evaluators.shared.region import Region
from evaluators.timing.clocks import Clock, JudgeClock

# Deviation between pairs of processes, beyond what their bursts show (`python -m benchmarks.evaluator noise`).
_SPREAD = 0.01
_BURST_SECONDS = 0.004  # a burst repeats short calls until the jitter of the pipe is small against it
_MOST_CALLS, _MOST_CALL_BYTES = 16, 128 << 20  # of a burst; of all its inputs and outputs
_MOST_BYTES_A_SECOND = 512e9  # of one core into its nearest cache: 64 bytes a cycle at 8 GHz, more than any has


@dataclass
class MemoryFile(Region):
    """A region in an anonymous memory file. Containers limit the size of /dev/shm, but not of such a file."""

    def close(self) -> None:
        os.close(self.descriptor)


class CpuDevice:
    """A slot is `threads` neighbouring cores. Slots are counted from the last core down: core 0 is the busiest."""

    arch = name = "cpu"
    torch_device = torch.device("cpu")
    capability = ""
    own_memory = False
    calibrated_seconds = 0.0
    looks_first = starts_ahead = False
    keeps_reference = False
    shares_tensors = True
    clock: Clock = JudgeClock()

    def __init__(self, *, threads: int = 1) -> None:
        self.threads = threads
        self.hidden: Sequence[str] = gpu_files()
        self._cores = sorted(os.sched_getaffinity(0))
        self._locks: HostLocks[Slot] = HostLocks()

    def allocate(self, size: int) -> Region:
        descriptor = os.memfd_create("warpsmith", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, max(size, 1))
        # If a runner could shrink the file, the judge would die of SIGBUS when it next reads it.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        memory = torch.frombuffer(mmap.mmap(descriptor, max(size, 1)), dtype=torch.uint8)
        return MemoryFile(memory, descriptor, size)

    def new_gate(self, output_bytes: int, memory_bytes: int) -> None:
        return None

    def slots(self) -> list[Slot]:
        groups = [self._cores[start : start + self.threads] for start in range(0, len(self._cores), self.threads)]
        whole = [tuple(group) for group in groups if len(group) == self.threads] or [tuple(self._cores)]
        return [Slot(index, cores, cores) for index, cores in enumerate(reversed(whole))]

    def acquire(self, timeout: float) -> Slot:
        # One lock a core, so that slots of different widths never overlap.
        return self._locks.acquire([(slot, [f"cpu-{core}" for core in slot.cores]) for slot in self.slots()], timeout)

    def release(self) -> None:
        self._locks.release()

    def unmeasured(self, timeout: float) -> AbstractContextManager[None]:
        """A CPU never belongs to one program alone: whatever runs beside a measurement is part of its noise."""
        return nullcontext()

    def trim(self) -> None:
        """Nothing to give back: the CPU has no memory of its own."""

    def environment(self) -> Mapping[str, str]:
        return {
            "CUDA_VISIBLE_DEVICES": "",
            "WARPSMITH_NATIVE": str(cpu_library()),
            **thread_environment(self.threads),
            # Keeps temporaries of some megabytes mapped. Page faults differ from process to process: they would make a
            # program two to three times slower than itself. 32 MiB is the largest threshold that glibc takes.
            "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
            "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        }

    def versions(self) -> Mapping[str, str]:
        return {"arch": "cpu", "torch": str(torch.__version__), "cpu": _model_name(), "threads": str(self.threads)}

    def runner_options(self, memory_bytes: int) -> dict[str, Any]:
        return {"kind": "cpu", "threads": self.threads}

    def generators(self) -> Sequence[torch.Generator]:
        return (torch.default_generator,)

    def synchronize(self) -> None:
        """Nothing to wait for: the CPU runs nothing asynchronously."""

    def max_calls(self, slot_bytes: int) -> int:
        return max(2, min(_MOST_CALLS, _MOST_CALL_BYTES // max(slot_bytes, 1)))

    def calls(self, seconds: float, most: int) -> tuple[int, int]:
        # Half as many as fit, since bursts of twice as many are made beside them.
        return max(1, min(most // 2, round(_BURST_SECONDS / max(seconds, 1e-6)))), 0

    def warm_up(self) -> None:
        """Nothing to do: the checks before have warmed it up."""

    def clock_sample(self) -> None:
        return None

    def spread(self, seconds: float) -> float:
        return _SPREAD

    def floor_seconds(self, written: int) -> float:
        return written / (_MOST_BYTES_A_SECOND * self.threads)

    def check_health(self) -> None:
        """Nothing to check: the kernel keeps the crash of one process from the others."""

    def memory_in_use(self) -> int:
        return 0


def thread_environment(threads: int) -> dict[str, str]:
    """Environment variables of processes that compute on `threads` cores."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Inductor chooses the folder of precompiled headers on import, in the zygote: no runner may write there.
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }


def _model_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
