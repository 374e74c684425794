"""The front door of evaluation: a task and a source in, a verdict out. Usable without Ray.

with Evaluator(arch="cpu") as evaluator:
    print(evaluator.evaluate("level1/gelu", source).outcome)
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from configs.schema import LimitsConfig
from evaluators.baselines import BaselineResult, BaselineStore, baseline_source, existing_baselines
from evaluators.build.builder import Builder, build_environment, needs_build, runner_limits
from evaluators.device import Slot, open_device
from evaluators.failures import InfraError, RunnerFailure
from evaluators.incidents import Incidents
from evaluators.judge import CallLimits, Judge, Judgement
from evaluators.paper import agree, needs_confirmation
from evaluators.records import Artifact, BuildError, Candidate, Estimate, Finding, Outcome, Task, Verdict
from evaluators.runner_handle import RunnerHandle, ZygotePool
from evaluators.tasks import ProgramError, TaskProgram, find_task, profile_of
from evaluators.timing import Preset, divide, preset_named

_log = logging.getLogger(__name__)
_ATTEMPTS = 3
_SLOT_SECONDS = 600.0
_CACHED_TASKS = 64
_MESSAGE_CHARACTERS = 2000
# What is our failure, or the machine's: the GPU's errors reach the judge by its own calls alone.
_OURS = (InfraError, ProgramError, OSError, torch.OutOfMemoryError, torch.AcceleratorError)


class Evaluator:
    """Evaluates candidates on one architecture, one at a time. Not thread-safe."""

    def __init__(
        self,
        arch: str = "auto",
        *,
        preset: str = "fast",
        threads: int = 1,
        baselines: Sequence[str] = ("eager",),
        limits: LimitsConfig | None = None,
        require_shapes: bool = False,
        confirm: Callable[[Task, str], float | None] | None = None,
        store: Path | None = None,
    ) -> None:
        """`require_shapes`: a candidate that fails at other shapes than the task's is wrong, not only specialised.
        `confirm` gives the speed-up of a program on another device of this kind (None without one), which the preset
        `paper` asks for.
        `store` keeps baselines and build artifacts between evaluators; without one they last as long as this one.

        Raises ValueError for an architecture, preset or baseline that does not exist.
        """
        self.device = open_device(arch, threads=threads)
        self.preset = preset_named(preset, self.device.arch)
        self.limits = limits or LimitsConfig()
        self.require_shapes = require_shapes
        self._confirm = confirm
        self._best: dict[str, float] = {}
        self._healthy = False
        self._incidents = Incidents(self.device.name)
        if unknown := set(baselines) - set(existing_baselines(self.device.arch)):
            raise ValueError(f"evaluator.baselines: {', '.join(sorted(unknown))} does not exist on {self.device.arch}")
        self.baselines = tuple(baselines)
        self._own_store = tempfile.TemporaryDirectory(prefix="warpsmith-store-") if store is None else None
        self.store = Path(self._own_store.name) if self._own_store else Path(store or "")
        self.store.mkdir(parents=True, exist_ok=True)
        if self._own_store:
            self.store.chmod(0o755)  # runners are other users
        self._baseline_store = BaselineStore(self.store)
        self.builder = Builder(self.device, self.store, self.limits)
        self._zygote = ZygotePool(self.device)
        self._programs: OrderedDict[str, TaskProgram] = OrderedDict()
        self._verdicts: dict[tuple[str, str, str], Verdict] = {}

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process that this evaluator started."""
        self.builder.close()
        self._zygote.close()
        if self._own_store:
            self._own_store.cleanup()

    def start(self) -> None:
        """Starts the zygote and learns what a healthy device does, now rather than at the first evaluation."""
        self._zygote.start()
        self._learn_health()

    def _learn_health(self) -> None:
        if not self._healthy:
            self.device.check_health()
            self._healthy = True

    def evaluate(
        self,
        task: Task | str,
        source: str,
        *,
        preset: str | None = None,
        author: str = "",
        artifact: Artifact | BuildError | None = None,
    ) -> Verdict:
        """Judges `source` (which defines `ModelNew`) against the task's reference.

        `artifact` is what a builder made of it; without one, what needs building is built first. An identical candidate
        at the same preset is measured once. Never raises for anything a candidate does; a task whose reference fails,
        or an evaluator that fails three times, gives an `infra` verdict.
        """
        task = find_task(task, profile_of(self.device.arch)) if isinstance(task, str) else task
        candidate = Candidate.propose(task.id, source, author)
        chosen = preset_named(preset, self.device.arch) if preset else self.preset
        key = (task.digest, candidate.digest, chosen.name)
        if key in self._verdicts:
            return self._verdicts[key]
        for attempt in range(1, _ATTEMPTS + 1):
            start = time.perf_counter()
            try:
                verdict = self._evaluate(task, candidate, chosen, artifact)
            except _OURS as error:
                _log.warning("%s: evaluation attempt %d of %d failed: %s", task.id, attempt, _ATTEMPTS, error)
                verdict = self._verdict(task, candidate, chosen, Judgement(Outcome.INFRA, str(error)))
                continue
            verdict = replace(verdict, cost={**verdict.cost, "total": time.perf_counter() - start})
            self._verdicts[key] = verdict
            return verdict
        return verdict

    def _evaluate(
        self, task: Task, candidate: Candidate, preset: Preset, artifact: Artifact | BuildError | None
    ) -> Verdict:
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # those that Python has for a candidate are of no use to our user
                compile(candidate.source, "<candidate>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return self._verdict(task, candidate, preset, Judgement(Outcome.BUILD_ERROR, f"does not parse: {error}"))
        if artifact is None and needs_build(candidate.source):
            artifact = self.builder.build(task, candidate)
        build_seconds = time.perf_counter() - start
        if isinstance(artifact, BuildError):
            message = f"{artifact.stage}: {artifact.message}"
            return self._verdict(task, candidate, preset, Judgement(Outcome.BUILD_ERROR, message))
        judgement, active = self._undisturbed(task, candidate.source, preset, artifact)
        if preset.paper and judgement.speedup is not None:
            judgement = self._confirmed(task, candidate, judgement, judgement.speedup.value)
        verdict = self._verdict(task, candidate, preset, judgement, active)
        if verdict.outcome is Outcome.OK and judgement.speedup is not None:
            verdict = replace(verdict, speedups=self._speedups(task, judgement.speedup))
        return replace(verdict, cost={"build": build_seconds, **judgement.cost})

    def _undisturbed(
        self, task: Task, source: str, preset: Preset, artifact: Artifact | None
    ) -> tuple[Judgement, tuple[str, ...]]:
        """A judgement during which no program made another device of this host fail, or the last of several."""
        for _ in range(_ATTEMPTS):
            start = time.time()
            found = self._judge(task, source, preset, artifact)
            disturbed = self._incidents.since(start) if self.device.own_memory else []
            if not disturbed:
                break
            _log.info("%s: measured again, since %s failed meanwhile", task.id, " ".join(disturbed))
        return found

    def _after_fault(self, judgement: Judgement) -> None:
        """After what may have hurt a device: tells the neighbours, and makes sure that it still works."""
        if self.device.own_memory and judgement.outcome in (Outcome.RUNTIME_ERROR, Outcome.TIMEOUT):
            self._incidents.record()
            start = time.perf_counter()
            self.device.check_health()
            judgement.cost["health"] = time.perf_counter() - start

    def _confirmed(self, task: Task, candidate: Candidate, judgement: Judgement, speedup: float) -> Judgement:
        """The paper's second opinion on what is too good: of another device of the same kind, where there is one."""
        best = self._best.get(task.digest)
        if not needs_confirmation(speedup, best):
            self._best[task.digest] = max(speedup, best or 0.0)
            return judgement
        other = self._confirm(task, candidate.source) if self._confirm else None
        if other is None:
            message = f"{speedup:.2f}x is not confirmed: no verdict of a second {self.device.arch}"
            return replace(judgement, findings=(*judgement.findings, Finding("confirmation", "hint", message)))
        if agree(speedup, other):
            self._best[task.digest] = speedup
            return judgement
        message = f"a second {self.device.arch} measured {other:.2f}x, not {speedup:.2f}x"
        return replace(judgement, findings=(*judgement.findings, Finding("confirmation", "suspect", message)))

    def _judge(
        self, task: Task, source: str, preset: Preset, artifact: Artifact | None
    ) -> tuple[Judgement, tuple[str, ...]]:
        """One judgement in the measuring slot, and the containment that was active."""
        program = self._program(task)
        self._learn_health()
        slot = self.device.acquire(_SLOT_SECONDS)
        threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
        torch.set_num_threads(self.device.threads)
        os.sched_setaffinity(0, slot.judge_cores)
        start = time.perf_counter()
        runners: list[RunnerHandle] = []
        try:
            runners.append(self._fork(slot, 0, None))
            runners.append(self._fork(slot, 1, artifact))
            fork_seconds = time.perf_counter() - start
            limits = CallLimits(self.limits.start_seconds, self.limits.call_factor, self.limits.call_seconds)
            judge = Judge(
                program,
                self.device,
                runners[0],
                runners[1],
                preset,
                limits,
                device_memory_bytes=runner_limits(self.limits).device_memory_bytes,
                require_shapes=self.require_shapes,
                artifact=artifact.path if artifact else "",
            )
            judgement = judge.judge(source)
            judgement.cost["fork"] = fork_seconds
            runners[1].close()
            self._after_fault(judgement)
            return judgement, runners[1].active
        finally:
            for runner in runners:
                runner.close()
            torch.set_num_threads(threads)
            os.sched_setaffinity(0, cores)
            self.device.release()

    def _fork(self, slot: Slot, side: int, artifact: Artifact | None) -> RunnerHandle:
        environment = build_environment(artifact) if artifact else None
        return RunnerHandle(self._zygote, self.device, slot, side, runner_limits(self.limits), environment)

    def _program(self, task: Task) -> TaskProgram:
        """The task's executed program, from a small cache. Raises ProgramError when it does not run."""
        if task.digest not in self._programs:
            self._programs[task.digest] = TaskProgram(task, self.device.torch_device)
            if len(self._programs) > _CACHED_TASKS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(task.digest)
        return self._programs[task.digest]

    def _speedups(self, task: Task, over_eager: Estimate) -> dict[str, Estimate]:
        """Over eager as measured, and over each other baseline through its own stored speed-up over eager."""
        speedups = {"eager": over_eager}
        for name in self.baselines:
            if name != "eager":
                try:
                    result = self.baseline(task, name)
                except _OURS as error:
                    _log.warning("%s: baseline %s is left out: %s", task.id, name, error)
                    continue
                if result.speedup is not None:
                    speedups[name] = divide(over_eager, result.speedup)
        return speedups

    def baseline(self, task: Task, name: str) -> BaselineResult:
        """The speed-up of a baseline over eager: stored, or measured now. Raises InfraError when that is our fault."""
        versions = self.device.versions()
        known = self._baseline_store.get(task, name, versions)
        if known is not None:
            return known
        candidate = Candidate.propose(task.id, baseline_source(task, name), f"baseline:{name}")
        artifact = self.builder.build(task, candidate)
        if isinstance(artifact, BuildError):
            result = BaselineResult(None, f"{artifact.stage}: {artifact.message}")
        else:
            judgement, _ = self._undisturbed(task, candidate.source, self.preset, artifact)
            seconds = judgement.timing.reference_seconds.value if judgement.timing else None
            result = BaselineResult(judgement.speedup, judgement.message, seconds)
            if judgement.outcome is Outcome.TIMEOUT:
                return result  # perhaps of a busy machine: not for good
        if result.speedup is None:
            _log.warning("%s: baseline %s is absent: %s", task.id, name, result.reason)
        self._baseline_store.put(task, name, versions, result)
        return result

    def _verdict(
        self, task: Task, candidate: Candidate, preset: Preset, judgement: Judgement, active: tuple[str, ...] = ()
    ) -> Verdict:
        doubtful = any(finding.severity == "suspect" for finding in judgement.findings)
        outcome = Outcome.SUSPECT if doubtful and judgement.outcome is Outcome.OK else judgement.outcome
        about: dict[str, Any] = {**self.device.versions(), "preset": preset.name, "task_digest": task.digest}
        return Verdict(
            candidate=candidate.digest,
            task=task.id,
            arch=self.device.arch,
            outcome=outcome,
            # A program's message may hold half a surrogate pair, which no UTF-8 column takes.
            message=judgement.message[:_MESSAGE_CHARACTERS].encode("utf-8", "replace").decode(),
            correctness=judgement.correctness,
            timing=judgement.timing,
            trace=judgement.trace,
            guard=judgement.findings,
            evaluator={**about, "containment": " ".join(active)},
            cost=judgement.cost,
        )


__all__ = ["Evaluator", "RunnerFailure"]
