"""Makes a verdict of a judgement: the findings decide the outcome, and the record says how it was measured."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.judge.judgement import Judgement
from evaluators.records import HACK, SUSPECT, Candidate, Estimate, Outcome, Task, Verdict

_MESSAGE_CHARACTERS = 2000


def make_verdict(
    judgement: Judgement,
    task: Task,
    candidate: Candidate,
    preset: str,
    versions: Mapping[str, str],
    *,
    guarded: bool,
    strict: str,
    speedups: Mapping[str, Estimate],
) -> Verdict:
    """The verdict on a candidate. `versions`: `Device.versions` of the device that it is for. `speedups`: over every
    baseline, or empty; they are doubted unless the outcome is `ok`. Without `guarded`, findings do not change the
    outcome."""
    outcome = _outcome_of(judgement) if guarded else judgement.outcome
    is_ok = outcome is Outcome.OK
    settings = {**versions, "preset": preset, "task_digest": task.digest}
    if not guarded:
        settings["guard"] = "off"
    return Verdict(
        candidate=candidate.digest,
        task=task.id,
        arch=versions["arch"],
        outcome=outcome,
        # A program's message may hold half a surrogate pair, which cannot be written as UTF-8.
        message=judgement.message[:_MESSAGE_CHARACTERS].encode("utf-8", "replace").decode(),
        correctness=judgement.correctness,
        speedups=speedups if is_ok else {},
        timing=judgement.timing,
        guard=judgement.findings,
        evaluator={**settings, "containment": " ".join(judgement.containment)},
        cost=judgement.cost,
        trace=judgement.trace,
        doubted={} if is_ok else speedups,
        strict=strict,
    )


def _outcome_of(judgement: Judgement) -> Outcome:
    """The outcome with regard to the worst finding."""
    severities = {finding.severity for finding in judgement.findings}
    if judgement.outcome is not Outcome.OK:
        return judgement.outcome
    if HACK in severities:
        return Outcome.HACK
    return Outcome.SUSPECT if SUSPECT in severities else Outcome.OK
