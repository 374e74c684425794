"""Candidates on their way to a verdict: built, evaluated and reviewed, each once in a run.

Only a candidate that seems the fastest of its task is evaluated again (`evaluators.timing.new_best`), or one whose
speed-up jumps (`orchestration.step.second_device`). Several steps may wait for one candidate. Nothing here may be
called from two threads.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors.evaluation import BuildRequest, EvaluationRequest, SameDevice
from actors.log_fields import log_fields
from actors.pool import ActorPool
from actors.pool_records import ItemGivenUp, PoolExhausted, PoolFailure
from evaluators.compile.hints import needs_build
from evaluators.failures import EVICTED, MOST_EVICTIONS, Unbuilt
from evaluators.records import Candidate, Outcome, Task, Verdict
from evaluators.timing.new_best import believed, combined, needs_another
from learners.room import check_room, tells_of_full
from orchestration.run.set_aside import Evidence, SetAside
from orchestration.step.gathering import Gathering
from orchestration.step.known import RunVerdicts
from orchestration.step.review import Reviewer
from orchestration.step.second_device import SecondDevice

_log = logging.getLogger(__name__)
_MOST_CHARACTERS = 2000  # of a verdict's message

_ROOM_BYTES = 16 << 20
"""What a store must have room for: a few extensions."""

Key = tuple[str, str]
"""A candidate's digest and the preset at which it is judged."""
OnVerdict = Callable[[Candidate, Verdict, Gathering], None]


