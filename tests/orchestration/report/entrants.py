"""Entrants of a leaderboard that its tests share."""

from __future__ import annotations

from evaluators.records import (
    BLIND_TASK,
    HACK,
    HINT,
    Candidate,
    Correctness,
    Estimate,
    Finding,
    Outcome,
    Timing,
    Verdict,
)
from orchestration.report.leaderboard import Entrant

PROGRAM = '''import torch


class ModelNew(torch.nn.Module):
    """%s </script><script>throw 1</script>"""

    def forward(self, x):
        return torch.relu(x) + len('%s')
'''


def entrant(
    source: str,
    task: str,
    speed: float | None,
    *,
    width: float = 0.02,
    outcome: Outcome = Outcome.WRONG,
    arch: str = "cpu",
    blind: bool = False,
    theirs: str = "",
) -> Entrant:
    """A right program of this speed-up over eager, a quarter less over torch.compile; None: one of another outcome."""
    text = PROGRAM % (source, f"{task} {speed} {outcome}")
    candidate = Candidate.propose(task, text, source)
    over = {} if speed is None else {"eager": speed, "torch_compile": 0.75 * speed}
    findings = (
        [Finding(BLIND_TASK, HINT, "the task cannot tell a good program from a cheat (constant)")] if blind else []
    )
    if outcome is Outcome.HACK:
        findings.append(Finding("clocks", HACK, "works after its answer <b>late</b>"))
    verdict = Verdict(
        candidate.digest,
        task,
        arch,
        Outcome.OK if speed is not None else outcome,
        message="" if speed is not None else "the outputs differ",
        correctness=Correctness(8, 1e-7, 1e-4),
        speedups={name: Estimate(value, value * (1 - width), value * (1 + width), 30) for name, value in over.items()},
        timing=Timing(Estimate(1e-3, 9e-4, 1.1e-3, 30), Estimate(2e-3, 1e-3, 3e-3, 30), 30, "interval", 0.012),
        guard=tuple(findings),
        evaluator={"preset": "thorough", "machine": "two cores"},
    )
    return Entrant(source, verdict, text, "sample 0", theirs)


def several_sources() -> list[Entrant]:
    """Three sources on five tasks of two levels. The last task cannot tell."""
    return [
        entrant("alpha", "level1/1", 3.0, theirs="right, 0.2 ms"),
        entrant("beta", "level1/1", 2.97),
        entrant("gamma", "level1/1", 1.2),
        entrant("alpha", "level1/2", None, outcome=Outcome.HACK, theirs="right, 0.01 ms"),
        entrant("beta", "level1/2", 1.5),
        entrant("beta", "level1/2", 1.4),
        entrant("gamma", "level1/2", None),
        entrant("alpha", "level1/10", None, outcome=Outcome.RUNTIME_ERROR),
        entrant("gamma", "level2/1", 0.8),
        entrant("alpha", "level2/2", 40.0, blind=True),
    ]
