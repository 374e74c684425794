"""The front door of evaluation: a task and a source in, a verdict out. Usable without Ray.

with Evaluator(arch="cpu") as evaluator:
    print(evaluator.evaluate("level1/gelu", source).outcome)
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from configs.schema import LimitsConfig
from evaluators.audit.marks import Mark, blind_task, shipped_marks
from evaluators.compile.builder import Builder
from evaluators.compile.cache import BuildCache
from evaluators.host.folders import own_prefix
from evaluators.host.open_device import open_device
from evaluators.judge.build_then_judge import BuildThenJudge
from evaluators.judge.confirmation import Confirm, Confirmation
from evaluators.judge.demands import Demands
from evaluators.judge.judgement import Judgement, judge_text
from evaluators.judge.slot import OUR_FAILURES, MeasuringSlot
from evaluators.judge.verdict import make_verdict
from evaluators.records import DROP_IN, Artifact, BuildError, Candidate, Outcome, Task, Verdict
from evaluators.stored.baselines import BaselineResult, existing_baselines
from evaluators.stored.measuring import Baselines
from evaluators.stored.verdicts import REUSED_FROM, ReusableVerdicts
from evaluators.tasks import find_task, profile_of
from evaluators.tasks.program import TaskPrograms
from evaluators.timing.clocks import EventClock
from evaluators.timing.presets import Preset, preset_named

_log = logging.getLogger(__name__)
_ATTEMPTS = 3


class Evaluator:
    """Evaluates candidates on one architecture, one at a time. Not thread-safe.

    `builder` builds candidates into `store`, the folder that also keeps baselines.
    """

    def __init__(
        self,
        arch: str = "auto",
        *,
        preset: str = "fast",
        threads: int = 1,
        baselines: Sequence[str] = ("eager",),
        limits: LimitsConfig | None = None,
        require_shapes: bool = False,
        strict: str = DROP_IN,
        require_containment: Sequence[str] = (),
        confirm: Confirm | None = None,
        store: Path | None = None,
        cache: BuildCache | None = None,
        builds: bool = True,
        guarded: bool = True,
        verdicts_of: Sequence[str] = (),
        marks: Sequence[Mark] = (),
        measures_baselines: bool = True,
    ) -> None:
        """`require_shapes`, `strict`, `require_containment`: what is demanded (`evaluators.judge.demands`).
        `confirm` gives the second opinion that the preset `paper` asks for.
        `store` keeps baselines and build artifacts between evaluators, else they last as long as this one. Without
        `measures_baselines` verdicts are over the stored ones alone.
        `cache` keeps extensions, in `store` unless given. Without `builds`, `evaluate` raises Unbuilt for a candidate
        that asks for an extension which is not in its artifact, or whose artifact was evicted, so that the caller can
        have it built elsewhere.
        Without `guarded` a program is believed: its own clock decides, and findings do not change the outcome. That is
        for showing what the guard is worth, never for rewards that anybody trusts.
        `verdicts_of`: folders of earlier runs, whose verdicts are reused if alike (`evaluators.stored.verdicts`).
        `marks`: of tasks that cannot tell a good program from a cheat, beside those that ship. Their verdicts say so.

        Raises ValueError for an architecture, preset or baseline that does not exist, FileNotFoundError for a folder
        without verdicts.
        """
        self.device = open_device(arch, threads=threads)
        self.guarded = guarded
        if not guarded:
            self.device.clock = EventClock()
        self.preset = preset_named(preset, self.device.arch)
        self.limits = limits or LimitsConfig()
        self._demands = demands = Demands(require_shapes, strict, tuple(require_containment))
        if unknown := set(baselines) - set(existing_baselines(self.device.arch)):
            raise ValueError(f"evaluator.baselines: {', '.join(sorted(unknown))} does not exist on {self.device.arch}")
        self._own_store = tempfile.TemporaryDirectory(prefix=own_prefix("store")) if store is None else None
        self.store = _make_store(store, self._own_store)
        self.builder = Builder(
            self.device, self.store, self.limits, cache=cache, require_containment=demands.containment
        )
        self._is_contained = not demands.containment  # else it is to be found out
        self._slot = MeasuringSlot(self.device, self.limits, self.builder.cache, self.builder.artifacts.folder, demands)
        self._programs = TaskPrograms(self.device.torch_device, any_strides=demands.by_value)
        parts = self.device, self.store, self.builder, self._slot, self._programs
        self._baselines = Baselines(baselines, *parts, self.preset, strict, measures=measures_baselines)
        self._judging = BuildThenJudge(self.builder, self._slot, self._programs, may_build=builds)
        self._confirmation = Confirmation(self.device.arch, confirm)
        self._marks = {mark.digest: mark for mark in (*shipped_marks(), *marks)}
        earlier = verdicts_of if guarded else ()
        self._verdicts = ReusableVerdicts(earlier, self.device.versions(), self._baselines.required, strict).known()

    @property
    def baselines(self) -> tuple[str, ...]:
        """The names of the baselines that verdicts report speed-ups over."""
        return self._baselines.names

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
        """Starts the zygote now rather than at the first evaluation or look. Raises ContainmentError if the host does
        not contain programs as required."""
        self._slot.start()
        self._is_contained = True

    def evaluate(
        self,
        task: Task | str,
        source: str,
        *,
        preset: str | None = None,
        author: str = "",
        artifact: Artifact | BuildError | None = None,
        passed_look: bool = False,
        again: bool = False,
    ) -> Verdict:
        """Judges `source` (which defines `ModelNew`) against the task's reference.

        `artifact` is what a builder made of it; without one, a source that needs building is built first.
        `passed_look`: `look` found no failure. An identical candidate is measured once at a preset, unless it is asked
        for `again`. Never raises for what a candidate does. A task whose reference fails, or an evaluator that fails
        three times, gives an `infra` verdict.
        """
        self._ensure_containment()
        task = find_task(task, profile_of(self.device.arch)) if isinstance(task, str) else task
        candidate = Candidate.propose(task.id, source, author)
        chosen = preset_named(preset, self.device.arch) if preset else self.preset
        key = (task.digest, candidate.digest, chosen.name, self._demands.strict)
        known = None if again else self._verdicts.get(key)
        if known is not None:
            return known
        for attempt in range(1, _ATTEMPTS + 1):
            start = time.perf_counter()
            try:
                verdict = self._evaluate(task, candidate, chosen, artifact, passed_look=passed_look)
            except OUR_FAILURES as error:
                _log.warning("%s: evaluation attempt %d of %d failed: %s", task.id, attempt, _ATTEMPTS, error)
                verdict = self._verdict(task, candidate, chosen, Judgement(Outcome.INFRA, str(error)))
                continue
            verdict = replace(verdict, cost={**verdict.cost, "total": time.perf_counter() - start})
            self._verdicts.put(key, verdict)
            return verdict
        return verdict

    def look(
        self, task: Task, source: str, *, preset: str, artifact: Artifact | None = None, again: bool = False
    ) -> Verdict | None:
        """The verdict on a candidate that certainly does not run, or a reused one unless it is asked for `again`; None
        for any other candidate, which `evaluate` is to judge.

        A look takes one process, in which nothing is timed. Many evaluators may look at once, and none measures
        meanwhile. Raises Unbuilt for an extension that is not in the artifact.
        """
        self._ensure_containment()
        candidate, chosen = Candidate.propose(task.id, source, ""), preset_named(preset, self.device.arch)
        earlier = self._verdicts.get((task.digest, candidate.digest, chosen.name, self._demands.strict))
        if earlier is not None and REUSED_FROM in earlier.evaluator and not again:
            return earlier
        start = time.perf_counter()
        judgement = judge_text(source)
        if judgement is None:
            try:
                with self.builder.artifacts.used(artifact):
                    judgement = self._slot.look(self._programs.get(task), source, artifact)
            except OUR_FAILURES as error:
                _log.warning("%s: a look failed: %s", task.id, error)
        if judgement is None:
            return None
        seconds = time.perf_counter() - start
        cost = {"build": 0.0, "compile": artifact.seconds if artifact else 0.0, "look": seconds, "total": seconds}
        return self._verdict(task, candidate, chosen, replace(judgement, cost=cost))

    def baseline(self, task: Task, name: str) -> BaselineResult:
        """The speed-up of a baseline over eager: stored, or measured now. Raises InfraError if that is our fault."""
        self._ensure_containment()
        return self._baselines.get(task, name)

    def unbuilt_baselines(self, tasks: Sequence[Task]) -> list[tuple[Task, Candidate]]:
        """The programs of baselines of the tasks that have to be built before they are measured."""
        return self._baselines.unbuilt(tasks)

    def _ensure_containment(self) -> None:
        if not self._is_contained:
            self.start()

    def _evaluate(
        self,
        task: Task,
        candidate: Candidate,
        preset: Preset,
        artifact: Artifact | BuildError | None,
        *,
        passed_look: bool,
    ) -> Verdict:
        judgement = judge_text(candidate.source)
        if judgement is None:
            judgement = self._judging.judge(task, candidate, preset, artifact, passed_look=passed_look)
            if preset.paper:
                judgement = self._confirmation.review(task, candidate.source, judgement)
        return self._verdict(task, candidate, preset, judgement)

    def _verdict(self, task: Task, candidate: Candidate, preset: Preset, judgement: Judgement) -> Verdict:
        speedups = self._baselines.speedups(task, judgement.speedup) if judgement.speedup is not None else {}
        mark = self._marks.get(task.text_digest)
        if mark is not None and judgement.outcome is Outcome.OK:
            judgement = replace(judgement, findings=(blind_task(mark), *judgement.findings))
        return make_verdict(
            judgement,
            task,
            candidate,
            preset.name,
            self.device.versions(),
            guarded=self.guarded,
            strict=self._demands.strict,
            speedups=speedups,
        )


def _make_store(store: Path | None, own: tempfile.TemporaryDirectory[str] | None) -> Path:
    """The folder `store`, made if need be, or the evaluator's own, which runners may enter: they are other users."""
    if own is not None:
        Path(own.name).chmod(0o755)
        return Path(own.name)
    folder = Path(store or "")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
