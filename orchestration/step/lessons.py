"""Writes what SFT learns of its verified programs: one-shot lessons, contrastive ones, and repairs.

A contrastive lesson is written when it is learnt, since its analysis compares the exemplars that were drawn for its
prompt. A repair rests on a failure that the judge has seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from configs.schema import RunConfig
from evaluators.records import Candidate, Outcome, Verdict
from learners.records import Sample
from orchestration.step.prompts import PromptWriter
from orchestration.step.records import Prompt
from prompts.mistakes import Mistake, mistakes_in

REPAIRABLE = (Outcome.WRONG, Outcome.BUILD_ERROR, Outcome.RUNTIME_ERROR, Outcome.TIMEOUT)
"""Failures that a repair turn shows. The guard's findings are none of them: a policy must not learn to get past it."""

_FAILURES: Mapping[Outcome, tuple[str, ...]] = {
    Outcome.WRONG: (
        "The program runs, but its values are not those of the reference.",
        "It computes something else than the reference.",
        "The program finishes with wrong values.",
    ),
    Outcome.BUILD_ERROR: (
        "The program does not build.",
        "It fails before it is ever called.",
        "The program cannot be loaded.",
    ),
    Outcome.RUNTIME_ERROR: (
        "The program stops with an error.",
        "It builds, and then fails as it runs.",
        "The call ends in an error.",
    ),
    Outcome.TIMEOUT: ("The program does not finish in time.", "The call takes far too long."),
}
_ONLY = (
    "",
    " The rest of the program is right.",
    " Nothing else is wrong with it.",
    " All else can stay as it is.",
)


class LessonWriter:
    """Writes lessons as samples to train on."""

    def __init__(self, writer: PromptWriter, config: RunConfig, ideas: Mapping[str, str]) -> None:
        """`ideas`: what verified programs do, in their teachers' words, by digest."""
        self._writer, self._config, self._ideas = writer, config, ideas
        self.contrastive = 0  # lessons that were written under a contrastive prompt

    def write(
        self, lessons: Sequence[Mapping[str, Any]], repairs: Sequence[Mapping[str, Any]], rng: np.random.Generator
    ) -> list[list[Sample]]:
        """The samples of an epoch, those of one prompt together. Which lessons are contrastive is drawn."""
        groups: dict[tuple[int, ...], list[Sample]] = {}
        for prompt, response in (*self._of_lessons(lessons, rng), *self._of_repairs(repairs)):
            groups.setdefault(prompt.ids, []).append(Sample(prompt.ids, tuple(response)))
        return list(groups.values())

    def _of_lessons(
        self, lessons: Sequence[Mapping[str, Any]], rng: np.random.Generator
    ) -> Iterator[tuple[Prompt, Sequence[int]]]:
        one_shot: dict[str, Prompt] = {}
        for lesson in lessons:
            if rng.random() < self._config.sft.contrastive_share and (written := self._contrastive(lesson, rng)):
                self.contrastive += 1
                yield written
                continue
            task_id = lesson["task_id"]
            if task_id not in one_shot:
                one_shot[task_id] = self._writer.one_shot(task_id)
            yield one_shot[task_id], self._writer.encode_response(self._writer.response_of(lesson))

    def _contrastive(self, lesson: Mapping[str, Any], rng: np.random.Generator) -> tuple[Prompt, Sequence[int]] | None:
        """The lesson under exemplars that it beats, with an analysis that compares them (`sft.comparisons`).

        None if no slower program is known or fits, or if the response would be longer than the policy may write.
        """
        speedup = lesson.get("speedup")
        below = math.inf if speedup is None else speedup / (1.0 + self._config.reward.resolution)
        prompt = self._writer.contrastive(lesson["task_id"], below)
        if not prompt.shown:
            return None
        if self._config.sft.comparisons:
            analysis = self._writer.comparison(prompt, lesson["analysis"], self._ideas, rng)
            lesson = {**lesson, "analysis": analysis}
        response = self._writer.encode_response(self._writer.response_of(lesson))
        return (prompt, response) if self._writer.fits_response(response) else None

    def _of_repairs(self, repairs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Prompt, Sequence[int]]]:
        for repair in repairs:
            prompt = self._writer.repair(repair["task_id"], repair["broken"], repair["outcome"], repair["message"])
            if prompt is not None:
                yield prompt, self._writer.encode_response(self._writer.response_of(repair))


def broken_lessons(
    lessons: Sequence[Mapping[str, Any]], share: float, rng: np.random.Generator
) -> list[tuple[Mapping[str, Any], Mistake]]:
    """A mistake in each of a random share of the lessons. Kinds of mistakes take turns, so that none prevails.

    A program that offers no place for a mistake is left out.
    """
    made: list[tuple[Mapping[str, Any], Mistake]] = []
    used: dict[str, int] = {}
    for lesson in lessons:
        if rng.random() >= share:
            continue
        mistakes = mistakes_in(lesson["source"], rng)
        if mistakes:
            rarest = min(mistakes, key=lambda mistake: used.get(mistake.name, 0))
            used[rarest.name] = used.get(rarest.name, 0) + 1
            made.append((lesson, rarest))
    return made


def verified_repairs(
    broken: Sequence[tuple[Mapping[str, Any], Mistake]],
    evaluate: Callable[[Sequence[Candidate]], Mapping[str, Verdict]],
    rng: np.random.Generator,
) -> tuple[list[dict[str, Any]], dict[str, Candidate], dict[str, Verdict]]:
    """Repairs of the broken programs that really fail, with these programs and their verdicts by digest.

    A repair is plain JSON: the lesson, with `broken`, `outcome` and `message` of the failing program, and an analysis
    and a design that speak of the mistake. A program that the judge finds right in spite of its mistake, doubts or
    cannot judge is no lesson.
    """
    candidates = [
        Candidate.propose(lesson["task_id"], mistake.source, f"teacher:mistake/{mistake.name}")
        for lesson, mistake in broken
    ]
    verdicts = evaluate(candidates)
    repairs: list[dict[str, Any]] = []
    failing: dict[str, Candidate] = {}
    for (lesson, mistake), candidate in zip(broken, candidates, strict=True):
        verdict = verdicts[candidate.digest]
        if verdict.outcome not in REPAIRABLE or not verdict.message:
            continue
        failing[candidate.digest] = candidate
        repairs.append(
            {
                **lesson,
                "broken": mistake.source,
                "outcome": str(verdict.outcome),
                "message": verdict.message,
                "analysis": f"{_drawn(_FAILURES[verdict.outcome], rng)} {mistake.cause}",
                "design": f"{mistake.cure}{_drawn(_ONLY, rng)}",
            }
        )
    return repairs, failing, {digest: verdicts[digest] for digest in failing}


def _drawn(phrases: Sequence[str], rng: np.random.Generator) -> str:
    return phrases[int(rng.integers(len(phrases)))]
