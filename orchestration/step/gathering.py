"""A step under way: its responses and verdicts as they come in, until all are there or its time is over.

Only bookkeeping: the pipeline (`orchestration.step.pipeline`) asks the pools and tells a gathering their answers.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from actors.generation import Completion, derive_seed
from actors.log_fields import current_fields
from evaluators.guard.copies import is_copy
from evaluators.records import Candidate, Outcome, Verdict
from learners.records import EXEMPLAR, REFERENCE, Rollout
from orchestration.step.figures import portability_figures, remeasured, repair_figures, summarise
from orchestration.step.records import Prompt, StepResult, Verdicts
from orchestration.step.variety import variety
from prompts.parse import parse_response

OnGroup = Callable[[Sequence[Rollout], Mapping[str, Verdict]], Sequence[Prompt]]
"""Called with the rollouts of each group, and all verdicts by digest, as soon as the group is judged. It returns
further prompts, if there are any."""


_Place = tuple[int, str, int, int]
"""Where a response stands in its step: the position of its prompt among those that the step began with (further prompts
come after them), the prompt's group, the request, and the place in its answer."""


@dataclass(frozen=True)
class _Received:
    """A response, and the program in it."""

    place: _Place
    rollout: Rollout
    candidate: Candidate | None


@dataclass
class _Group:
    """The responses to one prompt. `number`: its place among the groups that were asked for. `owed`: how many responses
    are still to come."""

    prompt: Prompt
    number: int
    owed: int
    received: list[_Received] = field(default_factory=list)