class Judging:
    """Moves candidates through the builders and the evaluators of a run, and past its reviewer.

    `known`: the verdicts of the run so far. `builders_look`: builders look at every candidate, also at those that
    compile nothing, since evaluators have to wait for their turn. `cpu_look`: they look at every candidate on a CPU
    before. `remeasure_best`: how often at most a candidate is evaluated again that seems the fastest of its task.
    `confirms_jumps`: a speed-up that jumps is confirmed by another device, if there is one.
    `store`: the folder in which builders and evaluators write. If it is full, no candidate could be judged, and what is
    called here raises DiskFull.
    `set_aside`: the candidates that lost too many workers, which are not tried again.
    `arch`: the further architecture that it judges on, empty for `evaluator.arch`. `is_sampled`: no reward needs its
    verdicts. `on_verdict` hears of each verdict that a step gets.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        builders: ActorPool,
        evaluators: ActorPool,
        reviewer: Reviewer,
        *,
        builders_look: bool,
        cpu_look: bool = False,
        remeasure_best: int = 0,
        confirms_jumps: bool = False,
        known: RunVerdicts | None = None,
        store: Path | None = None,
        set_aside: SetAside | None = None,
        arch: str = "",
        is_sampled: bool = False,
    ) -> None:
        self._store = store
        self.arch, self._is_sampled = arch, is_sampled
        self.on_verdict: OnVerdict = lambda *_: None
        self._tasks = {task.id: task for task in tasks}
        self.builders, self.evaluators, self.reviewer = builders, evaluators, reviewer
        self.known = known or RunVerdicts()
        self._builders_look, self._cpu_look, self._remeasure_best = builders_look, cpu_look, remeasure_best
        self._evidence = set_aside or SetAside()
        self._set_aside = {
            (evidence.candidate, evidence.preset): _verdict_of(evidence)
            for evidence in self._evidence.all()
            if evidence.task in self._tasks
            and self._tasks[evidence.task].digest == evidence.task_digest
            and evidence.arch == arch
        }
        self._awaited: dict[Key, list[Gathering]] = {}  # the steps that wait for each verdict
        self.counts: Counter[tuple[str, ...]] = Counter()
        """What has happened so far, for `orchestration.fleet.ray_metrics`."""
        self._confirms_jumps, self._second_device = confirms_jumps, SecondDevice()
        self._measured: dict[Key, list[Verdict]] = {}  # the verdicts so far on what is evaluated again

    @property
    def moves(self) -> int:
        """How much has happened so far. For any thread."""
        return sum(list(self.counts.values()))

    @property
    def pending(self) -> int:
        """Candidates that wait for a builder or an evaluator, or are with one."""
        return self.builders.pending + self.evaluators.pending

    def propose(self, candidate: Candidate, gathering: Gathering, task: Task | None = None) -> None:
        """Sends a candidate on its way for a step, unless it has been judged or is being judged. `task`: its task, if
        that is none of `tasks`."""
        key = (candidate.digest, gathering.preset)
        known = verdict = self.known.get(*key)
        if known is not None:
            verdict = self.reviewer.review_again(known)
            if verdict is not known:
                self.known.put(verdict)
        verdict = verdict or self._set_aside.get(key)
        gathering.record_candidate(candidate, verdict, self.arch, is_sampled=self._is_sampled)
        if verdict is not None:
            self.counts["reused_verdicts",] += 1
            self.on_verdict(candidate, verdict, gathering)
            return
        others = self._awaited.get(key)
        if others is not None:  # may be empty, if the steps that asked for it have given up
            others.append(gathering)
            return
        self._awaited[key] = [gathering]
        task, fields = task or self._tasks[candidate.task_id], gathering.log_fields
        if self._builders_look or self._cpu_look or needs_build(candidate.source):
            self.builders.submit(BuildRequest(task, candidate, gathering.preset, log_fields=fields), "prepare")
        else:
            self.evaluators.submit(EvaluationRequest(task, candidate, gathering.preset, log_fields=fields), "evaluate")

    def advance(self) -> bool:
        """Passes on the results of builders, evaluators and the reviewer; returns whether there were any. Never waits.

        Raises PoolExhausted if a pool has no actor left.
        """
        built = self.builders.poll(0.0)
        for build, outcome in built:
            self._receive_build(build, outcome)
        evaluated = self.evaluators.poll(0.0)
        for evaluation, outcome in evaluated:
            self._receive_verdict(evaluation, outcome)
        reviewed = self.reviewer.poll()
        for candidate, verdict in reviewed:
            self._deliver(candidate, verdict)
        return bool(built or evaluated or reviewed)

    def give_up(self, digests: Collection[str], gathering: Gathering) -> None:
        """Ends a step's wait for these candidates.

        Candidates that no other step waits for are taken back, unless an actor works on them.
        """
        unwanted = set()
        for digest in digests:
            key = (digest, gathering.preset)
            self._awaited[key].remove(gathering)
            if not self._awaited[key]:
                unwanted.add(key)
        withdrawn: set[Key] = set()
        for pool in (self.builders, self.evaluators):
            withdrawn |= {request.key for request in pool.withdraw_keys(unwanted, queued_only=True)}
        for key in withdrawn:
            del self._awaited[key]
            self._measured.pop(key, None)
            self._second_device.forget(key)

    def _receive_build(self, request: BuildRequest, outcome: Any) -> None:
        """Sends a built candidate on to the evaluators, unless the builder's look was enough for a verdict."""
        if isinstance(outcome, Unbuilt):
            self._build_more(request, outcome)
            return
        if self._has_failed(outcome):
            outcome = self._failure(request, outcome.error, "prepare")
        self.counts["builds", "refused" if isinstance(outcome, Verdict) else "passed on"] += 1
        if isinstance(outcome, Verdict):
            self._check_room(outcome)
            self._settle(request, outcome)
            return
        evaluation = EvaluationRequest(
            request.task,
            request.candidate,
            request.preset,
            outcome,
            request.extensions,
            self._builders_look,
            request.evictions,
            request.again,
            request.log_fields,
            *self._second_device.what_to_avoid(request.key),
        )
        self.evaluators.submit(evaluation, "evaluate", priority=-1 if request.again else 0)

    def _build_more(self, request: BuildRequest | EvaluationRequest, missing: Unbuilt) -> None:
        """Builds what a candidate turned out to lack: an extension that it asked for while it ran, or its artifact,
        which was evicted. It goes before all others, since it is half judged."""
        extensions, evictions = request.extensions, request.evictions
        if missing.request is not None:
            extensions = (*extensions, missing.request)
        elif evictions == MOST_EVICTIONS:
            self._settle(request, _infra_verdict(request, EVICTED, self.arch))
            return
        else:
            evictions += 1
        rebuild = BuildRequest(
            request.task,
            request.candidate,
            request.preset,
            extensions,
            evictions,
            request.again,
            request.log_fields,
        )
        self.builders.submit(rebuild, "prepare", priority=-1)

    def _receive_verdict(self, request: EvaluationRequest, outcome: Any) -> None:
        if isinstance(outcome, Unbuilt):
            self._build_more(request, outcome)
            return
        if isinstance(outcome, SameDevice):
            if self._second_device.is_refused(request.key, outcome.place):
                self._settle(request, None)
            else:
                self._judge_again(request)
            return
        verdict = self._failure(request, outcome.error, "evaluate") if self._has_failed(outcome) else outcome
        self._check_room(verdict)
        self._settle(request, verdict)

    def _has_failed(self, outcome: Any) -> bool:
        """Whether an item of a pool failed. No reward needs the verdicts of a sampled architecture, so a run goes on
        without them if its pool has no actor left."""
        return isinstance(outcome, PoolFailure) if self._is_sampled else has_failed(outcome)

    def _check_room(self, verdict: Verdict) -> None:
        if verdict.outcome is Outcome.INFRA and self._store is not None and tells_of_full(verdict.message):
            check_room(self._store, _ROOM_BYTES)

    def _failure(self, request: BuildRequest | EvaluationRequest, error: Exception, method: str) -> Verdict:
        """The verdict on a candidate that a pool could not finish. One that lost too many workers is set aside."""
        if not (isinstance(error, ItemGivenUp) and error.is_set_aside):
            return _infra_verdict(request, str(error), self.arch)
        evidence = Evidence.of(request.task, request.candidate, request.preset, method, error, self.arch)
        self._evidence.add(evidence)
        verdict = self._set_aside[evidence.candidate, evidence.preset] = _verdict_of(evidence)
        with log_fields(candidate=evidence.candidate, task=evidence.task, **request.log_fields):
            _log.warning("%s: candidate %s is set aside: %s", evidence.task, evidence.candidate, evidence.reason)
        return verdict

    def _settle(self, request: BuildRequest | EvaluationRequest, verdict: Verdict | None) -> None:
        """Hands a fresh verdict to the reviewer, unless the candidate is to be evaluated again first, on another device
        if its speed-up jumps. None: there is no other device.

        A repetition comes before all other candidates, so that these are compared with a best that is believed.
        """
        key = request.key
        fresh = self._second_device.settle(key, verdict) or ([verdict] if verdict else [])
        measured, best = [*self._measured.pop(key, ()), *fresh], self.reviewer.best_of(request.task.id)
        if self._asks_another_device(key, measured[-1]):
            self._measured[key] = measured[:-1]  # the last one is kept with the question
        elif needs_another(measured, best, self._remeasure_best):
            self._measured[key] = measured
        else:
            decided = believed(measured, best) if self._remeasure_best else combined(measured)
            self._review(request.candidate, self._second_device.conclude(key, decided))
            return
        self._judge_again(request)

    def _asks_another_device(self, key: Key, verdict: Verdict) -> bool:
        """Whether the candidate is to be evaluated by another device next."""
        return self._confirms_jumps and self.reviewer.jumps(verdict) and self._second_device.ask(key, verdict)

    def _judge_again(self, request: BuildRequest | EvaluationRequest) -> None:
        if isinstance(request, BuildRequest):
            self.builders.submit(replace(request, again=True), "prepare", priority=-1)
            return
        not_on, avoid = self._second_device.what_to_avoid(request.key)
        again = replace(request, again=True, not_on=not_on, avoid=avoid)
        self.evaluators.submit(again, "evaluate", priority=-1)

    def _review(self, candidate: Candidate, verdict: Verdict) -> None:
        """Hands a fresh verdict to the reviewer, and counts it for the step that asked first."""
        for gathering in self._awaited.get(_key(candidate.digest, verdict), [])[:1]:
            gathering.measured += 1
        self.reviewer.submit(candidate, verdict)

    def _deliver(self, candidate: Candidate, verdict: Verdict) -> None:
        """Gives a reviewed verdict to all steps that wait for it."""
        key = _key(candidate.digest, verdict)
        self.known.put(verdict)
        self.counts["verdicts", str(verdict.outcome)] += 1
        for gathering in self._awaited.pop(key, ()):
            self.on_verdict(candidate, verdict, gathering)
            gathering.record_verdict(verdict, self.arch)


