"""A step under way: its responses and verdicts as they come in, until all are there or its time is over.

Only bookkeeping: the pipeline (`orchestration.pipeline`) asks the pools and tells a gathering what they answered.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from actors.rollout import Completion
from evaluators.guard.copies import is_copy
from evaluators.records import Candidate, Outcome, Verdict
from evaluators.reward import FASTER
from learners.records import EXEMPLAR, REFERENCE, Rollout
from prompts.parse import parse_response

Judged = Callable[[Sequence[Rollout], Mapping[str, Verdict]], "Prompt | None"]
"""What is called with each group as soon as it is judged; it may give a further prompt."""


@dataclass(frozen=True)
class Prompt:
    """One prompt on a task; its responses form the group of that name. `reference` is the program to be rewritten,
    `shown` the digests of the exemplars, `fastest` the speed-up of the fastest of them, or the reference's, which is
    1."""

    task_id: str
    group: str
    text: str
    ids: tuple[int, ...]
    reference: str = ""
    shown: frozenset[str] = frozenset()
    fastest: float = 1.0


@dataclass
class StepResult:
    """What a step brought: rollouts (no reward yet), the candidates in them and their verdicts, by digest."""

    rollouts: list[Rollout] = field(default_factory=list)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class _Group:
    """The responses to one prompt: so many are still to come."""

    prompt: Prompt
    owed: int
    rollouts: list[Rollout] = field(default_factory=list)


class Gathering:
    """What one step asks for and has got so far.

    `samples` responses a prompt, judged at `preset`; what `on_group` gives for a group that is judged is sampled, too.
    After `deadline` seconds (0: none) from the first request, what is missing is given up.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        *,
        samples: int,
        temperature: float,
        preset: str,
        on_group: Judged | None = None,
        deadline: float = 0.0,
    ) -> None:
        self.samples, self.temperature, self.preset = samples, temperature, preset
        self.waiting = deque(prompts)
        self.result = StepResult()
        self.measured = 0
        self.on_group, self._deadline = on_group, deadline
        self._requests: dict[str, tuple[str, int]] = {}  # group and responses of each request that is under way
        self._groups: dict[str, _Group] = {}  # those that are not settled
        self._unjudged: set[str] = set()
        self._created = time.monotonic()
        self._started: float | None = None
        self._generated = self._created
        self._tokens = self._given_up = self._sent = 0
        self.lost: list[str] = []  # why requests came to nothing

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return not (self.waiting or self._requests or self._unjudged or self._groups)

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        started = self._started
        return bool(self._deadline) and started is not None and time.monotonic() - started > self._deadline

    @property
    def came_to_nothing(self) -> bool:
        """Whether every request was lost."""
        return self._sent == len(self.lost) > 0

    def sent(self, keys: Sequence[str], prompt: Prompt, each: int) -> None:
        """Requests of `each` responses to a prompt are with the engines, under these keys."""
        self._started = self._started or time.monotonic()
        self._groups[prompt.group] = _Group(prompt, each * len(keys))
        self._sent += len(keys)
        self._requests.update(dict.fromkeys(keys, (prompt.group, each)))

    def received(self, key: str, completions: Sequence[Completion] | None) -> Iterator[Candidate]:
        """The answer to a request, None where it is lost; gives the programs in it."""
        name, owed = self._requests.pop(key)
        group = self._groups[name]
        group.owed -= owed
        for completion in completions or ():
            self._tokens += len(completion.token_ids)
            self._generated = time.monotonic()
            rollout, candidate = rollout_of(group.prompt, completion)
            group.rollouts.append(rollout)
            self.result.rollouts.append(rollout)
            if candidate is not None and candidate.digest not in self.result.candidates:
                yield candidate

    def proposed(self, candidate: Candidate, verdict: Verdict | None = None) -> None:
        """A candidate is being judged, or its verdict is known already."""
        self.result.candidates[candidate.digest] = candidate
        if verdict is None:
            self._unjudged.add(candidate.digest)
        else:
            self.result.verdicts[candidate.digest] = verdict

    def judged(self, verdict: Verdict) -> None:
        """The verdict on a candidate."""
        self._unjudged.discard(verdict.candidate)
        self.result.verdicts[verdict.candidate] = verdict

    def settle(self) -> None:
        """Closes the groups that are judged, and asks `on_group` whether there is to be another."""
        for name, group in list(self._groups.items()):
            digests = [one.candidate_digest for one in group.rollouts if one.candidate_digest]
            if group.owed or not self._unjudged.isdisjoint(digests):
                continue
            del self._groups[name]
            if self.on_group is None or not group.rollouts:
                continue
            further = self.on_group(group.rollouts, self.result.verdicts)
            if further is not None:
                self.waiting.append(further)

    def give_up(self) -> tuple[set[str], set[str]]:
        """Cuts what is missing, so that it is done; gives the keys of requests and the digests nobody waits for now."""
        requests, unjudged = set(self._requests), set(self._unjudged)
        kept = [one for one in self.result.rollouts if one.candidate_digest not in unjudged]
        self._given_up = len(self.result.rollouts) - len(kept) + self.samples * len(self.waiting)
        self._given_up += sum(owed for _, owed in self._requests.values())
        self.result.rollouts = kept
        for digest in unjudged:
            del self.result.candidates[digest]
        for missing in (self.waiting, self._requests, self._unjudged, self._groups):
            missing.clear()
        return requests, unjudged

    def rates(self) -> dict[str, float]:
        """Tokens and evaluations per second so far."""
        begun = self._started or self._created
        return {
            "tokens_per_second": self._tokens / max(self._generated - begun, 1e-9),
            "evaluations_per_second": self.measured / max(time.monotonic() - begun, 1e-9),
        }

    def finish(self) -> StepResult:
        """The result, with outcomes on the rollouts, and the step's figures."""
        verdicts, begun = self.result.verdicts, self._started or self._created
        self.result.rollouts = [
            replace(rollout, outcome=str(verdicts[rollout.candidate_digest].outcome))
            if rollout.candidate_digest
            else rollout
            for rollout in self.result.rollouts
        ]
        self.result.metrics = {
            **self.rates(),
            **summary(self.result.rollouts, verdicts),
            "generated_tokens": float(self._tokens),
            "generate_seconds": max(self._generated - begun, 0.0),
            "pipeline_seconds": time.monotonic() - begun,
            "measured": float(self.measured),
            "distinct_candidates": float(len(self.result.candidates)),
            "stragglers": float(self._given_up),
        }
        return self.result


