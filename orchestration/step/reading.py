"""How responses use what they were shown and taught. Pure functions over rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from evaluators.records import Candidate, Outcome
from learners.records import Rollout
from prompts.analysis import KnownTexts, names_exemplar, names_speedup
from prompts.parse import parse_response


class Lessons:
    """What SFT taught: programs, and the sentences of analyses.

    Contrastive lessons have these sentences of teachers, too, between phrases and figures that are never the same.
    """

    def __init__(self, lessons: Iterable[Mapping[str, Any]] = (), texts: Iterable[str] = ()) -> None:
        """`lessons`: as SFT keeps them in its memory. `texts`: what its analyses took over besides."""
        rows = list(lessons)
        self.programs = {Candidate.propose(row["task_id"], row["source"], "").digest for row in rows}
        self.analyses = KnownTexts([*(row["analysis"] for row in rows), *texts])


def lessons_of(memory_of: Callable[[str], Mapping[str, Any]], keys: Iterable[str]) -> Lessons:
    """The lessons that the SFT phases of these keys taught. `memory_of`: what a phase has committed."""
    memories = [memory_of(key) for key in keys]
    texts = [text for memory in memories for text in memory.get("ideas", {}).values()]
    texts += [repair["analysis"] for memory in memories for repair in memory.get("repairs", ())]
    return Lessons((lesson for memory in memories for lesson in memory.get("lessons", ())), texts)


def reading(rollouts: Sequence[Rollout], lessons: Lessons) -> dict[str, float]:
    """Metrics of rollouts. No rollouts have none.

    `lesson_rate`: the share of responses that are right with a lesson's program. `lesson_text`: the share of an
    analysis that stands word by word in a lesson's (`KnownTexts`), as a mean over the responses with an analysis.

    `contrastive/answers`: responses to prompts that show exemplars. Shares of those: `contrastive/names_exemplar`, the
    analysis names an exemplar by its number; `contrastive/names_speed`, it names the speed-up of one, among the answers
    to prompts that print speed-ups (absent if none does). `contrastive/lesson_text`: as above, of those alone.
    """
    if not rollouts:
        return {}
    right = [rollout for rollout in rollouts if rollout.outcome == Outcome.OK]
    metrics = {"lesson_rate": sum(rollout.candidate_digest in lessons.programs for rollout in right) / len(rollouts)}
    answers = [(rollout, _analysis_of(rollout)) for rollout in rollouts]
    contrastive = [(rollout, analysis) for rollout, analysis in answers if rollout.shown_speedups]
    metrics |= _lesson_text("lesson_text", (analysis for _, analysis in answers), lessons)
    if contrastive:
        count = len(contrastive)
        named = sum(names_exemplar(analysis, len(rollout.shown_speedups or ())) for rollout, analysis in contrastive)
        metrics |= {
            "contrastive/answers": float(count),
            "contrastive/names_exemplar": named / count,
            **_lesson_text("contrastive/lesson_text", (analysis for _, analysis in contrastive), lessons),
        }
    scored = [(analysis, printed) for rollout, analysis in contrastive if (printed := _printed(rollout))]
    if scored:
        metrics["contrastive/names_speed"] = sum(names_speedup(*one) for one in scored) / len(scored)
    return metrics


def _printed(rollout: Rollout) -> list[float]:
    """The speed-ups that the rollout's prompt prints."""
    return [speedup for speedup in rollout.shown_speedups or () if speedup is not None]


def _analysis_of(rollout: Rollout) -> str:
    return parse_response(rollout.response, rollout.finish_reason).analysis or ""


def _lesson_text(name: str, analyses: Iterable[str], lessons: Lessons) -> dict[str, float]:
    shares = [share for analysis in analyses if (share := lessons.analyses.share_of(analysis)) is not None]
    return {name: sum(shares) / len(shares)} if shares else {}
