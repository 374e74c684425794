"""Judgements in a device's measuring slot: fresh processes for each, more of them where it is close.

Two processes that run the same short kernel differ by a little, whatever is measured within them (`Device.spread`).
Where a preset asks for it, a close call is therefore made on several pairs of processes.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from configs.schema import LimitsConfig
from evaluators.compile.builder import build_environment, prepare_compilers, runner_limits, slot_of_unmeasured
from evaluators.compile.cache import BuildCache
from evaluators.compile.farm import Extensions
from evaluators.failures import RunnerFailure
from evaluators.host.device import Device, Slot
from evaluators.host.incidents import Incidents
from evaluators.host.look import Looks, is_certain, look
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.judge.judge import Judge, Judgement
from evaluators.judge.trials import CallLimits
from evaluators.records import Artifact, Estimate, Finding, Outcome
from evaluators.tasks import TaskProgram
from evaluators.tasks.shapes import shape_variants
from evaluators.timing.estimates import combined
from evaluators.timing.presets import Preset

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 60.0  # of one beside others: all evaluators wait for the last, and judge what takes longer
_SLOT_SECONDS = 600.0
_ATTEMPTS = 3
_CLOSE = 0.08  # of a logarithm: nearer to 1 than that, a hundredth matters
_SPREAD_THAT_MATTERS = 0.0015


Found = tuple[Judgement, tuple[str, ...]]
"""A judgement, and the containment that was active."""


class MeasuringSlot:
    """Makes judgements on one device, one at a time, under the host's lock."""

    def __init__(self, device: Device, limits: LimitsConfig, cache: BuildCache, *, require_shapes: bool) -> None:
        """`cache` has the extensions that candidates load."""
        self.device = device
        self._cache = cache
        self.limits = limits
        self.require_shapes = require_shapes
        self._zygote = ZygoteHandle(device)
        self._incidents = Incidents(device.name)
        self._looks = Looks()
        self._healthy = False

    def start(self) -> None:
        """Starts the zygote. What a healthy device does is learnt later, when nothing else starts there."""
        self._zygote.start()

    def close(self) -> None:
        """Ends every process that was forked here."""
        self._zygote.close()

    def look(self, program: TaskProgram, source: str, artifact: Artifact | None) -> Found | None:
        """The judgement of a candidate that certainly does not run, found where nothing is measured meanwhile, and
        others may look beside; None of any other. What it compiles as it runs it leaves to `judge` in the caches of
        its artifact. Raises Unbuilt; TimeoutError where there is no end to measurements."""
        prepare_compilers(self._zygote, source)
        with self.device.unmeasured(_SLOT_SECONDS):
            start = time.time()
            try:
                found = self._look(slot_of_unmeasured(), program, source, artifact, beside_others=True)
            finally:
                self.device.trim()
        return None if self.device.own_memory and self._incidents.since(start) else found

    def judge(
        self, program: TaskProgram, source: str, preset: Preset, artifact: Artifact | None, *, passed_look: bool = False
    ) -> Found:
        """A judgement, and the containment that was active. While it was made no program may have made another device
        of this host fail: else it is made again, three times at most. `passed_look`: `look` found no failure. Raises
        Unbuilt."""
        self._learn_health()
        for _ in range(_ATTEMPTS):
            start = time.time()
            with self._held() as slot:
                found = self._judged(slot, program, source, preset, artifact, passed_look=passed_look)
            disturbed = self._incidents.since(start) if self.device.own_memory else []
            if not disturbed:
                break
            _log.info("%s: measured again, since %s failed meanwhile", program.task.id, " ".join(disturbed))
        return found

    @contextmanager
    def _held(self) -> Iterator[Slot]:
        """The slot, with the judge on its cores."""
        slot = self.device.acquire(_SLOT_SECONDS)
        threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
        torch.set_num_threads(self.device.threads)
        os.sched_setaffinity(0, slot.judge_cores)
        try:
            yield slot
        finally:
            torch.set_num_threads(threads)
            os.sched_setaffinity(0, cores)
            self.device.release()

    def _judged(
        self,
        slot: Slot,
        program: TaskProgram,
        source: str,
        preset: Preset,
        artifact: Artifact | None,
        *,
        passed_look: bool,
    ) -> Found:
        """The judgement of a first look, where the candidate does not run, else of pairs of processes."""
        if passed_look or artifact is not None or not self.device.looks_first:  # what compiles would do so twice
            return self._settled(slot, program, source, preset, artifact)
        found, cost = None, {}
        if self._looks.pay:
            start = time.perf_counter()
            found = self._look(slot, program, source, None)
            cost = {"look": time.perf_counter() - start}
            self._looks.record(found is not None)
        judgement, active = found or self._settled(slot, program, source, preset, artifact)
        if not cost:
            self._looks.record_skipped(judgement.outcome)
        return replace(judgement, cost={**cost, **judgement.cost}), active

    def _look(
        self, slot: Slot, program: TaskProgram, source: str, artifact: Artifact | None, *, beside_others: bool = False
    ) -> Found | None:
        """The judgement of a candidate that does not run; None of one that does, or may do so when it is alone."""
        runner = self._fork(slot, 1, artifact)
        seconds = self.limits.build_seconds if artifact else self.limits.start_seconds
        try:
            also = shape_variants(program.task)[:1] if artifact else []
            within = _LOOK_SECONDS if beside_others else math.inf
            look(runner, program, source, self.device, seconds, also, within=within)
            runner.end()
        except RunnerFailure as failure:
            judgement = Judgement(failure.outcome, failure.message)
            runner.end()
            self._after_fault(judgement, check=not beside_others)
            return None if beside_others and not is_certain(failure) else (judgement, runner.process.active)
        finally:
            runner.close()
        return None

    def _settled(
        self, slot: Slot, program: TaskProgram, source: str, preset: Preset, artifact: Artifact | None
    ) -> Found:
        """The judgement of one pair of processes, or of several where it is close. The speed-up's interval holds what
        differs between pairs."""
        judgement, active = self._once(slot, program, source, preset, artifact)
        if judgement.speedup is None or judgement.timing is None or preset.paper:
            return judgement, active
        spread = self.device.spread(judgement.timing.reference_seconds.value)
        found, findings = [judgement.speedup], {_name(finding): finding for finding in judgement.findings}
        start = time.perf_counter()
        while len(found) < preset.pairs_of_processes and _is_close(judgement.speedup, spread):
            again, _ = self._once(slot, program, source, preset, artifact, closer=False)
            if again.speedup is None:
                return again, active  # it works at times
            found.append(again.speedup)
            findings = {**{_name(finding): finding for finding in again.findings}, **findings}
        cost = {**judgement.cost, "fresh_processes": time.perf_counter() - start} if len(found) > 1 else judgement.cost
        settled = replace(judgement, speedup=combined(found, spread), findings=tuple(findings.values()), cost=cost)
        return settled, active

    def _once(
        self,
        slot: Slot,
        program: TaskProgram,
        source: str,
        preset: Preset,
        artifact: Artifact | None,
        *,
        closer: bool = True,
    ) -> Found:
        """One pair of processes. Without `closer`, what has been seen of the candidate is not looked at again."""
        start = time.perf_counter()
        runners: list[RunnerHandle] = []
        try:
            if artifact:
                prepare_compilers(self._zygote, source)
            runners.append(self._fork(slot, 0, None))
            runners.append(self._fork(slot, 1, artifact))
            fork_seconds = time.perf_counter() - start
            judge = Judge(
                program,
                self.device,
                runners[0],
                runners[1],
                preset if closer else replace(preset, trials=1, distributions=0, shapes=0),
                CallLimits(self.limits.start_seconds, self.limits.call_factor, self.limits.call_seconds),
                device_memory_bytes=runner_limits(self.limits).device_memory_bytes,
                require_shapes=self.require_shapes,
            )
            judgement = judge.judge(source, closer=closer)
            judgement.cost["fork"] = fork_seconds
            runners[1].end()
            self._after_fault(judgement)
            return judgement, runners[1].process.active
        finally:
            for runner in runners:
                runner.close()

    def _fork(self, slot: Slot, side: int, artifact: Artifact | None) -> RunnerHandle:
        environment = build_environment(artifact) if artifact else {}
        return RunnerHandle(
            self._zygote,
            self.device,
            slot,
            side,
            runner_limits(self.limits),
            environment,
            [Path(one) for one in environment.values()],
            Extensions(self._cache, artifact.extensions if artifact else ()) if side else None,
        )

    def _learn_health(self) -> None:
        if not self._healthy:
            self.device.check_health()
            self._healthy = True

    def _after_fault(self, judgement: Judgement, *, check: bool = True) -> None:
        """After what may have hurt a device: tells the neighbours, and makes sure that it still works, unless others
        are at work there, who make it slow."""
        if self.device.own_memory and judgement.outcome in (Outcome.RUNTIME_ERROR, Outcome.TIMEOUT):
            self._incidents.record()
            if not check:
                return
            start = time.perf_counter()
            self.device.check_health()
            judgement.cost["health"] = time.perf_counter() - start


def _name(finding: Finding) -> tuple[str, str]:
    """What makes two findings one: a hint never stands for a suspicion of its kind."""
    return finding.kind, finding.severity


def _is_close(speedup: Estimate, spread: float) -> bool:
    return spread > _SPREAD_THAT_MATTERS and abs(math.log(speedup.value)) < _CLOSE
