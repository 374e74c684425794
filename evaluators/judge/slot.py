"""A device's measuring slot: judgements one at a time under the host's lock, and looks while nothing is measured.

The order is: a look, if it is expected to save time, then a pair of processes, or several of them for a close call.
A program whose times alone are doubted is judged once more.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from configs.schema import LimitsConfig
from evaluators.compile.cache import BuildCache
from evaluators.compile.run_settings import slot_of_unmeasured
from evaluators.failures import InfraError
from evaluators.host.device import Device, Slot
from evaluators.host.incidents import Incidents
from evaluators.host.look import Looks
from evaluators.judge.close_calls import judge_until_clear
from evaluators.judge.demands import Demands
from evaluators.judge.doubts import judge_until_believed
from evaluators.judge.fresh_processes import FreshProcesses
from evaluators.judge.judgement import Judgement
from evaluators.records import Artifact
from evaluators.tasks import ProgramError, TaskProgram
from evaluators.timing.presets import Preset

_log = logging.getLogger(__name__)
_SLOT_SECONDS = 600.0
_ATTEMPTS = 3
OUR_FAILURES = (InfraError, ProgramError, OSError, torch.OutOfMemoryError, torch.AcceleratorError)
"""Failures of the evaluator or the machine. The GPU's own errors reach the judge only by the judge's own calls."""


class MeasuringSlot:
    """Makes judgements on one device, one at a time, under the host's lock."""

    def __init__(
        self, device: Device, limits: LimitsConfig, cache: BuildCache, artifacts: Path, demands: Demands
    ) -> None:
        """`cache` holds the extensions that candidates load. `artifacts`: the folder in which artifacts lie."""
        self._device = device
        self._incidents = Incidents(device.name)
        self._processes = FreshProcesses(device, limits, cache, artifacts, self._incidents, demands)
        self._looks = Looks()
        self._is_health_known = False

    def start(self) -> None:
        """Starts the zygote. The health of the device is learned later, when nothing else starts there. Raises
        ContainmentError if the host does not contain programs as demanded."""
        self._processes.start()

    def close(self) -> None:
        """Ends every process that was forked here."""
        self._processes.close()

    def look(self, program: TaskProgram, source: str, artifact: Artifact | None) -> Judgement | None:
        """The judgement of a candidate that certainly does not run, and None for any other.

        Nothing is measured meanwhile, and other evaluators may look at the same time. What the candidate compiles as it
        runs stays in the caches of its artifact, for `judge`. Raises InfraError, Unbuilt, and TimeoutError if
        measurements do not end.
        """
        self._processes.prepare_compilers(source)
        with self._device.unmeasured(_SLOT_SECONDS):
            start = time.time()
            try:
                judgement = self._processes.look(slot_of_unmeasured(), program, source, artifact, beside_others=True)
            finally:
                self._device.trim()
        return None if self._failures_since(start) else judgement

    def judge(
        self, program: TaskProgram, source: str, preset: Preset, artifact: Artifact | None, *, passed_look: bool = False
    ) -> Judgement:
        """The judgement of one candidate.

        If a program made another device of this host fail meanwhile, the judgement is made again, three times at most.
        `passed_look`: `look` found no failure. Raises InfraError and Unbuilt.
        """
        self._learn_health()
        waited = 0.0
        for _ in range(_ATTEMPTS):
            asked = time.perf_counter()
            self._processes.wait()  # what is done behind the last verdict still holds the slot
            waited += time.perf_counter() - asked
            start = time.time()
            with self._held() as slot:
                judgement = self._judge(slot, program, source, preset, artifact, passed_look=passed_look)
            failed = self._failures_since(start)
            if not failed:
                break
            _log.info("%s: measured again, since %s failed meanwhile", program.task.id, " ".join(failed))
        return replace(judgement, cost={"turn_over": waited, **judgement.cost})

    @contextmanager
    def _held(self) -> Iterator[Slot]:
        """Within this block, the slot is ours and the judge works on its own cores."""
        slot = self._device.acquire(_SLOT_SECONDS)
        threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
        torch.set_num_threads(self._device.threads)
        os.sched_setaffinity(0, slot.judge_cores)
        try:
            yield slot
        finally:
            torch.set_num_threads(threads)
            os.sched_setaffinity(0, cores)
            self._processes.turn_over(slot, self._device.release)

    def _judge(
        self,
        slot: Slot,
        program: TaskProgram,
        source: str,
        preset: Preset,
        artifact: Artifact | None,
        *,
        passed_look: bool,
    ) -> Judgement:
        """The judgement of a look if the candidate fails in it, else that of pairs of processes."""

        def measure() -> Judgement:
            def judge(in_full: bool) -> Judgement:
                return self._processes.judge(slot, program, source, preset, artifact, in_full=in_full)

            return judge_until_believed(lambda: judge_until_clear(judge, preset, self._device), preset)

        # A candidate with an artifact compiles as it runs; a look would make it compile twice.
        if passed_look or artifact is not None or not self._device.looks_first:
            return measure()
        if not self._looks.pay:
            judgement = measure()
            self._looks.record_skipped(judgement.outcome)
            return judgement
        start = time.perf_counter()
        failure = self._processes.look(slot, program, source, None)
        seconds = time.perf_counter() - start
        self._looks.record(failure is not None)
        judgement = failure or measure()
        return replace(judgement, cost={"look": seconds, **judgement.cost})

    def _learn_health(self) -> None:
        if not self._is_health_known:
            self._device.check_health()
            self._is_health_known = True

    def _failures_since(self, start: float) -> list[str]:
        """Devices of this host that a program made fail since `start` (seconds since the epoch)."""
        return self._incidents.since(start) if self._device.own_memory else []
