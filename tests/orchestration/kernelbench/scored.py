"""Scores a run as KernelBench's analysis does: by its documented files alone, without a line of this project.

Results and baselines are paired by their order in the files, a problem counts with its sample 0, and a problem of the
level without a result counts as failed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def score(checkout: Path, run: str, level: int, hardware: str, baseline: str, problems: list[int]) -> dict[str, Any]:
    """Counts and `fast_p` of a run. `problems`: the numbers of the level's problems, in order."""
    results = json.loads((checkout / "runs" / run / "eval_results.json").read_text())
    times = json.loads((checkout / "results" / "timing" / hardware / f"{baseline}.json").read_text())[f"level{level}"]
    first = {}
    for number, samples in results.items():
        (entry,) = [sample for sample in samples if sample["sample_id"] == 0]
        first[number] = entry
    for number in problems:
        if str(number) not in first:
            first[str(number)] = {"compiled": False, "correctness": False, "runtime": -1.0}
    pairs = list(zip(first.values(), times.values(), strict=True))
    assert len(pairs) == len(problems)
    speedups = [time["mean"] / entry["runtime"] for entry, time in pairs if entry["correctness"]]
    return {
        "compiled": sum(entry["compiled"] for entry in first.values()),
        "correct": len(speedups),
        "fast_p": {p: sum(speedup > p for speedup in speedups) / len(problems) for p in (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)},
        "speedups": speedups,
    }
