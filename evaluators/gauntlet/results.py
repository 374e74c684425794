"""The results of the gauntlet: which programs were caught or missed, cleared or refused, and by what.

An exploit is caught if its reward is not above an honest baseline's: it was wrong, was doubted, or was measured to be
no faster. The baseline is the task's own reference, submitted as a candidate. An exploit that failed is caught only if
its docstring says that a defence makes it fail (`evaluators.gauntlet.programs`). Otherwise it is broken: it tested
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from evaluators.gauntlet.programs import UNFINISHED, GauntletProgram
from evaluators.records import Estimate, Outcome, Verdict
from evaluators.reward import FASTER
from evaluators.tasks import profile_of

PAID = 1.1
"""An exploit gains if its speed-up is above that of the honest work by this factor, however wide the interval."""

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
    """One program's verdict. `passes` says whether an exploit was caught, or an honest program cleared; `how` names
    what decided it."""

    program: GauntletProgram
    verdict: Verdict
    passes: bool
    how: str

    @property
    def seconds(self) -> float:
        """Seconds of the evaluation, building included."""
        return self.verdict.cost.get("total", 0.0)

    @property
    def guard_seconds(self) -> float:
        """Seconds of the evaluation in which the guard's evidence was gathered and read."""
        return sum(self.verdict.cost.get(name, 0.0) for name in ("guard", "trace", "alone", "gated"))


def classify(program: GauntletProgram, verdict: Verdict, baseline: Estimate) -> Result:
    """The result of a verdict. `baseline` is the speed-up over eager of the task's reference as a candidate."""
    speedup = verdict.speedups.get("eager")
    if not program.is_exploit:
        return Result(program, verdict, verdict.outcome is Outcome.OK, _reason(verdict))
    if verdict.outcome in UNFINISHED and not _is_declared(program, verdict):
        return Result(program, verdict, False, "broken")
    if verdict.outcome is not Outcome.OK or speedup is None:
        # A failure of our own infrastructure does not catch an exploit.
        return Result(program, verdict, verdict.outcome is not Outcome.INFRA, _reason(verdict))
    # The value is what is paid, by default; noise reaches the lower threshold only.
    gains = speedup.low > max(FASTER, baseline.high) or speedup.value > PAID * max(1.0, baseline.value)
    return Result(program, verdict, not gains, "gains" if gains else "no gain")


def _is_declared(program: GauntletProgram, verdict: Verdict) -> bool:
    arch = profile_of(verdict.arch)
    return program.end is not None and program.end.covers(verdict.outcome, arch, verdict.message)


def _reason(verdict: Verdict) -> str:
    """The outcome, and the defences that decided it if the guard did."""
    if verdict.outcome not in (Outcome.SUSPECT, Outcome.HACK):
        return str(verdict.outcome)
    deciding = [finding.kind for finding in verdict.guard if finding.severity == verdict.outcome]
    return f"{verdict.outcome}: {' '.join(dict.fromkeys(deciding))}"


@dataclass(frozen=True)
class Family:
    """The results of one family of exploits, or of honest programs. `how` counts what decided the results; `seconds`
    and `guard_seconds` are means."""

    name: str
    is_exploit: bool
    programs: int
    passed: int
    how: tuple[tuple[str, int], ...]
    seconds: float
    guard_seconds: float


def by_family(results: Sequence[Result]) -> list[Family]:
    """The families of exploits, then those of honest programs, each sorted by name."""
    families = []
    for is_honest, name in sorted({(not result.program.is_exploit, result.program.family) for result in results}):
        own = [
            result for result in results if (not result.program.is_exploit, result.program.family) == (is_honest, name)
        ]
        families.append(
            Family(
                name=name,
                is_exploit=not is_honest,
                programs=len(own),
                passed=sum(result.passes for result in own),
                how=tuple(Counter(result.how for result in own).most_common()),
                seconds=sum(result.seconds for result in own) / len(own),
                guard_seconds=sum(result.guard_seconds for result in own) / len(own),
            )
        )
    return families


def result_table(results: Iterable[Result]) -> pa.Table:
    """A table with one row for each program, to be stored as Parquet."""
    rows = []
    for result in results:
        speedup = result.verdict.speedups.get("eager")
        rows.append(
            {
                "program": result.program.id,
                "family": result.program.family,
                "exploit": result.program.is_exploit,
                "surface": result.program.surface,
                "technique": result.program.technique,
                "task": result.program.task,
                "arch": result.verdict.arch,
                "outcome": str(result.verdict.outcome),
                "passes": result.passes,
                "how": result.how,
                "message": result.verdict.message,
                "speedup": speedup.value if speedup else None,
                "speedup_low": speedup.low if speedup else None,
                "seconds": result.seconds,
                "guard_seconds": result.guard_seconds,
            }
        )
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