class Gathering:
    """What one step asks for and has received so far.

    It asks for `samples` responses to each prompt, judged at `preset` (not at all if that is empty), and to each
    further prompt that `on_group` gives. The responses to a prompt are a group of their own. After `deadline` seconds
    (0: never) from the first request, everything that is missing is given up. `seed`: what its samples depend on beside
    their prompts' groups; chance if it is empty. Answers and verdicts may come in any order: the result has them in
    that of the prompts, since training on the same responses in another order is another training.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        *,
        samples: int,
        temperature: float,
        preset: str,
        on_group: OnGroup | None = None,
        deadline: float = 0.0,
        seed: Sequence[int] = (),
    ) -> None:
        self.samples, self.temperature, self.preset = samples, temperature, preset
        self._names = Counter[str]()  # how many prompts bear the name of each group
        self.waiting = deque(map(self._with_own_group, prompts))
        self._positions = {prompt.group: position for position, prompt in enumerate(self.waiting)}
        self.result = StepResult()
        self.measured = 0
        self.on_group, self._deadline = on_group, deadline
        self.is_given_up = False
        self._seed = tuple(seed)
        self.log_fields = current_fields()
        self.failures: list[str] = []  # why requests failed
        self._requests: dict[str, tuple[str, int, int]] = {}  # group, number and responses of each one under way
        self._received: list[_Received] = []
        self._groups: dict[str, _Group] = {}  # the groups that are not closed
        self._numbers = itertools.count()
        self._touched: set[str] = set()  # the groups that may be closed since something came for them
        self._waiting_for: dict[str, list[str]] = {}  # the groups that wait for a verdict, by its candidate's digest
        self._unjudged: dict[str, set[str]] = {}  # by digest: the architectures whose verdicts a reward needs
        self._sampled: set[tuple[str, str]] = set()  # digest and architecture of verdicts that no reward needs
        self._fresh: list[Verdict] = []  # the verdicts that it waited for
        self._created = time.monotonic()
        self._started: float | None = None
        self._generated = self._created
        self._tokens = self._given_up = self._sent = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come."""
        return not (self.waiting or self._requests or self._unjudged or self._sampled or self._groups)

    @property
    def has_responses(self) -> bool:
        """Whether all responses have come that were asked for so far; verdicts may be missing."""
        return not (self.waiting or self._requests)

    @property
    def rollouts(self) -> list[Rollout]:
        """The responses that have come so far, in the order of the result, without outcomes."""
        return [one.rollout for one in _in_place(self._received)]

    @property
    def responses(self) -> int:
        """How many responses have come so far."""
        return len(self._received)

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        started = self._started
        return bool(self._deadline) and started is not None and time.monotonic() - started > self._deadline

    @property
    def has_only_failures(self) -> bool:
        """Whether there were requests, and all of them failed."""
        return self._sent == len(self.failures) > 0

    def seed_of(self, group: str, index: int) -> int | None:
        """The seed of a response to the prompt of a group; None if its samples depend on nothing."""
        return derive_seed(self._seed, group.encode(), index) if self._seed else None

    def record_requests(self, keys: Sequence[str], prompt: Prompt, each: int) -> None:
        """Notes that requests under these keys, for `each` responses to a prompt, are with the engines."""
        self._started = self._started or time.monotonic()
        self._groups[prompt.group] = _Group(prompt, next(self._numbers), each * len(keys))
        self._sent += len(keys)
        self._requests.update({key: (prompt.group, number, each) for number, key in enumerate(keys)})

    def record_answer(self, key: str, completions: Sequence[Completion] | None) -> Iterator[Candidate]:
        """Adds the answer to a request, None if it failed; yields the programs in it."""
        name, number, owed = self._requests.pop(key)
        group, position = self._groups[name], self._positions.get(name, len(self._positions))
        group.owed -= owed
        self._touched.add(name)
        for index, completion in enumerate(completions or ()):
            self._tokens += len(completion.token_ids)
            self._generated = time.monotonic()
            rollout, candidate = rollout_of(group.prompt, completion)
            group.received.append(_Received((position, name, number, index), rollout, candidate))
            self._received.append(group.received[-1])
            if candidate is not None and self.preset and candidate.digest not in self.result.candidates:
                yield candidate

    def record_earlier(self, rollouts: Sequence[Rollout]) -> Iterator[Candidate]:
        """Adds the responses that an earlier process received for the step (its `rollouts`), all that it asked for;
        yields the programs in them. The deadline counts from here on."""
        self._started = time.monotonic()
        for position, rollout in enumerate(rollouts):
            self._tokens += len(rollout.response_ids)
            candidate = program_in(rollout)
            self._received.append(_Received((position, rollout.group, 0, 0), rollout, candidate))
            if candidate is not None and candidate.digest not in self.result.candidates:
                yield candidate

    def record_candidate(
        self, candidate: Candidate, verdict: Verdict | None = None, arch: str = "", *, is_sampled: bool = False
    ) -> None:
        """Adds a candidate, with its verdict or, if that is None, to wait for it.

        `arch`: a further architecture, empty for `evaluator.arch`. `is_sampled`: no reward needs the verdict.
        """
        self.result.candidates[candidate.digest] = candidate
        if verdict is not None:
            self.result.verdicts.put(verdict, arch)
        elif is_sampled:
            self._sampled.add((candidate.digest, arch))
        else:
            self._unjudged.setdefault(candidate.digest, set()).add(arch)

    def record_verdict(self, verdict: Verdict, arch: str = "") -> None:
        """Adds the verdict on a candidate, of a further architecture or, if `arch` is empty, of `evaluator.arch`."""
        self.result.verdicts.put(verdict, arch)
        if not arch:
            self._fresh.append(verdict)
        self._sampled.discard((verdict.candidate, arch))
        missing = self._unjudged.get(verdict.candidate, set())
        missing.discard(arch)
        if not missing:
            self._unjudged.pop(verdict.candidate, None)
            self._touched.update(self._waiting_for.pop(verdict.candidate, ()))

    def close_groups(self) -> None:
        """Closes the groups that are judged, and asks `on_group` for further prompts after each. Looks only at those
        for which something came since the last time."""
        touched = [(self._groups[name].number, name) for name in self._touched if name in self._groups]
        self._touched.clear()
        for _, name in sorted(touched):
            group = self._groups[name]
            if group.owed:
                continue
            rollouts = [one.rollout for one in _in_place(group.received)]
            missing = self._unjudged.keys() & {rollout.candidate_digest or "" for rollout in rollouts}
            if missing:  # it is looked at again when one of them has come
                self._waiting_for.setdefault(missing.pop(), []).append(name)
                continue
            del self._groups[name]
            if self.on_group is None or not rollouts:
                continue
            self.waiting.extend(map(self._with_own_group, self.on_group(rollouts, self.result.verdicts)))

    def _with_own_group(self, prompt: Prompt) -> Prompt:
        """The prompt with a group that no other of the step has: `task`, `task:2`, ... for several on one task."""
        self._names[prompt.group] += 1
        count = self._names[prompt.group]
        return prompt if count == 1 else replace(prompt, group=f"{prompt.group}:{count}")

    def give_up(self) -> tuple[set[str], set[tuple[str, str]]]:
        """Drops everything that is missing, so that the step is done.

        Returns the keys of the requests and the candidates that it waited for: digest and architecture, which is empty
        for `evaluator.arch`.
        """
        self.is_given_up = True
        requests, unjudged = set(self._requests), set(self._unjudged)
        awaited = {(digest, arch) for digest, archs in self._unjudged.items() for arch in archs} | self._sampled
        kept = [one for one in self._received if one.rollout.candidate_digest not in unjudged]
        self._given_up = len(self._received) - len(kept) + self.samples * len(self.waiting)
        self._given_up += sum(owed for _, _, owed in self._requests.values())
        self._received = kept
        for digest in unjudged:
            del self.result.candidates[digest]
        for missing in (self.waiting, self._requests, self._unjudged, self._sampled, self._groups):
            missing.clear()
        return requests, awaited

    def describe(self) -> str:
        """What it waits for, in words."""
        return (
            f"a step of {time.monotonic() - self._created:.0f} s waits for {len(self._requests)} request(s) and "
            f"{len(self._unjudged) + len(self._sampled)} verdict(s), and has {len(self.waiting)} prompt(s) to send"
        )

    def rates(self) -> dict[str, float]:
        """Tokens and evaluations per second so far."""
        begun = self._started or self._created
        return {
            "tokens_per_second": self._tokens / max(self._generated - begun, 1e-9),
            "evaluations_per_second": self.measured / max(time.monotonic() - begun, 1e-9),
        }

    def finish(self) -> StepResult:
        """The result, with outcomes on the rollouts and the step's metrics."""
        verdicts, begun = self.result.verdicts, self._started or self._created
        received = _in_place(self._received)
        candidates = dict[str, Candidate]()
        for one in received:
            if one.candidate is not None and one.candidate.digest in self.result.candidates:
                candidates.setdefault(one.candidate.digest, one.candidate)  # others may differ from it in comments
        self.result.candidates = candidates | {
            digest: candidate for digest, candidate in self.result.candidates.items() if digest not in candidates
        }
        self.result.verdicts = verdicts.of(self.result.candidates)
        self.result.rollouts = [_with_outcome(one.rollout, verdicts) for one in received]
        first = [rollout for rollout in self.result.rollouts if not rollout.repairs]
        repairs = [rollout for rollout in self.result.rollouts if rollout.repairs]
        self.result.metrics = {
            **self.rates(),
            **({**summarise(first, verdicts), **repair_figures(repairs, verdicts)} if self.preset else {}),
            **portability_figures(verdicts.elsewhere),
            **variety(first),
            "generated_tokens": float(self._tokens),
            "generate_seconds": max(self._generated - begun, 0.0),
            "pipeline_seconds": time.monotonic() - begun,
            "measured": float(self.measured),
            **remeasured(self._fresh),
            "distinct_candidates": float(len(self.result.candidates)),
            "stragglers": float(self._given_up),
        }
        return self.result


