"""A runner and all that it started: stopped, continued and killed as one.

Runs in the judge's process (trusted); it must never signal a number that may already be another process's. A runner
leads a process group. If the system-call filter is active, no process can leave the group, and the kernel signals a
group as a whole: a process that forks meanwhile does so after the signal, or not at all. Without the filter the
processes below the runner are signalled one by one, too. A program that forks and ends fast enough then escapes being
stopped, until it is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

from evaluators.sandbox.process_counts import children_of, is_running, members_of


class ProcessGroup:
    """The signals of the judge to one runner. The zygote reaps the runner, and only when the judge says so."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.holds_all = False  # no process can leave it
        self.gone = False  # the runner and all that it started are reaped: its number may be another process's
        self._process = os.pidfd_open(leader)
        self._paused: list[int] = []

    @property
    def has_ended(self) -> bool:
        """Whether the runner itself has ended."""
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        return self.gone or bool(poll.poll(0))

    def stop(self) -> None:
        """Stops all processes of the group."""
        if self.gone:
            return
        self._signal(signal.SIGSTOP)
        for child in () if self.holds_all else children_of(self.leader):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGSTOP)
                self._paused.append(child)

    def is_running(self) -> bool:
        """Whether a thread of the group is on a core, or ready to be. A stopped thread runs until it returns from the
        kernel."""
        return any(map(is_running, self.members()))

    def members(self) -> list[int]:
        """Ids of the runner and of the processes below it."""
        return [] if self.gone else [self.leader, *children_of(self.leader)]

    def resume(self) -> None:
        """Continues all processes of the group."""
        if self.gone:
            return
        for child in self._paused:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGCONT)
        self._paused.clear()
        self._signal(signal.SIGCONT)

    def others(self) -> set[int]:
        """Ids of all processes but the leader, daemons included."""
        if self.gone:
            return set()
        return {*children_of(self.leader), *members_of(self.leader)} - {self.leader}

    def kill(self) -> None:
        """Kills all processes of the group, even if its zygote is gone. The object cannot be used any more."""
        if not self.gone:
            self._signal(signal.SIGKILL)
        os.close(self._process)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it leads none until it has contained itself
            os.killpg(self.leader, number)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, number)
