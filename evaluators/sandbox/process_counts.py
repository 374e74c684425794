"""The kernel's figures of a process and of the processes below it, read from /proc.

Runs in the zygote and in the judge's process (trusted). It must never ask the processes themselves.
"""

from __future__ import annotations

import contextlib
import os


def children_of(process: int) -> list[int]:
    """Ids of the processes below `process`. The kernel lists them by thread, so this takes microseconds, unlike a walk
    of /proc."""
    descendants: list[int] = []
    queue = [process]
    while queue:
        tasks = f"/proc/{queue.pop()}/task"
        with contextlib.suppress(OSError):
            for thread in os.listdir(tasks):
                with contextlib.suppress(OSError), open(f"{tasks}/{thread}/children") as listed:
                    below = [int(word) for word in listed.read().split()]
                    descendants += below
                    queue += below
    return descendants


def parents_and_groups() -> dict[int, tuple[int, int]]:
    """The parent and the process group of every process in /proc, by process id. Takes milliseconds."""
    processes: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
                processes[int(name)] = (int(fields[1]), int(fields[2]))
    return processes


def members_of(group: int) -> list[int]:
    """Ids of the processes in a process group, whoever is their parent now."""
    return [process for process, (_, its_group) in parents_and_groups().items() if its_group == group]


def scheduled(process: int) -> tuple[float, float]:
    """Seconds for which the threads of a process have run, and for which they were ready to run but had no core, as the
    kernel counts them. Both are 0 if the kernel does not count them, or the process has gone."""
    ran, waited = 0, 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            path = f"/proc/{process}/task/{thread}/schedstat"
            with contextlib.suppress(OSError, IndexError, ValueError), open(path, "rb") as counts:
                figures = counts.read().split()
                ran, waited = ran + int(figures[0]), waited + int(figures[1])
    return ran * 1e-9, waited * 1e-9


def is_running(process: int) -> bool:
    """Whether a thread of a process is on a core, or ready to be."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            path = f"/proc/{process}/task/{thread}/stat"
            with contextlib.suppress(OSError), open(path, "rb") as stat:
                if stat.read().rpartition(b")")[2].split()[0] == b"R":
                    return True
    return False


def cpu_seconds_of(process: int) -> float:
    """Seconds of CPU time that a process has taken; 0 if it has gone."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{process}/stat", "rb") as stat_file:
        fields = stat_file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
