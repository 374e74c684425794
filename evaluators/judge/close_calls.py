"""Repeats a judgement on more pairs of processes if its speed-up is close to 1.

Two processes that run the same short kernel differ by a little, whatever is measured within them (`Device.spread`). So
one pair of processes cannot decide whether a program is slightly faster than the reference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from evaluators.host.device import Device
from evaluators.judge.judgement import Judgement
from evaluators.records import Estimate, Finding
from evaluators.timing.estimates import combine
from evaluators.timing.presets import Preset

_CLOSE = 0.08  # of a logarithm: nearer to 1 than that, a hundredth matters
_SPREAD_THAT_MATTERS = 0.0015


def judge_until_clear(judge: Callable[[bool], Judgement], preset: Preset, device: Device) -> Judgement:
    """The judgement of one pair of processes, or of several if it is close. The interval of its speed-up contains the
    difference between pairs.

    `judge` makes the judgement of a fresh pair, in full or not. A later pair that fails decides: the candidate works
    only at times. Findings of all pairs count.
    """
    judgement = judge(True)
    if judgement.speedup is None or judgement.timing is None or preset.paper:
        return judgement
    spread = device.spread(judgement.timing.reference_seconds.value)
    speedups, findings = [judgement.speedup], {_identity(finding): finding for finding in judgement.findings}
    start = time.perf_counter()
    while len(speedups) < preset.pairs_of_processes and _is_close(judgement.speedup, spread):
        again = judge(False)
        if again.speedup is None:
            return replace(again, containment=judgement.containment)
        speedups.append(again.speedup)
        findings = {**{_identity(finding): finding for finding in again.findings}, **findings}
    cost = judgement.cost
    if len(speedups) > 1:
        cost = {**cost, "fresh_processes": time.perf_counter() - start}
    return replace(judgement, speedup=combine(speedups, spread), findings=tuple(findings.values()), cost=cost)


def _identity(finding: Finding) -> tuple[str, str]:
    """Equal for findings that count once. A hint never replaces a suspicion of its kind."""
    return finding.kind, finding.severity


def _is_close(speedup: Estimate, spread: float) -> bool:
    return spread > _SPREAD_THAT_MATTERS and abs(math.log(speedup.value)) < _CLOSE
