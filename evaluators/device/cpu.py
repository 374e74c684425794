"""The CPU as a device: memory files for shared memory, one core set for a slot, `perf_counter` for events."""

from __future__ import annotations

import contextlib
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
        self._locks: list[int] = []

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
        return [Slot(index, cores) for index, cores in enumerate(reversed(whole))]

    def acquire(self, timeout: float) -> Slot:
        deadline = time.monotonic() + timeout
        folder = Path(tempfile.gettempdir()) / "warpsmith-slots"
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(PermissionError):
            folder.chmod(0o777)  # evaluators of other users share the slots; mkdir's mode is subject to the umask
        while True:
            for slot in self.slots():
                if self._lock_all([folder / f"cpu-{core}" for core in slot.cores]):
                    return slot
            if time.monotonic() > deadline:
                raise TimeoutError(f"no free measuring slot on this host after {timeout:.0f} s ({folder})")
            time.sleep(0.02)

    def _lock_all(self, paths: list[Path]) -> bool:
        """One lock a core, so that slots of different widths never overlap. All or none."""
        for path in paths:
            try:
                self._locks.append(_open_lock(path))
                fcntl.flock(self._locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.release()
                return False
        return True

    def release(self) -> None:
        while self._locks:
            os.close(self._locks.pop())

    def environment(self) -> Mapping[str, str]:
        count = str(self.threads)
        return {
            "OMP_NUM_THREADS": count,
            "MKL_NUM_THREADS": count,
            # Temporaries of some megabytes stay mapped: else page faults, which differ from process to process, make
            # one program two to three times slower than itself. 32 MiB is the most that glibc takes.
            "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
            "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            # Inductor fixes the folder of precompiled headers on import, in the zygote, where no runner may write.
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        }

    def versions(self) -> Mapping[str, str]:
        return {"arch": "cpu", "torch": str(torch.__version__), "cpu": _model_name(), "threads": str(self.threads)}


def _open_lock(path: Path) -> int:
    """Opens a lock file that may belong to another user, or makes it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _model_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
