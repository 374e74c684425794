"""Measures the baselines of tasks in a measuring slot, once each, and turns a speed-up over eager into all of them.

A baseline is a program made of the task's own (`evaluators.stored.baselines`). It is judged like any candidate, so its
speed-up over eager is a measured, checked figure. It must never count as 1.0 if it fails: then it is absent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaluators.compile.builder import Builder
from evaluators.compile.hints import needs_build
from evaluators.host.device import Device
from evaluators.judge.build_then_judge import BuildThenJudge
from evaluators.judge.slot import OUR_FAILURES, MeasuringSlot
from evaluators.records import DROP_IN, Candidate, Estimate, Outcome, Task
from evaluators.stored.baselines import BaselineResult, BaselineStore, baseline_source
from evaluators.tasks.program import TaskPrograms
from evaluators.timing.estimates import divide
from evaluators.timing.presets import Preset

_log = logging.getLogger(__name__)
_LOCK_SECONDS = 300.0  # for another process that measures the same baseline


class Baselines:
    """The baselines `names` of tasks on one device, kept in a store."""

    def __init__(
        self,
        names: Sequence[str],
        device: Device,
        store: Path,
        builder: Builder,
        slot: MeasuringSlot,
        programs: TaskPrograms,
        preset: Preset,
        strict: str,
        *,
        measures: bool = True,
    ) -> None:
        """`measures`: a speed-up over a baseline that the store lacks has it measured. Else it is left out."""
        self.names = tuple(names)
        self._measures = measures
        self._builder = builder
        self._judging = BuildThenJudge(builder, slot, programs, may_build=True)
        self._store = BaselineStore(store)
        # By value, a baseline may be right that is refused as a drop-in replacement.
        self._versions = {**device.versions(), **({} if strict == DROP_IN else {"strict": strict})}
        # A baseline is the task's own program: other shapes and distributions would say nothing about it.
        self._preset = replace(preset, distributions=0, shapes=0)

    @property
    def required(self) -> tuple[str, ...]:
        """The baselines without which a verdict of an earlier run is not reused."""
        return self.names if self._measures else ("eager",)

    def speedups(self, task: Task, over_eager: Estimate) -> dict[str, Estimate]:
        """The speed-ups of a program over every baseline: over eager as measured, over each other one through its own
        speed-up over eager. A baseline that is absent is left out."""
        speedups = {"eager": over_eager}
        for name in self.names:
            if name != "eager":
                try:
                    result = self.get(task, name) if self._measures else self._stored(task, name)
                except OUR_FAILURES as error:
                    _log.warning("%s: baseline %s is left out: %s", task.id, name, error)
                    continue
                if result is not None and result.speedup is not None:
                    speedups[name] = divide(over_eager, result.speedup)
        return speedups

    def unbuilt(self, tasks: Sequence[Task]) -> list[tuple[Task, Candidate]]:
        """The programs of baselines of the tasks that have to be built before they are measured."""
        versions = self._versions
        unmeasured = (
            (task, _candidate(task, name))
            for task in tasks
            for name in self.names
            if name != "eager" and self._store.get(task, name, versions) is None
        )
        return [job for job in unmeasured if needs_build(job[1].source) and not self._builder.is_built(*job)]

    def get(self, task: Task, name: str) -> BaselineResult:
        """The speed-up of a baseline over eager: stored, or measured now. Raises InfraError if that is our fault."""
        stored = self._stored(task, name)
        if stored is not None:
            return stored
        with self._store.measuring(task, name, self._versions, _LOCK_SECONDS):
            stored = self._stored(task, name)  # another process may have measured it meanwhile
            return stored or self._measure_and_store(task, name)

    def _stored(self, task: Task, name: str) -> BaselineResult | None:
        return self._store.get(task, name, self._versions)

    def _measure_and_store(self, task: Task, name: str) -> BaselineResult:
        result, is_lasting = self._measure(task, name)
        if is_lasting:
            if result.speedup is None:
                _log.warning("%s: baseline %s is absent: %s", task.id, name, result.reason)
            self._store.put(task, name, self._versions, result)
        return result

    def _measure(self, task: Task, name: str) -> tuple[BaselineResult, bool]:
        """The result, and whether it would be the same again: a timeout may come from a busy machine."""
        candidate = _candidate(task, name)
        artifact = self._builder.build(task, candidate)
        judgement = self._judging.judge(task, candidate, self._preset, artifact, passed_look=False)
        seconds = judgement.timing.reference_seconds.value if judgement.timing else None
        result = BaselineResult(judgement.speedup, judgement.message, seconds)
        return result, judgement.outcome is not Outcome.TIMEOUT


def _candidate(task: Task, name: str) -> Candidate:
    return Candidate.propose(task.id, baseline_source(task, name), f"baseline:{name}")
