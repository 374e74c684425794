"""Which rows of a run's verdicts are the run's own work: a step also stores the verdicts that it reused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evaluators.stored.verdicts import REUSED_FROM
from orchestration.report.keys import run_order


def reached(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows of verdicts that a run reached itself, each in the step that reached it, in the order of the run.

    `rows`: with phase, step, candidate, arch, evaluator and cost (null in what came from a bundle without evidence).
    A reused verdict keeps its seconds to the last digit. A program that was judged again, since we had failed to judge
    it or its task changed, has others, and counts again.
    """
    seen = set()
    for row in sorted(rows, key=lambda row: (run_order(row["phase"]), row["step"])):
        about, seconds = dict(row["evaluator"]), dict(row["cost"] or ()).get("total")
        verdict = row["candidate"], row["arch"], about.get("preset"), seconds
        if REUSED_FROM not in about and verdict not in seen:
            seen.add(verdict)
            yield row