def rollout_of(prompt: Prompt, completion: Completion) -> tuple[Rollout, Candidate | None]:
    """A response as a rollout, and the program in it where there is one; without one it is a build error."""
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
        fastest_shown=prompt.fastest,
    )
    if parsed.code is None:
        return replace(rollout, outcome=str(Outcome.BUILD_ERROR)), None
    candidate = Candidate.propose(prompt.task_id, parsed.code, f"policy:{completion.policy_version}")
    return replace(rollout, candidate_digest=candidate.digest, copy_of=_copy_of(candidate, prompt)), candidate


def _copy_of(candidate: Candidate, prompt: Prompt) -> str | None:
    if not prompt.reference:
        return None
    if is_copy(candidate.source, prompt.reference):
        return REFERENCE
    return EXEMPLAR if candidate.digest in prompt.shown else ""


def apart(result: StepResult, held_out: Container[str]) -> dict[str, float]:
    """The figures of a step with those of the held-out tasks' rollouts apart, as `held_out/...`: the others are then of
    the training tasks alone, but for rates and counts of the whole step."""
    theirs = [one for one in result.rollouts if one.task_id in held_out]
    if not theirs:
        return result.metrics
    ours = [one for one in result.rollouts if one.task_id not in held_out]
    of_all = summary(result.rollouts, result.verdicts)
    return {
        **{name: value for name, value in result.metrics.items() if name not in of_all},
        **summary(ours, result.verdicts),
        **{f"held_out/{name}": value for name, value in summary(theirs, result.verdicts).items()},
    }


def summary(rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> dict[str, float]:
    """Success rate, the shares that are right and copy what their prompt shows or are faster than eager, mean speed-up
    over eager of the successful (and of those that nothing was found against, which is the same while the guard is on),
    response length, the share that something was found against, and counts by outcome and by kind of finding."""
    if not rollouts:
        return {}
    outcomes = Counter(rollout.outcome for rollout in rollouts)
    copies = Counter(rollout.copy_of for rollout in rollouts if rollout.outcome == Outcome.OK)
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
        "copy_rate/reference": copies[REFERENCE] / len(rollouts),
        "copy_rate/exemplar": copies[EXEMPLAR] / len(rollouts),
        "faster_rate": sum(speedup > FASTER for speedup in speedups) / len(rollouts),
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
