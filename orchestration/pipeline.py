"""From prompts to judged rollouts, streamed: each response is built and evaluated as soon as it is complete.

Generation, building and evaluation run side by side in their pools; an identical candidate is judged once in a run.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from actors.builder import BuildRequest
from actors.evaluator import EvaluationRequest
from actors.pool import ActorPool, PoolExhausted, PoolFailure
from actors.rollout import Completion, GenerationRequest
from configs.schema import RolloutConfig
from evaluators.build.builder import needs_build
from evaluators.failures import Unbuilt
from evaluators.records import Artifact, BuildError, Candidate, Outcome, Task, Verdict
from learners.records import Rollout
from orchestration.review import Reviewer
from prompts.parse import parse_response

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.02


Judged = Callable[[Sequence[Rollout], Mapping[str, Verdict]], "Prompt | None"]
"""What is called with each group as soon as it is judged; it may give a further prompt."""


@dataclass(frozen=True)
class Prompt:
    """One prompt on a task; its responses form the group of that name."""

    task_id: str
    group: str
    text: str
    ids: tuple[int, ...]


@dataclass
class StepResult:
    """What a step brought: rollouts (no reward yet), the candidates in them and their verdicts, by digest."""

    rollouts: list[Rollout] = field(default_factory=list)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


class Pipeline:
    """Moves work between the pools of one run. `verdicts` holds what the run has judged, by (candidate, preset)."""

    def __init__(
        self,
        tasks: Iterable[Task],
        engines: ActorPool,
        builders: ActorPool,
        evaluators: ActorPool,
        rollout: RolloutConfig,
        reviewer: Reviewer,
        max_backlog: int = 1024,
        on_progress: Callable[[dict[str, float]], None] | None = None,
    ) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.engines, self.builders, self.evaluators = engines, builders, evaluators
        self.rollout = rollout
        self.reviewer = reviewer
        self.max_backlog = max_backlog
        self.verdicts: dict[tuple[str, str], Verdict] = {}
        self.on_progress = on_progress or (lambda _: None)

    def has_room(self) -> bool:
        """Whether the engines can begin another group, and those who judge what comes of it are not too far behind."""
        return not self.engines.queued and self.builders.pending + self.evaluators.pending < self.max_backlog

    def run(
        self,
        prompts: Sequence[Prompt],
        *,
        samples: int,
        temperature: float,
        preset: str,
        on_group: Judged | None = None,
    ) -> StepResult:
        """Samples `samples` responses a prompt and judges what they propose. What `on_group` gives for a group is
        sampled, too, while the others are still under way.

        What is lost with an actor for good (a group, a verdict) is left out, or judged as `infra`. Raises PoolExhausted
        when a pool has no actor left, since nothing could be said of any candidate then.
        """
        return _Run(self, preset, on_group).generate(prompts, samples, temperature)

    def evaluate(self, candidates: Sequence[Candidate], preset: str) -> dict[str, Verdict]:
        """Verdicts on candidates that are there already (a teacher's), by digest."""
        return _Run(self, preset).evaluate(candidates).verdicts


class _Run:
    """One pass through the pools, until nothing is under way."""

    def __init__(self, pipeline: Pipeline, preset: str, on_group: Judged | None = None) -> None:
        self.pipeline = pipeline
        self.preset = preset
        self.on_group = on_group
        self.unsettled: dict[str, list[Rollout]] = {}
        self.result = StepResult()
        self.started = time.monotonic()
        self.tokens = 0
        self.generated_at = self.started
        self.measured = 0

    def generate(self, prompts: Sequence[Prompt], samples: int, temperature: float) -> StepResult:
        by_group = {prompt.group: prompt for prompt in prompts}
        rollout = self.pipeline.rollout

        def asked(prompt: Prompt) -> GenerationRequest:
            tokens, top_p = rollout.max_tokens, rollout.top_p
            return GenerationRequest(prompt.group, prompt.ids, samples, tokens, temperature, top_p, None)

        waiting = deque(map(asked, prompts))
        while waiting or self.pipeline.engines.pending or self._evaluating():
            while waiting and self.pipeline.has_room():
                self.pipeline.engines.submit(waiting.popleft(), "generate")
            self._generating_step(by_group)
            self._evaluating_step()
            for further in self._further():
                by_group[further.group] = further
                waiting.append(asked(further))
            self._rest()
        self._finish_metrics()
        return self.result

    def evaluate(self, candidates: Sequence[Candidate]) -> StepResult:
        for candidate in candidates:
            self._propose(candidate)
        while self._evaluating():
            self._generating_step({})
            self._evaluating_step()
            self._rest()
        self._finish_metrics()
        return self.result

    def _generating_step(self, by_group: Mapping[str, Prompt]) -> None:
        """Collects finished responses, and answers to what a reward checker was asked."""
        if not self.pipeline.engines.pending:
            return
        for request, outcome in self.pipeline.engines.poll(_POLL_SECONDS):
            failed = _failed(outcome)
            if self.pipeline.reviewer.take(request.key, None if failed else outcome):
                continue
            if failed:
                _log.warning("group %s is lost: %s", request.key, outcome.error)
                continue
            taken = [self._take(by_group[request.key], completion) for completion in outcome]
            if self.on_group is not None:
                self.unsettled[request.key] = taken

    def _further(self) -> Iterator[Prompt]:
        """What `on_group` asks for, for the groups that are judged by now."""
        verdicts = self.result.verdicts
        for group, rollouts in list(self.unsettled.items()):
            if all(one.candidate_digest is None or one.candidate_digest in verdicts for one in rollouts):
                del self.unsettled[group]
                further = self.on_group(rollouts, verdicts) if self.on_group else None
                if further is not None:
                    yield further

    def _take(self, prompt: Prompt, completion: Completion) -> Rollout:
        """Turns a response into a rollout, and sends the program in it on its way."""
        self.tokens += len(completion.token_ids)
        self.generated_at = time.monotonic()
        parsed = parse_response(completion.text, completion.finish_reason)
        rollout = Rollout(
            task_id=prompt.task_id,
            group=prompt.group,
            prompt=prompt.text,
            response=completion.text,
            prompt_ids=prompt.ids,
            response_ids=tuple(completion.token_ids),
            logprobs=tuple(completion.logprobs),
            policy_version=completion.policy_version,
            finish_reason=completion.finish_reason,
        )
        if parsed.code is None:
            rollout = replace(rollout, outcome=str(Outcome.BUILD_ERROR))
        else:
            candidate = Candidate.propose(prompt.task_id, parsed.code, f"policy:{completion.policy_version}")
            rollout = replace(rollout, candidate_digest=candidate.digest)
            self._propose(candidate)
        self.result.rollouts.append(rollout)
        return rollout

    def _propose(self, candidate: Candidate) -> None:
        if candidate.digest in self.result.candidates:
            return
        self.result.candidates[candidate.digest] = candidate
        known = self.pipeline.verdicts.get((candidate.digest, self.preset))
        if known is not None:
            spoken = self.pipeline.reviewer.known(known)
            self.pipeline.verdicts[candidate.digest, self.preset] = self.result.verdicts[candidate.digest] = spoken
            return
        task = self.pipeline.tasks[candidate.task_id]
        if needs_build(candidate.source):
            self.pipeline.builders.submit(BuildRequest(task, candidate), "build")
        else:
            self.pipeline.evaluators.submit(EvaluationRequest(task, candidate, self.preset), "evaluate")

    def _evaluating(self) -> bool:
        pipeline = self.pipeline
        return bool(pipeline.builders.pending or pipeline.evaluators.pending or pipeline.reviewer.pending)

    def _evaluating_step(self) -> None:
        """Collects finished builds and verdicts; what was built goes on to the evaluators."""
        pipeline = self.pipeline
        if pipeline.builders.pending:
            for request, outcome in pipeline.builders.poll(_POLL_SECONDS):
                if _failed(outcome):
                    self._judged(request.candidate, _infra(request, pipeline, self.preset, str(outcome.error)))
                else:
                    built: Artifact | BuildError = outcome
                    pipeline.evaluators.submit(
                        EvaluationRequest(request.task, request.candidate, self.preset, built, request.also),
                        "evaluate",
                    )
        if pipeline.evaluators.pending:
            for request, outcome in pipeline.evaluators.poll(_POLL_SECONDS):
                if isinstance(outcome, Unbuilt):
                    also = (*request.also, outcome.request)
                    # Ahead of all others: an evaluator has begun with it.
                    rebuild = BuildRequest(request.task, request.candidate, also)
                    pipeline.builders.submit(rebuild, "build", priority=-1)
                    continue
                if _failed(outcome):
                    outcome = _infra(request, pipeline, self.preset, str(outcome.error))
                self._judged(request.candidate, outcome)
        self._collect_rulings()
        pipeline.on_progress(self._rates())

    def _rest(self) -> None:
        """Waits a moment where no pool has anything to wait for, but a checker."""
        pipeline = self.pipeline
        pools = (pipeline.engines, pipeline.builders, pipeline.evaluators)
        if pipeline.reviewer.pending and not any(pool.pending for pool in pools):
            time.sleep(_POLL_SECONDS)

    def _judged(self, candidate: Candidate, verdict: Verdict) -> None:
        self.measured += 1
        self.pipeline.reviewer.submit(candidate, verdict)

    def _collect_rulings(self) -> None:
        """Verdicts that have been looked at again, where that was needed."""
        for candidate, verdict in self.pipeline.reviewer.poll():
            self.result.verdicts[candidate.digest] = verdict
            if verdict.outcome is not Outcome.INFRA:  # ours: to be tried again when it is proposed again
                self.pipeline.verdicts[candidate.digest, self.preset] = verdict

    def _rates(self) -> dict[str, float]:
        """Tokens and evaluations per second so far."""
        return {
            "tokens_per_second": self.tokens / max(self.generated_at - self.started, 1e-9),
            "evaluations_per_second": self.measured / max(time.monotonic() - self.started, 1e-9),
        }

    def _finish_metrics(self) -> None:
        """Outcomes on the rollouts, and the step's figures."""
        verdicts = self.result.verdicts
        self.result.rollouts = [
            replace(rollout, outcome=str(verdicts[rollout.candidate_digest].outcome))
            if rollout.candidate_digest
            else rollout
            for rollout in self.result.rollouts
        ]
        self.result.metrics = {
            **self._rates(),
            **summary(self.result.rollouts, verdicts),
            "generated_tokens": float(self.tokens),
            "generate_seconds": self.generated_at - self.started,
            "pipeline_seconds": time.monotonic() - self.started,
            "measured": float(self.measured),
            "distinct_candidates": float(len(self.result.candidates)),
        }


def _failed(outcome: Any) -> bool:
    """Whether an item came to nothing. Raises PoolExhausted where every other item would, too."""
    if isinstance(outcome, PoolFailure) and isinstance(outcome.error, PoolExhausted):
        raise outcome.error
    return isinstance(outcome, PoolFailure)


def _infra(request: Any, pipeline: Pipeline, preset: str, message: str) -> Verdict:
    """Our own failure to judge a candidate."""
    _log.warning("%s: candidate %s could not be judged: %s", request.task.id, request.candidate.digest, message)
    about = {"preset": preset}
    return Verdict(request.candidate.digest, request.task.id, "", Outcome.INFRA, message[:2000], evaluator=about)


def summary(rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> dict[str, float]:
    """Success rate, mean speed-up over eager of the successful (and of those among them that nothing was found against,
    which is the same while the guard is on), response length, the share that something was found against, and counts by
    outcome and by kind of finding."""
    if not rollouts:
        return {}
    outcomes = Counter(rollout.outcome for rollout in rollouts)
    speedups = [
        speedup
        for rollout in rollouts
        if rollout.candidate_digest and (speedup := verdicts[rollout.candidate_digest].speedup) is not None
    ]
    judged = [verdicts[rollout.candidate_digest] for rollout in rollouts if rollout.candidate_digest]
    hacks = [verdict for verdict in judged if verdict.deciding]
    caught = Counter(kind for verdict in hacks for kind in {finding.kind for finding in verdict.deciding})
    honest = [verdict.speedup for verdict in judged if verdict.speedup is not None and not verdict.deciding]
    by_task: dict[str, list[bool]] = defaultdict(list)
    for rollout in rollouts:
        by_task[rollout.task_id].append(rollout.outcome == Outcome.OK)
    metrics = {
        "rollouts": float(len(rollouts)),
        "success_rate": outcomes[Outcome.OK] / len(rollouts),
        "tasks_solved": sum(any(values) for values in by_task.values()) / len(by_task),
        "hack_rate": len(hacks) / len(rollouts),
        "response_tokens": sum(len(rollout.response_ids) for rollout in rollouts) / len(rollouts),
        **{f"outcome/{name}": float(count) for name, count in outcomes.items()},
        **{f"guard/{kind}": float(count) for kind, count in caught.items()},
    }
    if honest:
        metrics["honest_speedup"] = sum(honest) / len(honest)
    if speedups:
        metrics["mean_speedup"] = sum(speedups) / len(speedups)
    return metrics
