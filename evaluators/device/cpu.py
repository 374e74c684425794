"""The CPU as a device: memory files for shared memory, one core set for a slot, `perf_counter` for events."""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from evaluators.device.base import Region, Slot


@dataclass
class MemoryFile(Region):
    """A region in an anonymous memory file (which, unlike /dev/shm, no container makes small)."""

    def close(self) -> None:
        os.close(self.descriptor)


class CpuDevice:
    """`threads` neighbouring cores make a slot; slots are counted from the last core down, since core 0 is busiest."""

    arch = "cpu"

    def __init__(self, *, threads: int = 1) -> None:
        self.threads = threads
        self._cores = sorted(os.sched_getaffinity(0))
        self._lock: int | None = None

    def allocate(self, size: int) -> Region:
        descriptor = os.memfd_create("warpsmith")
        os.ftruncate(descriptor, max(size, 1))
        memory = torch.frombuffer(mmap.mmap(descriptor, max(size, 1)), dtype=torch.uint8)
        return MemoryFile(memory, descriptor, size)

    def slots(self) -> list[Slot]:
        groups = [self._cores[start : start + self.threads] for start in range(0, len(self._cores), self.threads)]
        whole = [tuple(group) for group in groups if len(group) == self.threads] or [tuple(self._cores)]
        return [Slot(index, cores) for index, cores in enumerate(reversed(whole))]

    def acquire(self, timeout: float) -> Slot:
        deadline = time.monotonic() + timeout
        folder = Path(tempfile.gettempdir()) / "warpsmith-slots"
        folder.mkdir(mode=0o777, exist_ok=True)
        while True:
            for slot in self.slots():
                lock = os.open(folder / f"cpu-{slot.cores[0]}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                self._lock = lock
                return slot
            if time.monotonic() > deadline:
                raise TimeoutError(f"no free measuring slot on this host after {timeout:.0f} s ({folder})")
            time.sleep(0.02)

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def environment(self) -> Mapping[str, str]:
        count = str(self.threads)
        return {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "TORCHINDUCTOR_COMPILE_THREADS": "1"}

    def versions(self) -> Mapping[str, str]:
        return {"arch": "cpu", "torch": str(torch.__version__), "cpu": _model_name(), "threads": str(self.threads)}


def _model_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
