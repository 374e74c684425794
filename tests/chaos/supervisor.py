"""Gives the run's command again whenever the run has ended unfinished, as a cluster's job controller does, and keeps a
record of what was committed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from orchestration.run.bundle_tables import Committed
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState, phase_key
from orchestration.run.storage import path_segment
from tests.chaos.world import NAME, World, end_session

MOST_SILENCE = 240.0
"""Seconds without any new file, answer or commit, after which the run hangs."""

_LOOKS_EVERY = 0.3
_TABLES = ("samples", "candidates", "verdicts")


class Broken(AssertionError):
    """The run does not keep its promise. The message says which."""


class Supervisor:
    """The driver, and what it has committed. `commits`: (seconds since the start, phase, step) of each new state.

    `may_end` says whether a fault that may end the driver was injected since it was started; `was_set_back`, whether
    one that loses work was injected since the last commit.
    """

    def __init__(self, world: World, settings: list[str], log: Path) -> None:
        self._world, self._settings, self._log = world, [*settings, f"root={world.root()}"], log
        self._run = RunDirectory(world.root(direct=True), NAME)
        self._began = self._moved = time.monotonic()
        self._rows: dict[tuple[str, str, int], bytes] = {}  # committed files, by table, phase and step
        self._seen: Any = None
        self.may_end = self.was_set_back = False
        self.starts = 0
        self.commits: list[tuple[float, str, int]] = []
        self.state: RunState | None = None
        self.start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def pid(self) -> int:
        return self._driver.pid

    @property
    def is_finished(self) -> bool:
        return self.state is not None and self.state.finished and self._driver.poll() == 0

    def start(self) -> None:
        self._driver = self._world.driver(self._settings, self._log, address=self._world.cluster.address)
        self.starts += 1
        self.may_end = False

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Sends the driver a signal, and returns its process id. After SIGKILL it is gone, without its actors."""
        pid = self._driver.pid
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if number == signal.SIGKILL:
            self._driver.wait(30)
        return pid

    def watch(self, seconds: float) -> None:
        """Lets time pass. Raises Broken if the run hangs, ends without a reason, or loses what it had committed."""
        deadline = time.monotonic() + seconds
        while True:
            self._look()
            if self._driver.poll() is not None and not self.is_finished:
                self._restart(self._driver.returncode)
            if time.monotonic() - self._moved > MOST_SILENCE:
                raise Broken(f"nothing has moved for {MOST_SILENCE:.0f} s; the run stands at {self.place}")
            if time.monotonic() >= deadline:
                return
            time.sleep(_LOOKS_EVERY)

    def end(self) -> None:
        """Ends the driver, if it still runs."""
        if self._driver.poll() is None:
            end_session(self._driver.pid)
            with suppress(subprocess.TimeoutExpired):
                self._driver.wait(30)

    def _restart(self, code: int) -> None:
        if not self.may_end:
            raise Broken(f"the driver ended with code {code} at {self.place}, and no fault may end it: {self._log}")
        self.start()

    @property
    def place(self) -> str:
        state = self.state
        return f"{phase_key(state.cycle, state.phase)} step {state.step}" if state and state.phase else "its start"

    def _look(self) -> None:
        """Reads the committed state. Anything new counts as a move."""
        storage = self._run.storage
        everything = pafs.FileSelector(storage.base, recursive=True, allow_not_found=True)
        files = len(storage.filesystem.get_file_info(everything))
        seen = files, self._world.teacher.hit, len(self._world.endpoint.seen)
        state = self._run.read_state()
        if (seen, state) != self._seen:
            self._seen, self._moved = (seen, state), time.monotonic()
        if state is None or state == self.state:
            return
        before, self.state = self.state, state
        if before is not None:
            self._check_order(before, state)
        if state.phase and (before is None or (before.phase, before.cycle, before.step) != _at(state)):
            self.commits.append((self.seconds, phase_key(state.cycle, state.phase), state.step))
        self.was_set_back = False
        self.check_rows(fresh_alone=True)

    def _check_order(self, before: RunState, state: RunState) -> None:
        """No commit goes back behind an earlier one."""
        for name in ("completed", "assessed"):
            if lost := [one for one in before.extra.get(name, ()) if one not in state.extra.get(name, ())]:
                raise Broken(f"a committed stage is lost: {name} {lost[0]}")
        if state.policy_version < before.policy_version:
            raise Broken(f"policy version {state.policy_version} was committed after {before.policy_version}")
        same_phase = (before.cycle, before.phase) == (state.cycle, state.phase)
        if same_phase and state.step < before.step:
            raise Broken(f"{before.phase}: step {state.step} was committed after step {before.step}")

    def check_rows(self, *, fresh_alone: bool = False) -> None:
        """Reads the rows of committed steps, which never change. `fresh_alone`: of those that it has not read yet."""
        if self.state is None:
            return
        committed = Committed(self.state)
        for name in _TABLES:
            for phase, step in getattr(self._run, name).steps():
                key = name, phase, step
                if not committed.has((phase, step)) or (fresh_alone and key in self._rows):
                    continue
                path = f"{name}/phase={path_segment(phase)}/step={step:06d}/{name}.parquet"
                content = self._run.storage.read(path)
                if self._rows.setdefault(key, content) != content:
                    raise Broken(f"the {name} of {phase} step {step} changed after they were committed")


def _at(state: RunState) -> tuple[str, int, int]:
    return state.phase, state.cycle, state.step
