"""Judges candidates that have to be built: before they run, and again for extensions that they ask for as they run.

Building takes place here, outside of the measuring slot, so that no device waits for a compiler.
"""

from __future__ import annotations

import time
from dataclasses import replace

from evaluators.compile.builder import Builder
from evaluators.compile.hints import needs_build
from evaluators.failures import EVICTED, MOST_EVICTIONS, InfraError, Unbuilt
from evaluators.judge.judgement import Judgement
from evaluators.judge.slot import MeasuringSlot
from evaluators.records import Artifact, BuildError, Candidate, Outcome, Task
from evaluators.shared.extension import ExtensionRequest
from evaluators.tasks.program import TaskPrograms
from evaluators.timing.presets import Preset


class BuildThenJudge:
    """Builds candidates as far as they need it, and has them judged in a measuring slot."""

    def __init__(self, builder: Builder, slot: MeasuringSlot, programs: TaskPrograms, *, may_build: bool) -> None:
        """Without `may_build`, `judge` raises Unbuilt for an extension that is not in a candidate's artifact, and for
        an artifact that was evicted."""
        self._builder, self._slot, self._programs, self._may_build = builder, slot, programs, may_build

    def judge(
        self,
        task: Task,
        candidate: Candidate,
        preset: Preset,
        artifact: Artifact | BuildError | None,
        *,
        passed_look: bool,
    ) -> Judgement:
        """The judgement of a candidate, with the seconds of building in its cost.

        `artifact` is what a builder made of it; without one, a source that needs building is built first.
        `passed_look`: a look found no failure. Raises InfraError, ProgramError and Unbuilt.
        """
        start = time.perf_counter()
        if artifact is None and needs_build(candidate.source):
            artifact = self._builder.build(task, candidate)
        build_seconds = time.perf_counter() - start
        requests: list[ExtensionRequest] = []
        evictions = 0
        while not isinstance(artifact, BuildError):
            try:
                program = self._programs.get(task)
                with self._builder.artifacts.used(artifact):
                    judgement = self._slot.judge(program, candidate.source, preset, artifact, passed_look=passed_look)
            except Unbuilt as missing:
                if not self._may_build:
                    raise
                if missing.request is None:
                    evictions += 1
                    if evictions > MOST_EVICTIONS:
                        raise InfraError(EVICTED) from None
                else:
                    requests.append(missing.request)
                start = time.perf_counter()
                artifact = self._builder.build(task, candidate, requests)
                build_seconds += time.perf_counter() - start
            else:
                compile_seconds = artifact.seconds if artifact else 0.0
                return replace(judgement, cost={"build": build_seconds, "compile": compile_seconds, **judgement.cost})
        message = f"{artifact.stage}: {artifact.message}"
        return Judgement(Outcome.BUILD_ERROR, message, cost={"build": build_seconds, "compile": artifact.seconds})
