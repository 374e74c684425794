"""Starts fresh processes for one candidate at a time: one that only runs it, or a pair that is measured.

The candidate's process lives no longer than one judgement, so that no candidate meets the remains of another. The
reference's, which runs nothing but tasks, may serve several (`Device.keeps_reference`). On a GPU a pair
takes some tenths of a second to start and to end, for which a verdict that stands does not wait: both are done behind
it (`turn_over`). The slot stays locked meanwhile. What is left of a program that failed is ended before its verdict.
The next pair is forked when nothing is left of the last one, or, where no process can leave its group, as soon as the
last one has been killed. (Sooner, while its last calls are checked, made these slower by as much, on one H200.)
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from configs.schema import LimitsConfig
from evaluators.compile.cache import BuildCache
from evaluators.compile.farm import Extensions
from evaluators.compile.run_settings import build_environment, prepare_compilers, runner_limits, slot_of_unmeasured
from evaluators.failures import InfraError, RunnerFailure
from evaluators.host.device import Device, Slot
from evaluators.host.host_check import check_host
from evaluators.host.incidents import Incidents
from evaluators.host.look import is_certain, look
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.judge.demands import Demands
from evaluators.judge.judge import Judge
from evaluators.judge.judgement import Judgement
from evaluators.judge.loading import GateTooSmall
from evaluators.judge.trials import CallLimits
from evaluators.records import Artifact, Outcome
from evaluators.tasks import TaskProgram
from evaluators.tasks.shapes import shape_variants
from evaluators.timing.presets import Preset

_log = logging.getLogger(__name__)
_MOST_USES = 32  # of one process of the reference, which differs a little from others by chance
_LOOK_SECONDS = 60.0  # of a look beside others: all evaluators wait for the last one, and judge what takes longer


class FreshProcesses:
    """Forks the processes of one device's judgements from one zygote."""

    def __init__(
        self,
        device: Device,
        limits: LimitsConfig,
        cache: BuildCache,
        artifacts: Path,
        incidents: Incidents,
        demands: Demands,
    ) -> None:
        """`cache` holds the extensions that candidates load. `artifacts`: the folder in which their artifacts lie.
        `incidents` is told of programs that may have made the device fail."""
        self._device, self._limits, self._cache, self._incidents = device, limits, cache, incidents
        self._artifacts, self._demands = artifacts, demands
        self._zygote = ZygoteHandle(device, demands.containment)
        self._behind: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, "warpsmith-processes")
        self._killed: list[RunnerHandle] = []  # the pair of the last judgement, until `turn_over`
        self._is_over = False  # the last judgement came to an end, on a device that works
        self._kept: RunnerHandle | None = None  # the reference's process, if the next judgement is to use it
        self._uses = 0  # judgements that have used it
        self._ahead: list[RunnerHandle] = []  # the pair that was started for the next one
        self._prepared = 0  # the zygote's preparations when that pair was forked

    def start(self) -> None:
        """Starts the zygote. Raises ContainmentError if the host does not contain programs as demanded."""
        self.wait()
        self._zygote.start()
        if self._zygote.required:
            check_host(self._zygote, self._device, slot_of_unmeasured(), runner_limits(self._limits))

    def close(self) -> None:
        """Ends every process that was forked here."""
        try:
            self.wait()
        except (InfraError, OSError) as error:
            _log.warning("%s", error)
        self._close(self._take_ahead())
        self._keep(None)
        self._thread.shutdown()
        self._zygote.close()

    def prepare_compilers(self, source: str) -> None:
        """Does once what every process would do for itself before it compiles like this source. Raises InfraError."""
        self.wait()
        prepare_compilers(self._zygote, source)

    def look(
        self, slot: Slot, program: TaskProgram, source: str, artifact: Artifact | None, *, beside_others: bool = False
    ) -> Judgement | None:
        """Runs the candidate once, in one process. Returns the judgement if it fails, and None if it runs.

        `beside_others`: other programs run on the device meanwhile. Then None is also returned for a failure that may
        come from them. Raises InfraError and Unbuilt.
        """
        self.wait()
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

        The slot must be held until `turn_over` releases it. Raises InfraError and Unbuilt.
        """
        self.wait()
        self._end_killed()
        start = time.perf_counter()
        if artifact:
            self.prepare_compilers(source)
        ahead = self._take_ahead()
        try:
            return self._judge(ahead, start, slot, program, source, preset, artifact, in_full=in_full)
        except GateTooSmall:
            self._keep(None)
            return self._judge([], start, slot, program, source, preset, artifact, in_full=in_full)

    def _judge(
        self,
        runners: list[RunnerHandle],
        start: float,
        slot: Slot,
        program: TaskProgram,
        source: str,
        preset: Preset,
        artifact: Artifact | None,
        *,
        in_full: bool,
    ) -> Judgement:
        """The judgement of a pair, of which `runners` have been started. `start`: when it was asked for."""
        try:
            if artifact and runners and not self._lend(runners[1], artifact):
                runners.pop().close()
            runners.extend(self._fork(slot, side, artifact if side else None) for side in range(len(runners), 2))
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
            judgement = replace(judgement, containment=runners[1].process.active)
            if self._is_to_keep(runners[0], judgement, in_full=in_full):
                self._keep(runners.pop(0))
            elif runners[0] is self._kept:
                self._kept = None
            for runner in runners:
                runner.process.kill()  # their contexts on a GPU end side by side
            if self._device.starts_ahead and judgement.outcome is Outcome.OK:
                self._killed, runners = runners, []
            else:
                runners[-1].end()  # the candidate's
                judgement = self._after_fault(judgement, is_alone=True)
            self._is_over = True
            return judgement
        finally:
            self._close(runners)

    def _is_to_keep(self, reference: RunnerHandle, judgement: Judgement, *, in_full: bool) -> bool:
        """Whether the reference's process is to serve the next judgement, too: it runs nothing but tasks. One more pair
        for the same candidate is fresh on both sides, since the difference between processes is looked for."""
        if not (self._device.keeps_reference and in_full and judgement.outcome in (Outcome.OK, Outcome.WRONG)):
            return False
        uses = self._uses if reference is self._kept else 0
        seconds = reference.process.cpu_seconds()
        return (
            reference.process.is_alive and uses < _MOST_USES and seconds < runner_limits(self._limits).cpu_seconds / 2
        )

    def _keep(self, reference: RunnerHandle | None) -> None:
        """Keeps the reference's process for the next judgement, in place of any other."""
        if reference is not self._kept:
            self._close([] if self._kept is None else [self._kept])
            self._kept, self._uses = reference, 0
        self._uses += 1

    def _close(self, runners: Sequence[RunnerHandle]) -> None:
        """Kills processes with everything that they started. None of them is kept any longer."""
        for runner in runners:
            if runner is self._kept:
                self._kept = None
            runner.close()

    def turn_over(self, slot: Slot, release: Callable[[], None]) -> None:
        """Ends what is left of the last judgement, starts the processes of the next one, and releases the slot then.
        The caller need not wait for that. After a judgement that came to no end nothing is started: the device may be
        broken."""
        is_over, self._is_over = self._is_over, False
        if not (self._device.starts_ahead and is_over):
            if self._kept not in self._ahead:  # it waits there still after a look, which takes no pair
                self._keep(None)
            release()
            return

        def work() -> None:
            stays_together = all(runner.process.stays_together for runner in self._killed)
            try:
                if stays_together:
                    self._begin_ahead(slot)
                self._end_killed()
                if not stays_together:
                    self._begin_ahead(slot)
                self._end_start_ahead()
            finally:
                release()

        self._behind = self._thread.submit(work)

    def wait(self) -> None:
        """Waits for what `turn_over` does. Raises InfraError if something is left of the last programs."""
        behind, self._behind = self._behind, None
        if behind is not None:
            behind.result()

    def _end_killed(self) -> None:
        """Ends the processes of the last judgement. Raises InfraError if something that they started is still there."""
        killed, self._killed = self._killed, []
        try:
            for runner in killed:
                runner.end()
        finally:
            self._close(killed)

    def _begin_ahead(self, slot: Slot) -> None:
        """Forks the next pair, but for the process that is kept, if it can: what fails here is not needed yet."""
        with self._not_needed_yet():
            self._prepared = self._zygote.preparations
            self._ahead += [self._kept] if self._kept is not None else []
            for side in range(len(self._ahead), 2):
                self._ahead.append(self._fork(slot, side, None, is_ahead=True))
                self._ahead[-1].begin_start(loads_libraries=True)

    def _end_start_ahead(self) -> None:
        """Waits until the next pair is ready: what was started has started, and what is kept has forgotten."""
        with self._not_needed_yet():
            for runner in self._ahead:
                if runner.has_started:
                    runner.reset(self._limits.start_seconds)
                else:
                    runner.end_start(self._limits.start_seconds)

    @contextmanager
    def _not_needed_yet(self) -> Iterator[None]:
        """Within this block a failure costs the processes that were started ahead, and nothing else."""
        try:
            yield
        except (InfraError, RunnerFailure, OSError) as error:
            _log.info("no process is started ahead: %s", error)
            self._close(self._take_ahead())

    def _take_ahead(self) -> list[RunnerHandle]:
        """The pair that was started ahead, if both still run and are prepared as those that would be forked now."""
        ahead, self._ahead = self._ahead, []
        if all(runner.process.is_alive for runner in ahead) and self._prepared == self._zygote.preparations:
            return ahead
        self._close(ahead)
        return []

    def _lend(self, runner: RunnerHandle, artifact: Artifact) -> bool:
        """Lets a process that was started ahead use an artifact, if it can."""
        environment = build_environment(artifact)
        folders = [Path(folder) for folder in environment.values()]
        extensions = Extensions(self._cache, artifact.extensions)
        try:
            return runner.lend(environment, folders, extensions, self._limits.start_seconds)
        except RunnerFailure as failure:
            _log.info("a process that was started ahead does not answer: %s", failure.message)
            return False

    def _fork(self, slot: Slot, side: int, artifact: Artifact | None, *, is_ahead: bool = False) -> RunnerHandle:
        """The reference's process (side 0), or the candidate's (1), which may load the extensions of its artifact. One
        that is forked ahead is lent its artifact later."""
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
            lendable=self._artifacts if side and is_ahead else None,
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
