"""The CPU as a device: memory files for shared memory, one core set for a slot, `perf_counter` for events."""

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

from evaluators.host.device import Slot
from evaluators.host.locks import HostLocks
from evaluators.shared.region import Region
from evaluators.timing.clocks import Clock, JudgeClock

_BURST_SECONDS = 0.004  # a burst repeats short calls until the pipe's jitter is small against it
_MAX_BURST = 8
_MOST_BYTES_A_SECOND = 512e9  # of one core into its nearest cache: 64 bytes a cycle at 8 GHz, more than any has


@dataclass
class MemoryFile(Region):
    """A region in an anonymous memory file (which, unlike /dev/shm, no container makes small)."""

    def close(self) -> None:
        os.close(self.descriptor)


class CpuDevice:
    """`threads` neighbouring cores make a slot; slots are counted from the last core down, since core 0 is busiest."""

    arch = name = "cpu"
    torch_device = torch.device("cpu")
    capability = ""
    own_memory = False
    calibrated_seconds = 0.0
    looks_first = False
    clock: Clock = JudgeClock()

    def __init__(self, *, threads: int = 1) -> None:
        self.threads = threads
        self._cores = sorted(os.sched_getaffinity(0))
        self._locks: HostLocks[Slot] = HostLocks()

    def allocate(self, size: int) -> Region:
        descriptor = os.memfd_create("warpsmith", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, max(size, 1))
        # A runner that could shrink the file would end the judge with SIGBUS at its next look.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        memory = torch.frombuffer(mmap.mmap(descriptor, max(size, 1)), dtype=torch.uint8)
        return MemoryFile(memory, descriptor, size)

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
        """A CPU is never one program's alone: what runs beside a measurement is part of its noise."""
        return nullcontext()

    def trim(self) -> None:
        """The host's memory is the allocator's."""

    def environment(self) -> Mapping[str, str]:
        return {
            "CUDA_VISIBLE_DEVICES": "",
            **thread_environment(self.threads),
            # Temporaries of some megabytes stay mapped: else page faults, which differ from process to process, make
            # one program two to three times slower than itself. 32 MiB is the most that glibc takes.
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
        """Nothing runs behind the judge's back."""

    def max_calls(self, slot_bytes: int) -> int:
        return _MAX_BURST

    def calls(self, seconds: float, most: int) -> tuple[int, int]:
        return max(1, min(most, round(_BURST_SECONDS / max(seconds, 1e-6)))), 0

    def warm_up(self) -> None:
        """The checks before have done it."""

    def clock_sample(self) -> None:
        return None

    def spread(self, seconds: float) -> float:
        return 0.0

    def floor_seconds(self, written: int) -> float:
        return written / (_MOST_BYTES_A_SECOND * self.threads)

    def check_health(self) -> None:
        """The kernel keeps one process's crash from the others."""

    def memory_in_use(self) -> int:
        return 0


def thread_environment(threads: int) -> dict[str, str]:
    """Environment of processes that compute on `threads` cores."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Inductor fixes the folder of precompiled headers on import, in the zygote, where no runner may write.
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }


def _model_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
