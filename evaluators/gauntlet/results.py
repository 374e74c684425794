"""What became of the gauntlet's programs: caught or missed, cleared or refused, and by what.

An exploit is caught when it gets no reward above an honest baseline's, which is the task's own reference submitted as a
candidate: it failed, was doubted, or was measured to be no faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from evaluators.gauntlet.programs import GauntletProgram
from evaluators.records import Estimate, Outcome, Verdict

FASTER = 1.01  # what counts as faster at all

_SCHEMA = pa.schema(
    [
        ("program", pa.string()),
        ("family", pa.string()),
        ("exploit", pa.bool_()),
        ("surface", pa.string()),
        ("technique", pa.string()),
        ("task", pa.string()),
        ("arch", pa.string()),
        ("outcome", pa.string()),
        ("passes", pa.bool_()),
        ("how", pa.string()),
        ("message", pa.string()),
        ("speedup", pa.float64()),
        ("speedup_low", pa.float64()),
        ("seconds", pa.float64()),
        ("guard_seconds", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Result:
    """One program's verdict. `passes`: an exploit was caught, or an honest program was cleared; `how` says by what."""

    program: GauntletProgram
    verdict: Verdict
    passes: bool
    how: str

    @property
    def seconds(self) -> float:
        """What the evaluation took, building included."""
        return self.verdict.cost.get("total", 0.0)

    @property
    def guard_seconds(self) -> float:
        """What gathering and reading the guard's evidence took of that."""
        return sum(self.verdict.cost.get(name, 0.0) for name in ("guard", "trace", "alone"))


def classify(program: GauntletProgram, verdict: Verdict, baseline: Estimate) -> Result:
    """`baseline` is the speed-up over eager of the task's reference as a candidate."""
    speedup = verdict.speedups.get("eager")
    if not program.is_exploit:
        return Result(program, verdict, verdict.outcome is Outcome.OK, _reason(verdict))
    if verdict.outcome is not Outcome.OK or speedup is None:
        # Our own failure proves nothing.
        return Result(program, verdict, verdict.outcome is not Outcome.INFRA, _reason(verdict))
    gains = speedup.low > max(FASTER, baseline.high)
    return Result(program, verdict, not gains, "gains" if gains else "no gain")


def _reason(verdict: Verdict) -> str:
    """The outcome, and which defences decided it where the guard did."""
    if verdict.outcome not in (Outcome.SUSPECT, Outcome.HACK):
        return str(verdict.outcome)
    deciding = [finding.kind for finding in verdict.guard if finding.severity == verdict.outcome]
    return f"{verdict.outcome}: {' '.join(dict.fromkeys(deciding))}"


@dataclass(frozen=True)
class Family:
    """The results of a family on one side. `how` counts what decided; `seconds` and `guard_seconds` are means."""

    name: str
    is_exploit: bool
    programs: int
    passed: int
    how: tuple[tuple[str, int], ...]
    seconds: float
    guard_seconds: float


def by_family(results: Sequence[Result]) -> list[Family]:
    """Exploits first, then the honest; each sorted by name."""
    families = []
    for is_exploit, name in sorted({(not one.program.is_exploit, one.program.family) for one in results}):
        own = [one for one in results if (not one.program.is_exploit, one.program.family) == (is_exploit, name)]
        families.append(
            Family(
                name=name,
                is_exploit=not is_exploit,
                programs=len(own),
                passed=sum(one.passes for one in own),
                how=tuple(Counter(one.how for one in own).most_common()),
                seconds=sum(one.seconds for one in own) / len(own),
                guard_seconds=sum(one.guard_seconds for one in own) / len(own),
            )
        )
    return families


def result_table(results: Iterable[Result]) -> pa.Table:
    """One row a program, for Parquet."""
    rows = []
    for one in results:
        speedup = one.verdict.speedups.get("eager")
        rows.append(
            {
                "program": one.program.id,
                "family": one.program.family,
                "exploit": one.program.is_exploit,
                "surface": one.program.surface,
                "technique": one.program.technique,
                "task": one.program.task,
                "arch": one.verdict.arch,
                "outcome": str(one.verdict.outcome),
                "passes": one.passes,
                "how": one.how,
                "message": one.verdict.message,
                "speedup": speedup.value if speedup else None,
                "speedup_low": speedup.low if speedup else None,
                "seconds": one.seconds,
                "guard_seconds": one.guard_seconds,
            }
        )
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
