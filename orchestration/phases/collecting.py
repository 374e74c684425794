"""Collects verified programs of teachers: asks, judges as answers come, and counts what each teacher gave.

The one place for this: SFT begins with it, and a run that only collects ends with it.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evaluators.records import Candidate, Verdict
from evaluators.reward import FASTER, is_success
from orchestration.phases.context import PhaseContext
from orchestration.step.endpoints import EndpointTeacher
from orchestration.step.figures import remeasured
from orchestration.step.lesson_rounds import TeacherRounds
from orchestration.step.proposals import Proposal, Teacher, TeacherError
from orchestration.step.records import StepResult
from orchestration.step.teachers import make_teachers

_log = logging.getLogger(__name__)
_STORED_EVERY = 64  # programs: one or two minutes of an evaluator's work

Proposed = tuple[Candidate, Proposal]


@dataclass(frozen=True)
class TeacherSummary:
    """What a teacher gave. `tasks`: about which it proposed a program, `solved`: for which one counts as a success.
    `tries`: its programs; `right` ones of them, and `faster` ones: more than 1.01x as fast as eager. `lost`: requests
    without an answer. `cost`: in the currency of the prices, None without prices or for a teacher that is no endpoint.
    """

    name: str
    tasks: int
    solved: int
    tries: int
    right: int
    faster: int
    lost: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


@dataclass
class Collected:
    """What teachers proposed, in the order in which it was asked for and by teacher, with the verdicts in `result`.

    `is_success`: whether a verdict is a success (`sft.min_speedup`). `asked`: metrics of what endpoints were asked for.
    """

    result: StepResult
    is_success: Callable[[Verdict], bool]
    proposed: list[Proposed]
    by_teacher: list[tuple[Teacher, list[Proposed]]]
    asked: dict[str, float]

    def summaries(self) -> list[dict[str, Any]]:
        """A `TeacherSummary` of each teacher, as plain JSON."""
        return [asdict(self._summary(name, teacher, proposed)) for name, teacher, proposed in self._named()]

    def _named(self) -> Iterator[tuple[str, Teacher, list[Proposed]]]:
        """Every teacher under a name of its own."""
        names = distinct_names([teacher.name for teacher, _ in self.by_teacher])
        return ((name, *each) for name, each in zip(names, self.by_teacher, strict=True))

    def _summary(self, name: str, teacher: Teacher, proposed: Sequence[Proposed]) -> TeacherSummary:
        verdicts = [self.result.verdicts[candidate.digest] for candidate, _ in proposed]
        right = [verdict for verdict in verdicts if verdict.succeeded]
        counts = {
            "tasks": len({verdict.task for verdict in verdicts}),
            "solved": len({verdict.task for verdict in verdicts if self.is_success(verdict)}),
            "tries": len(verdicts),
            "right": len(right),
            "faster": sum((verdict.speedup or 0.0) > FASTER for verdict in right),
        }
        if not isinstance(teacher, EndpointTeacher):
            return TeacherSummary(name, **counts)
        usage = teacher.usage
        return TeacherSummary(
            name, **counts, lost=usage.lost, prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens, cost=teacher.cost,
        )  # fmt: skip

    def figures(self) -> dict[str, float]:
        """Metrics of the proposals, and of what endpoints were asked for."""
        verdicts = self.result.verdicts
        speedups = [verdict.speedup for verdict in verdicts.values() if verdict.speedup is not None]
        return {
            "proposals": float(len(self.proposed)),
            "verified": float(len(speedups)),
            **remeasured(verdicts.values()),
            **({"mean_speedup": sum(speedups) / len(speedups)} if speedups else {}),
            **self.asked,
        }

    def examples(
        self, prompt_of: Callable[[str], str], response_of: Callable[[Mapping[str, Any]], str]
    ) -> Iterator[dict[str, Any]]:
        """Every right program of every teacher once, however slow, as plain JSON: teacher by teacher, task by task, in
        the order in which they were asked for.

        `prompt_of`: the text of a task's one-shot prompt. `response_of`: what SFT learns a program as.
        """
        for name, teacher, proposed in self._named():
            once: dict[str, Proposal] = {}
            for candidate, proposal in proposed:
                once.setdefault(candidate.digest, proposal)
            for digest, proposal in once.items():
                verdict = self.result.verdicts[digest]
                if verdict.succeeded:
                    cost = teacher.cost_of(proposal) if isinstance(teacher, EndpointTeacher) else None
                    yield _example(name, proposal, verdict, cost, prompt_of, response_of)


class Collecting:
    """Asks the teachers of a run about its training tasks. `key`: of the phase, under which all is kept."""

    def __init__(self, context: PhaseContext, key: str) -> None:
        self._context, self._key = context, key

    def run(self) -> Collected:
        """Asks until each teacher has given enough for each task, and judges what comes. Raises TeacherError if too few
        answers come, and OSError if one cannot be kept."""
        context, config, tasks = self._context, self._context.config, self._context.tasks
        teachers = make_teachers(config, context.answers, self._key)
        if config.sft.collect_minutes:  # the time may end before all tasks have had their turn
            order = np.random.default_rng([config.seed, *self._key.encode()]).permutation(len(tasks))
            tasks = [tasks[index] for index in order]
        with TeacherRounds(tasks, teachers, config.sft, lambda task: context.prompts.one_shot(task.id).text) as rounds:
            result = self._judge(rounds)
        return Collected(result, self._is_success, rounds.in_order(), rounds.by_teacher(), rounds.figures())

    def _is_success(self, verdict: Verdict) -> bool:
        return is_success(verdict, self._context.config.reward, self._context.config.sft.min_speedup)

    def _judge(self, rounds: TeacherRounds) -> StepResult:
        """Verdicts on all that teachers propose, as it comes. They are stored from time to time, at the end of a
        teacher's answers, and at an interrupt: nothing of that is judged again."""
        context, result, stored = self._context, StepResult(), 0
        end = time.monotonic() + 60.0 * (context.config.sft.collect_minutes or math.inf)

        def arrived() -> list[Candidate] | None:
            if time.monotonic() >= end:
                left = rounds.end()
                _log.info("%s: the time is over; %d programs are left unjudged", self._key, left)
                return None
            candidates = rounds.arrived()
            context.answers.copy(whole=False)
            context.pipeline.on_progress(rounds.figures())
            return candidates

        try:
            for candidate, verdict in context.pipeline.evaluate_arriving(arrived, context.config.evaluator.preset):
                result.candidates[candidate.digest] = candidate
                result.verdicts[candidate.digest] = verdict
                rounds.judged(candidate.digest, success=self._is_success(verdict))
                if len(result.verdicts) - stored >= _STORED_EVERY:
                    stored = len(result.verdicts)
                    context.archive.store(self._key, 0, result)
        except TeacherError:
            context.archive.store(self._key, 0, result)
            raise
        except KeyboardInterrupt:
            context.archive.store_interrupted(self._key, 0, result)
            raise
        finally:
            context.answers.copy()
        result.candidates = {}
        for candidate, _ in rounds.in_order():  # not in that of the answers, which is chance
            result.candidates.setdefault(candidate.digest, candidate)
        result.verdicts = result.verdicts.of(result.candidates)
        return result


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names, each with its place behind it if another one is the same."""
    return [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, start=1)]


def lines_of(examples: Iterable[dict[str, Any]]) -> bytes:
    """A JSON Lines file of examples."""
    return b"".join(json.dumps(example, default=dict).encode() + b"\n" for example in examples)


def _example(
    name: str,
    proposal: Proposal,
    verdict: Verdict,
    cost: float | None,
    prompt_of: Callable[[str], str],
    response_of: Callable[[Mapping[str, Any]], str],
) -> dict[str, Any]:
    program = {key: getattr(proposal, key) for key in ("source", "analysis", "design")}
    return {
        "task_id": proposal.task_id,
        "teacher": name,
        "prompt": prompt_of(proposal.task_id),
        "response": response_of(program),
        **program,
        "speedup": verdict.speedup,
        "prompt_tokens": proposal.prompt_tokens,
        "completion_tokens": proposal.completion_tokens,
        "cost": cost,
        "verdict": verdict.to_row(),
    }
