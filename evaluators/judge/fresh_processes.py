"""Starts fresh processes for one candidate at a time: one that only runs it, or a pair that is measured.

The processes live no longer than one judgement, so that no candidate meets the remains of another.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

from configs.schema import LimitsConfig
from evaluators.compile.cache import BuildCache
from evaluators.compile.farm import Extensions
from evaluators.compile.run_settings import build_environment, prepare_compilers, runner_limits, slot_of_unmeasured
from evaluators.failures import RunnerFailure
from evaluators.host.device import Device, Slot
from evaluators.host.host_check import check_host
from evaluators.host.incidents import Incidents
from evaluators.host.look import is_certain, look
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.judge.demands import Demands
from evaluators.judge.judge import Judge
from evaluators.judge.judgement import Judgement
from evaluators.judge.trials import CallLimits
from evaluators.records import Artifact, Outcome
from evaluators.tasks import TaskProgram
from evaluators.tasks.shapes import shape_variants
from evaluators.timing.presets import Preset

_LOOK_SECONDS = 60.0  # of a look beside others: all evaluators wait for the last one, and judge what takes longer


class FreshProcesses:
    """Forks the processes of one device's judgements from one zygote."""

    def __init__(
        self, device: Device, limits: LimitsConfig, cache: BuildCache, incidents: Incidents, demands: Demands
    ) -> None:
        """`cache` holds the extensions that candidates load. `incidents` is told of programs that may have made the
        device fail."""
        self._device, self._limits, self._cache, self._incidents = device, limits, cache, incidents
        self._demands = demands
        self._zygote = ZygoteHandle(device, demands.containment)

    def start(self) -> None:
        """Starts the zygote. Raises ContainmentError if the host does not contain programs as demanded."""
        self._zygote.start()
        if self._zygote.required:
            check_host(self._zygote, self._device, slot_of_unmeasured(), runner_limits(self._limits))

    def close(self) -> None:
        """Ends every process that was forked here."""
        self._zygote.close()

    def prepare_compilers(self, source: str) -> None:
        """Does once what every process would do for itself before it compiles like this source. Raises InfraError."""
        prepare_compilers(self._zygote, source)

    def look(
        self, slot: Slot, program: TaskProgram, source: str, artifact: Artifact | None, *, beside_others: bool = False
    ) -> Judgement | None:
        """Runs the candidate once, in one process. Returns the judgement if it fails, and None if it runs.

        `beside_others`: other programs run on the device meanwhile. Then None is also returned for a failure that may
        come from them. Raises InfraError and Unbuilt.
        """
        runner = self._fork(slot, 1, artifact)
        seconds = self._limits.build_seconds if artifact else self._limits.start_seconds
        try:
            also = shape_variants(program.task)[:1] if artifact else []
            within = _LOOK_SECONDS if beside_others else math.inf
            look(runner, program, source, self._device, seconds, also, within=within)
            runner.end()
        except RunnerFailure as failure:
            judgement = Judgement(failure.outcome, failure.message)
            runner.end()
            judgement = self._after_fault(judgement, is_alone=not beside_others)
            if beside_others and not is_certain(failure):
                return None
            return replace(judgement, containment=runner.process.active)
        finally:
            runner.close()
        return None

    def judge(
        self,
        slot: Slot,
        program: TaskProgram,
        source: str,
        preset: Preset,
        artifact: Artifact | None,
        *,
        in_full: bool = True,
    ) -> Judgement:
        """The judgement of one pair of processes. Without `in_full` it is timed again with the fewest checks.

        Raises InfraError and Unbuilt.
        """
        start = time.perf_counter()
        runners: list[RunnerHandle] = []
        try:
            if artifact:
                self.prepare_compilers(source)
            runners.append(self._fork(slot, 0, None))
            runners.append(self._fork(slot, 1, artifact))
            fork_seconds = time.perf_counter() - start
            judge = Judge(
                program,
                self._device,
                runners[0],
                runners[1],
                preset if in_full else replace(preset, trials=1, distributions=0, shapes=0),
                CallLimits(self._limits.start_seconds, self._limits.call_seconds),
                device_memory_bytes=runner_limits(self._limits).device_memory_bytes,
                demands=self._demands,
            )
            judgement = judge.judge(source, in_full=in_full)
            judgement = replace(judgement, cost={**judgement.cost, "fork": fork_seconds})
            for runner in runners:
                runner.process.kill()  # their contexts on a GPU end side by side
            runners[1].end()
            judgement = self._after_fault(judgement, is_alone=True)
            return replace(judgement, containment=runners[1].process.active)
        finally:
            for runner in runners:
                runner.close()

    def _fork(self, slot: Slot, side: int, artifact: Artifact | None) -> RunnerHandle:
        """The reference's process (side 0), or the candidate's (1), which may load the extensions of its artifact."""
        environment = build_environment(artifact) if artifact else {}
        return RunnerHandle(
            self._zygote,
            self._device,
            slot,
            side,
            runner_limits(self._limits),
            environment,
            [Path(folder) for folder in environment.values()],
            Extensions(self._cache, artifact.extensions if artifact else ()) if side else None,
        )

    def _after_fault(self, judgement: Judgement, *, is_alone: bool) -> Judgement:
        """After a failure that may have hurt the device: tells the other evaluators of the host, and makes sure that
        the device still works. Its seconds are put into the judgement's cost.

        Without `is_alone` nothing is made sure of, since other programs make the device slow. Raises InfraError.
        """
        if not self._device.own_memory or judgement.outcome not in (Outcome.RUNTIME_ERROR, Outcome.TIMEOUT):
            return judgement
        self._incidents.record()
        if not is_alone:
            return judgement
        start = time.perf_counter()
        self._device.check_health()
        return replace(judgement, cost={**judgement.cost, "health": time.perf_counter() - start})
