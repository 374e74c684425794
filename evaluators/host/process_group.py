"""A runner and all that it started: stopped, continued and killed as one.

A runner leads a process group that nobody can leave where the system-call filter is active, and the kernel signals a
group as a whole: whoever forks meanwhile does so after the signal, or not at all. Where the filter is not active, what
stands below the runner is signalled one by one, too, and what hops fast enough gets away until it is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal

from evaluators.sandbox.process_counts import children_of, members_of


class ProcessGroup:
    """What the judge does to one runner. The zygote reaps the runner, and only when the judge says so."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.holds_all = False  # nobody can leave it
        self.gone = False  # it has been reaped with all of it: its number may be another's
        self._process = os.pidfd_open(leader)
        self._paused: list[int] = []

    def stop(self) -> None:
        """Stops all of it."""
        if self.gone:
            return
        self._signal(signal.SIGSTOP)
        for child in () if self.holds_all else children_of(self.leader):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGSTOP)
                self._paused.append(child)

    def resume(self) -> None:
        """Continues all of it."""
        if self.gone:
            return
        for child in self._paused:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGCONT)
        self._paused.clear()
        self._signal(signal.SIGCONT)

    def others(self) -> set[int]:
        """Process ids of all but the leader, daemons included."""
        if self.gone:
            return set()
        return {*children_of(self.leader), *members_of(self.leader)} - {self.leader}

    def kill(self) -> None:
        """Kills all of it, even when its zygote is gone, and forgets it."""
        if not self.gone:
            self._signal(signal.SIGKILL)
        os.close(self._process)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it leads no group before it contains itself
            os.killpg(self.leader, number)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, number)
