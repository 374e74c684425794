"""The committed state of a run, and how it moves on. A kill loses nothing that stands here.

At a commit the files that a state points to are already in the run directory; then the state is replaced atomically.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from learners.records import Rollout, steps_from
from orchestration.run.directory import RunDirectory
from orchestration.run.retention import SCORES, Retention, best, scored
from orchestration.run.state import RunState, split_phase_key


@dataclass(frozen=True)
class Snapshot:
    """What a commit points to: a policy version, its checkpoint, the buffer and, if there are any, the responses that
    were sampled ahead, as paths in the run directory. A policy that nobody has trained has no checkpoint."""

    policy_version: int
    checkpoint: str | None
    buffer: str
    ahead: str | None = None


class Commits:
    """Reads and replaces the state of one run."""

    def __init__(
        self, run: RunDirectory, state: RunState, keep: Retention, tracking_ids: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        """`keep`: which checkpoints and buffers stay beside the committed ones. `tracking_ids`: MLflow's, for a
        resume."""
        self.state = state
        self._run, self._keep, self._tracking_ids = run, keep, tracking_ids

    def has_assessed(self, stage: str) -> bool:
        """Whether the policy was measured at a stage."""
        return stage in self.state.extra.get("assessed", ())

    def has_completed(self, key: str) -> bool:
        """Whether a phase is over."""
        return key in self.state.extra.get("completed", ())

    def steps_done(self, key: str) -> int:
        """Committed steps of a phase."""
        return self.state.step if (self.state.cycle, self.state.phase) == split_phase_key(key) else 0

    def memory_of(self, key: str) -> Mapping[str, Any]:
        """What a phase has committed of its memory; empty before its first commit."""
        memory: Mapping[str, Any] = self.state.extra.get(key, {})
        return memory

    def ahead_of(self, key: str) -> dict[int, list[Rollout]]:
        """The responses that a phase has sampled ahead, by step; none of a phase that has not begun, or is over."""
        if not self.state.ahead or not self.steps_done(key) or self.has_completed(key):
            return {}
        return steps_from(self._run.ahead.read(self.state.ahead))

    def write(self) -> None:
        """Commits the state as it is, with what tracking has become."""
        self._write(self.state)

    def advance(self, key: str, steps: int, memory: Mapping[str, Any], snapshot: Snapshot) -> None:
        """Commits the first `steps` steps of a phase, with the memory that the phase goes on with."""
        self._write(self._after(key, steps, memory, snapshot))

    def complete(self, key: str, steps: int, memory: Mapping[str, Any], snapshot: Snapshot) -> None:
        """Commits the end of a phase after `steps` steps."""
        self._write(_with_entry(self._after(key, steps, memory, snapshot), "completed", key))

    def record_assessment(self, stage: str, metrics: Mapping[str, float] | None = None) -> None:
        """Commits that a stage was measured; with the `metrics` of a policy, also how good its checkpoint is."""
        state = _with_entry(self.state, "assessed", stage)
        if scores := scored(state, stage, metrics or {}):
            state = replace(state, extra={**state.extra, SCORES: scores})
        self._write(state)

    def finish(self) -> None:
        """Commits the end of the run."""
        self._write(replace(self.state, finished=True))

    def reload(self) -> None:
        """Goes back to the last commit."""
        self.state = self._run.read_state() or RunState()

    def _after(self, key: str, steps: int, memory: Mapping[str, Any], snapshot: Snapshot) -> RunState:
        cycle, phase = split_phase_key(key)
        return replace(
            self.state,
            cycle=cycle,
            phase=phase,
            step=steps,
            policy_version=snapshot.policy_version,
            checkpoint=snapshot.checkpoint,
            buffer=snapshot.buffer,
            ahead=snapshot.ahead,
            extra={**self.state.extra, key: dict(memory)},
        )

    def _write(self, state: RunState) -> None:
        self.state = replace(state, tracking=self._tracking_ids())
        self._run.write_state(self.state)
        self._prune()

    def _prune(self) -> None:
        """Removes what nothing needs any more. Only now: the new state is durable, and points to none of it."""
        checkpoints, last = self._run.checkpoints, self._keep.last
        rows = best(self.state, self._keep.best, checkpoints.paths()) if SCORES in self.state.extra else []
        checkpoints.prune(last, self.state.checkpoint, [row["checkpoint"] for row in rows])
        self._run.buffers.prune(last, self.state.buffer, [row["buffer"] for row in rows if row["buffer"]])
        self._run.ahead.prune(last, self.state.ahead)


def _with_entry(state: RunState, name: str, entry: str) -> RunState:
    """The state with one more entry in a list of its `extra`."""
    return replace(state, extra={**state.extra, name: [*state.extra.get(name, ()), entry]})
