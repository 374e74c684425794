"""Judges a program again whose times alone are doubted.

Other load on the machine, even on another one of the same host, may stretch one side's times of a whole judgement, and
an honest program is doubted then. What a program does by itself shows twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from evaluators.judge.judgement import Judgement
from evaluators.records import HINT, Finding
from evaluators.timing.presets import Preset

_OF_TIMES = frozenset({"bursts", "clocks", "neighbours"})
"""The kinds of findings that load on the machine may cause."""


def judge_until_believed(judge: Callable[[], Judgement], preset: Preset) -> Judgement:
    """The judgement, or a second one of fresh processes if nothing but the times of the first is doubted.

    The second decides, except that the lower one of both speed-ups is paid: a program gains nothing by having itself
    measured again. What was doubted stays as a hint. `preset`: `paper` judges once, as CUDA-L1 does.
    """
    first = judge()
    doubts = first.doubts
    if preset.paper or not doubts or not all(doubt.kind in _OF_TIMES for doubt in doubts):
        return first
    start = time.perf_counter()
    again = judge()
    cost = {**again.cost, "judged_again": time.perf_counter() - start}
    if again.speedup is None or first.speedup is None or again.doubts:
        return replace(again, cost=cost)
    lower = first if first.speedup.value < again.speedup.value else again
    hints = tuple(Finding(doubt.kind, HINT, f"measured again, since {doubt.message}") for doubt in doubts)
    return replace(again, speedup=lower.speedup, timing=lower.timing, findings=(*again.findings, *hints), cost=cost)