def has_failed(outcome: Any) -> bool:
    """Whether an item of a pool failed. Raises PoolExhausted if every other item would fail, too."""
    if isinstance(outcome, PoolFailure) and isinstance(outcome.error, PoolExhausted):
        raise outcome.error
    return isinstance(outcome, PoolFailure)


def _key(digest: str, verdict: Verdict) -> Key:
    return (digest, verdict.evaluator["preset"])


def _verdict_of(evidence: Evidence) -> Verdict:
    """The verdict on a candidate that is set aside."""
    message = f"set aside, since it lost too many workers: {evidence.reason}"
    settings = {"preset": evidence.preset, "task_digest": evidence.task_digest}
    text, arch = message[:_MOST_CHARACTERS], evidence.arch
    return Verdict(evidence.candidate, evidence.task, arch, Outcome.INFRA, text, evaluator=settings)


def _infra_verdict(request: BuildRequest | EvaluationRequest, message: str, arch: str) -> Verdict:
    """The verdict that says that we failed to judge a candidate."""
    candidate, task_id = request.candidate.digest, request.task.id
    with log_fields(candidate=candidate, task=task_id, **request.log_fields):
        _log.warning("%s: candidate %s could not be judged: %s", task_id, candidate, message)
    evaluator = {"preset": request.preset}
    return Verdict(candidate, task_id, arch, Outcome.INFRA, message[:_MOST_CHARACTERS], evaluator=evaluator)