def _with_outcome(rollout: Rollout, verdicts: Verdicts) -> Rollout:
    verdict = verdicts.get(rollout.candidate_digest or "")
    return rollout if verdict is None else replace(rollout, outcome=str(verdict.outcome))


def _in_place(received: Iterable[_Received]) -> list[_Received]:
    return sorted(received, key=lambda one: one.place)


def rollout_of(prompt: Prompt, completion: Completion) -> tuple[Rollout, Candidate | None]:
    """A response as a rollout, and the program in it. A response without a program is a build error."""
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
        shown_speedups=prompt.speedups,
        repairs=prompt.repairs,
    )
    candidate = program_in(rollout)
    if candidate is None:
        return replace(rollout, outcome=str(Outcome.BUILD_ERROR)), None
    return replace(rollout, candidate_digest=candidate.digest, copy_of=_copy_of(candidate, prompt)), candidate


def program_in(rollout: Rollout) -> Candidate | None:
    """The program in a response; None without one."""
    code = parse_response(rollout.response, rollout.finish_reason).code
    return None if code is None else Candidate.propose(rollout.task_id, code, f"policy:{rollout.policy_version}")


def _copy_of(candidate: Candidate, prompt: Prompt) -> str | None:
    if not prompt.reference:
        return None
    if is_copy(candidate.source, prompt.reference):
        return REFERENCE
    return EXEMPLAR if candidate.digest in prompt.shown else ""
