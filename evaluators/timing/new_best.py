"""Measures a program again that seems to be the fastest of its task, before its speed-up is believed.

A program that is chosen because its measurement is the highest was lucky on average (the winner's curse): the more
equally fast programs are tried, the higher the best one seems. The measurement that chose a program is therefore not
part of its speed-up. It is measured again in fresh processes, and those measurements are as good as any other's.

One repetition alone does not end the curse, since the next choice is among repeated measurements. Of equally fast
programs, a share p exceeds the best score by chance, and p^(k+1) do so in k repetitions, too. So a program is measured
again as long as it seems the fastest, `most` times at most, or until no measurement leaves a doubt.

A lead of less than a hundredth is not worth that: of 89 right programs of teachers on H200s, 13 that did nothing for
the speed were measured two or four times (`python -m benchmarks.lessons`). Such a program counts as fast as the best,
so that no lead is believed that was measured once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaluators.records import Estimate, Verdict
from evaluators.timing.estimates import combine

_REFERENCE = 1.0
_LEAD = 1.01  # over the best: a program is faster only above that (`evaluators.reward.FASTER`)


def needs_another(measured: Sequence[Verdict], best: float | None, most: int) -> bool:
    """Whether a program has to be measured once more before it is believed to be the fastest of its task.

    `measured`: the verdicts on it so far. `best`: the task's best believed speed-up over eager, None without one. A
    best below 1 counts as 1, the reference's own. `most`: the most repetitions. One is enough if the intervals of both
    measurements lie above the best. None is needed for a lead of less than a hundredth (`believed`).
    """
    latest = measured[-1]
    if latest.speedup is None or latest.measurements or len(measured) > most:
        return False
    best = _at_least_the_reference(best)
    is_clear = len(measured) > 1 and all(verdict.speedups["eager"].low > best for verdict in measured)
    return not is_clear and (combined(measured).speedup or 0.0) > best * _LEAD


def believed(measured: Sequence[Verdict], best: float | None) -> Verdict:
    """The verdict on a program that needs no other measurement: as `combined`, but if a single one gave it a small lead
    over the best, it counts as fast as that. `best`: as in `needs_another`."""
    verdict, best = combined(measured), _at_least_the_reference(best)
    if len(measured) > 1 or verdict.measurements or verdict.speedup is None or verdict.speedup <= best:
        return verdict
    share = best / verdict.speedup
    speedups = {name: _scaled(speedup, share) for name, speedup in verdict.speedups.items()}
    return replace(verdict, speedups=speedups)


def _at_least_the_reference(best: float | None) -> float:
    return max(best or 0.0, _REFERENCE)


def _scaled(speedup: Estimate, share: float) -> Estimate:
    return replace(speedup, value=speedup.value * share, low=speedup.low * share, high=speedup.high * share)


def combined(measured: Sequence[Verdict]) -> Verdict:
    """The verdict on a program that was measured so often, in this order. A single one is returned as it is.

    Its speed-ups are the medians of the repetitions. The first measurement is kept in `measurements` alone. All else is
    the last verdict's, with the findings and the seconds of all. So a repetition that fails decides: the program works
    only at times, or we could not measure it again.
    """
    *earlier, last = measured
    again = measured[1:]
    if not earlier:
        return last
    speedups = {
        # Each interval contains the spread between pairs of processes already.
        name: combine([verdict.speedups[name] for verdict in again], spread=0.0)
        for name in last.speedups
        if all(name in verdict.speedups for verdict in again)
    }
    findings = {(finding.kind, finding.severity): finding for verdict in measured for finding in verdict.guard}
    seconds = sum(verdict.cost.get("total", 0.0) for verdict in measured)
    return replace(
        last,
        speedups=speedups,
        guard=tuple(findings.values()),
        cost={**last.cost, "total": seconds},
        measurements=tuple(verdict.speedups["eager"] for verdict in measured if "eager" in verdict.speedups),
    )
