"""The front door of evaluation: a task and a source in, a verdict out. Usable without Ray.

with Evaluator(arch="cpu") as evaluator:
    print(evaluator.evaluate("level1/gelu", source).outcome)
"""

from __future__ import annotations

import logging
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
from evaluators.compile.builder import Builder, needs_build
from evaluators.compile.cache import BuildCache
from evaluators.failures import InfraError, Unbuilt
from evaluators.host.open_device import open_device
from evaluators.judge.judge import Judgement
from evaluators.judge.slot import Found, MeasuringSlot
from evaluators.records import (
    HACK,
    SUSPECT,
    Artifact,
    BuildError,
    Candidate,
    Estimate,
    Finding,
    Outcome,
    Task,
    Verdict,
)
from evaluators.shared.extension import ExtensionRequest
from evaluators.stored.baselines import BaselineResult, BaselineStore, baseline_source, existing_baselines
from evaluators.stored.verdicts import REUSED_FROM, read_reusable_verdicts
from evaluators.tasks import ProgramError, TaskProgram, find_task, profile_of
from evaluators.timing.clocks import EventClock
from evaluators.timing.estimates import divide
from evaluators.timing.paper import agree, needs_confirmation
from evaluators.timing.presets import Preset, preset_named

_log = logging.getLogger(__name__)
_ATTEMPTS = 3
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
        cache: BuildCache | None = None,
        builds: bool = True,
        guarded: bool = True,
        verdicts_of: Sequence[str] = (),
    ) -> None:
        """`require_shapes`: a candidate that fails at other shapes than the task's is wrong, not only specialised.
        `confirm` gives the speed-up of a program on another device of this kind (None without one), which the preset
        `paper` asks for.
        `store` keeps baselines and build artifacts between evaluators; without one they last as long as this one.
        `cache` keeps extensions, in `store` unless given. Without `builds`, `evaluate` raises Unbuilt for a candidate
        that asks for an extension which is not in its artifact, so that the caller can have it built elsewhere.
        Without `guarded` a program is believed: its own clock decides, and findings are only noted. That is for showing
        what the guard is worth, never for rewards that anybody trusts.
        `verdicts_of`: folders of earlier runs, whose verdicts are taken over where they would be measured alike
        (`evaluators.stored.verdicts`).

        Raises ValueError for an architecture, preset or baseline that does not exist, FileNotFoundError for a folder
        without verdicts.
        """
        self.device = open_device(arch, threads=threads)
        self.guarded = guarded
        if not guarded:
            self.device.clock = EventClock()
        self.preset = preset_named(preset, self.device.arch)
        self.limits = limits or LimitsConfig()
        self._confirm = confirm
        self._best: dict[str, float] = {}
        if unknown := set(baselines) - set(existing_baselines(self.device.arch)):
            raise ValueError(f"evaluator.baselines: {', '.join(sorted(unknown))} does not exist on {self.device.arch}")
        self.baselines = tuple(baselines)
        self._own_store = tempfile.TemporaryDirectory(prefix="warpsmith-store-") if store is None else None
        self.store = Path(self._own_store.name) if self._own_store else Path(store or "")
        self.store.mkdir(parents=True, exist_ok=True)
        if self._own_store:
            self.store.chmod(0o755)  # runners are other users
        self._baseline_store = BaselineStore(self.store)
        self.builder = Builder(self.device, self.store, self.limits, cache=cache)
        self._builds = builds
        self._slot = MeasuringSlot(self.device, self.limits, self.builder.cache, require_shapes=require_shapes)
        self._programs: OrderedDict[str, TaskProgram] = OrderedDict()
        self._verdicts = read_reusable_verdicts(verdicts_of if guarded else (), self.device.versions(), self.baselines)

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process that this evaluator started."""
        self.builder.close()
        self._slot.close()
        if self._own_store:
            self._own_store.cleanup()

    def start(self) -> None:
        """Starts the zygote, now rather than at the first evaluation, or look."""
        self._slot.start()

    def evaluate(
        self,
        task: Task | str,
        source: str,
        *,
        preset: str | None = None,
        author: str = "",
        artifact: Artifact | BuildError | None = None,
        passed_look: bool = False,
    ) -> Verdict:
        """Judges `source` (which defines `ModelNew`) against the task's reference.

        `artifact` is what a builder made of it; without one, what needs building is built first. `passed_look`: `look`
        found no failure. An identical candidate at the same preset is measured once. Never raises for what a candidate
        does; a task whose reference fails, or an evaluator that fails three times, gives an `infra` verdict.
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
                verdict = self._evaluate(task, candidate, chosen, artifact, passed_look=passed_look)
            except _OURS as error:
                _log.warning("%s: evaluation attempt %d of %d failed: %s", task.id, attempt, _ATTEMPTS, error)
                verdict = self._verdict(task, candidate, chosen, Judgement(Outcome.INFRA, str(error)))
                continue
            verdict = replace(verdict, cost={**verdict.cost, "total": time.perf_counter() - start})
            self._verdicts[key] = verdict
            return verdict
        return verdict

    def look(self, task: Task, source: str, *, preset: str, artifact: Artifact | None = None) -> Verdict | None:
        """The verdict on a candidate that certainly does not run, by one process in which nothing is timed, or one that
        is taken over; None of any other, which `evaluate` is to judge. Many evaluators may look at once, and none
        measures meanwhile.

        Raises Unbuilt for an extension that is not in the artifact.
        """
        candidate, chosen = Candidate.propose(task.id, source, ""), preset_named(preset, self.device.arch)
        known = self._verdicts.get((task.digest, candidate.digest, chosen.name))
        if known is not None and REUSED_FROM in known.evaluator:
            return known
        start = time.perf_counter()
        unparsed = _unparsed(source)
        found = (unparsed, ()) if unparsed else self._looked(task, source, artifact)
        if found is None:
            return None
        seconds = time.perf_counter() - start
        cost = {"build": 0.0, "compile": artifact.seconds if artifact else 0.0, "look": seconds, "total": seconds}
        return replace(self._verdict(task, candidate, chosen, *found), cost=cost)

    def _looked(self, task: Task, source: str, artifact: Artifact | None) -> Found | None:
        try:
            return self._slot.look(self._program(task), source, artifact)
        except _OURS as error:
            _log.warning("%s: a look failed: %s", task.id, error)
            return None

    def _evaluate(
        self,
        task: Task,
        candidate: Candidate,
        preset: Preset,
        artifact: Artifact | BuildError | None,
        *,
        passed_look: bool,
    ) -> Verdict:
        start = time.perf_counter()
        if unparsed := _unparsed(candidate.source):
            return self._verdict(task, candidate, preset, unparsed)
        if artifact is None and needs_build(candidate.source):
            artifact = self.builder.build(task, candidate)
        build_seconds = time.perf_counter() - start
        asked: list[ExtensionRequest] = []
        while not isinstance(artifact, BuildError):
            try:
                program = self._program(task)
                judgement, active = self._slot.judge(
                    program, candidate.source, preset, artifact, passed_look=passed_look
                )
                break
            except Unbuilt as missing:
                if not self._builds:
                    raise
                asked.append(missing.request)
                start = time.perf_counter()
                artifact = self.builder.build(task, candidate, asked)
                build_seconds += time.perf_counter() - start
        else:
            message = f"{artifact.stage}: {artifact.message}"
            cost = {"build": build_seconds, "compile": artifact.seconds}
            return self._verdict(task, candidate, preset, Judgement(Outcome.BUILD_ERROR, message, cost=cost))
        if preset.paper and judgement.speedup is not None:
            judgement = self._confirmed(task, candidate, judgement, judgement.speedup.value)
        verdict = self._verdict(task, candidate, preset, judgement, active)
        if judgement.speedup is not None:
            speedups = self._speedups(task, judgement.speedup)
            is_ok = verdict.outcome is Outcome.OK
            verdict = replace(verdict, speedups=speedups) if is_ok else replace(verdict, doubted=speedups)
        compile_seconds = artifact.seconds if artifact else 0.0
        return replace(verdict, cost={"build": build_seconds, "compile": compile_seconds, **judgement.cost})

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

    def unbuilt_baselines(self, tasks: Sequence[Task]) -> list[tuple[Task, Candidate]]:
        """The programs of its baselines of the tasks that have to be built before they are measured."""
        versions = self.device.versions()
        unknown = (
            (task, Candidate.propose(task.id, baseline_source(task, name), f"baseline:{name}"))
            for task in tasks
            for name in self.baselines
            if name != "eager" and self._baseline_store.get(task, name, versions) is None
        )
        return [job for job in unknown if needs_build(job[1].source) and not self.builder.is_built(*job)]

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
            # It is the task's own program, which other shapes and distributions say nothing about.
            preset = replace(self.preset, distributions=0, shapes=0)
            judgement, _ = self._slot.judge(self._program(task), candidate.source, preset, artifact)
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
        outcome = judgement.outcome
        if outcome is Outcome.OK and self.guarded:
            severities = {finding.severity for finding in judgement.findings}
            outcome = Outcome.HACK if HACK in severities else Outcome.SUSPECT if SUSPECT in severities else outcome
        about: dict[str, Any] = {**self.device.versions(), "preset": preset.name, "task_digest": task.digest}
        if not self.guarded:
            about["guard"] = "off"
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


def _unparsed(source: str) -> Judgement | None:
    """The judgement of what is no Python; None of what is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those that Python has for a candidate are of no use to our user
            compile(source, "<candidate>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Judgement(Outcome.BUILD_ERROR, f"does not parse: {error}")
    return None
