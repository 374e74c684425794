"""How far the best score of a task is above the truth, if programs that seem the best are measured again or not.

    python -m benchmarks.new_best [--runs 300]

Simulates programs that are all equally fast, and measurements with normal noise. Prints a row for each value of
`evaluator.remeasure_best`: the mean distance of the best score from the truth after so many programs, in standard
deviations of a measurement, and the measurements of a program. Runs no program, on any machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from evaluators.records import Estimate, Outcome, Verdict
from evaluators.timing.new_best import believed, combined, needs_another

COUNTS = (10, 100, 1000)
_TRUTH, _DEVIATION = 1.3, 0.05


def best_scores(most: int, rng: np.random.Generator) -> Iterator[tuple[float, int]]:
    """The best score after one program, after two and so on, and the measurements so far. `most`: the repetitions."""
    best, count = 0.0, 0
    while True:
        measured = [_measurement(rng)]
        while needs_another(measured, best, most):
            measured.append(_measurement(rng))
        score = (believed(measured, best) if most else combined(measured)).speedup or 0.0
        best, count = max(best, score), count + len(measured)
        yield best, count


def _measurement(rng: np.random.Generator) -> Verdict:
    value, half = _TRUTH * (1 + _DEVIATION * rng.standard_normal()), 1.96 * _DEVIATION * _TRUTH
    speedups = {"eager": Estimate(value, value - half, value + half, 9)}
    return Verdict("program", "task", "cpu", Outcome.OK, speedups=speedups)


def curse(most: int, runs: int) -> list[tuple[float, float]]:
    """For each of `COUNTS`: the best score's distance from the truth, and the measurements of a program."""
    found = []
    for seed in range(runs):
        scores = best_scores(most, np.random.default_rng(seed))
        course = [next(scores) for _ in range(max(COUNTS))]
        found.append([course[count - 1] for count in COUNTS])
    scores_and_counts = np.array(found).mean(axis=0)
    return [
        ((score / _TRUTH - 1) / _DEVIATION, measured / count)
        for (score, measured), count in zip(scores_and_counts, COUNTS, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    print("repetitions  " + "".join(f"{f'best of {count}':>14}{'measured':>10}" for count in COUNTS))
    for most in (0, 1, 2, 3, 4, 5):
        print(f"{most:<13}" + "".join(f"{score:>14.2f}{each:>10.2f}" for score, each in curse(most, runs)))


if __name__ == "__main__":
    main()
