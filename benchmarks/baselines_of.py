"""Fills a store of baselines from published runs' rows, for a run on the same GPU, driver and versions.

    python -m benchmarks.baselines_of configs/h200.yaml docs/results/* --store runs/store

A verdict's speed-up over a baseline is its speed-up over eager divided by the baseline's. So the baseline's is the
quotient of the two, and its interval is the part of the quotient's that the verdict's own does not explain
(`evaluators.timing.estimates.divide`). Baselines that no row has are left out; the run that needs them measures them.

Prints the number of baselines, the versions, and the tasks without a baseline. Needs no GPU.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from evaluators.records import Estimate
from evaluators.stored.baselines import BaselineResult, BaselineStore, existing_baselines
from orchestration.commands.baseline_store import load_task_source

_VERSIONS = ("arch", "gpu", "torch", "cuda", "driver")
_EAGER = "eager"


def quotient(over_eager: Estimate, over_baseline: Estimate) -> Estimate:
    """The baseline's speed-up over eager, from a verdict's speed-ups over both. The inverse of `divide` in its
    denominator."""
    value = over_eager.value / over_baseline.value

    def beyond(whole: float, own: float) -> float:
        return math.sqrt(max(math.log(whole) ** 2 - math.log(own) ** 2, 0.0))

    low = beyond(over_baseline.high / over_baseline.value, over_eager.high / over_eager.value)
    high = beyond(over_baseline.value / over_baseline.low, over_eager.value / over_eager.low)
    return Estimate(value, value * math.exp(-low), value * math.exp(high), over_baseline.n)


def baselines_in(folders: Sequence[Path]) -> tuple[dict[str, dict[str, Estimate]], dict[str, str]]:
    """Speed-ups over eager by task digest and baseline, each the one with the narrowest interval; and the versions with
    which they were measured.

    Raises OSError without rows, ValueError if they are of several sets of versions or of none."""
    columns = ["speedups", "evaluator"]
    rows = [row for run in folders for row in pq.read_table(run / "verdicts.parquet", columns=columns).to_pylist()]
    baselines: dict[str, dict[str, Estimate]] = {}
    versions: set[tuple[str, ...]] = set()
    for row in rows:
        speedups = {name: Estimate(**estimate) for name, estimate in row["speedups"]}
        if _EAGER not in speedups:
            continue
        evaluator = dict(row["evaluator"])
        versions.add(tuple(evaluator[name] for name in _VERSIONS))
        of_task = baselines.setdefault(evaluator["task_digest"], {})
        for name in speedups.keys() - {_EAGER}:
            estimate = quotient(speedups[_EAGER], speedups[name])
            if name not in of_task or _width(estimate) < _width(of_task[name]):
                of_task[name] = estimate
    if len(versions) != 1:
        raise ValueError(f"the verdicts are of {len(versions)} sets of versions; one is needed")
    return baselines, dict(zip(_VERSIONS, versions.pop(), strict=True))


def _width(estimate: Estimate) -> float:
    return estimate.high / estimate.low


def fill(store: BaselineStore, source: str, folders: Sequence[Path]) -> tuple[int, list[str], Mapping[str, str]]:
    """Puts the baselines of the tasks of `source` into a store that lacks them. Returns their number, the tasks that no
    row is about, and the versions."""
    known, versions = baselines_in(folders)
    names = set(existing_baselines(versions["arch"]))
    put, missing = 0, []
    for task in load_task_source(source, "cuda"):
        if task.digest not in known:
            missing.append(task.id)
            continue
        for name in names & known[task.digest].keys():
            if store.get(task, name, versions) is None:
                store.put(task, name, versions, BaselineResult(known[task.digest][name]))
                put += 1
    return put, missing, versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", help="a run's configuration, `bundled`, or a folder or file of tasks")
    parser.add_argument("folders", type=Path, nargs="+", help="what `warpsmith report RUN --publish FOLDER` wrote")
    parser.add_argument("--store", type=Path, required=True)
    given = parser.parse_args()
    folders = [folder for folder in given.folders if folder.is_dir()]
    try:
        put, missing, versions = fill(BaselineStore(given.store), given.tasks, folders)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{put} baselines for {', '.join(versions.values())}; without: {', '.join(missing) or 'no task'}")


if __name__ == "__main__":
    main()
