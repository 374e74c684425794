"""Runs a command and prints its wall time and the peak memory of its whole process tree.

    python benchmarks/peak_memory.py make demo

Memory is the proportional set size, in which shared pages are divided among the processes that share them. It is summed
over all descendants every two seconds, so it contains what the processes of Ray and vLLM use. Runs on Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_INTERVAL_SECONDS = 2.0


def proportional_bytes(process: psutil.Process) -> int:
    """Bytes of a process's descendants."""
    total = 0
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError), open(f"/proc/{child.pid}/smaps_rollup") as lines:
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def main(command: list[str]) -> int:
    if not command:
        print("usage: peak_memory.py COMMAND ...", file=sys.stderr)
        return 2
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # daemons stay our descendants
    start, peak = time.monotonic(), 0
    with subprocess.Popen(command) as child:
        ourselves = psutil.Process(os.getpid())
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=_INTERVAL_SECONDS)
            peak = max(peak, proportional_bytes(ourselves))
            if child.returncode is not None:
                break
    print(f"{time.monotonic() - start:.0f} s, peak memory {peak / 2**30:.1f} GiB")
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
