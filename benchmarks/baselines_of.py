"""Fills a store of baselines from published runs' rows, for a run on the same GPU, driver and versions.

A verdict's speed-up over a baseline is its speed-up over eager divided by the baseline's; so the baseline's is the
quotient of the two, and its interval what the quotient's has beyond the verdict's own
(`evaluators.timing.estimates.divide`).
What no row knows is left out, and measured by the run that needs it.

    python -m benchmarks.baselines_of configs/h200.yaml docs/results/* --store runs/store
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
    """The baseline's speed-up over eager, of a verdict's over both: the inverse of `divide` in its denominator."""
    value = over_eager.value / over_baseline.value

    def beyond(whole: float, own: float) -> float:
        return math.sqrt(max(math.log(whole) ** 2 - math.log(own) ** 2, 0.0))

    low = beyond(over_baseline.high / over_baseline.value, over_eager.high / over_eager.value)
    high = beyond(over_baseline.value / over_baseline.low, over_eager.value / over_eager.low)
    return Estimate(value, value * math.exp(-low), value * math.exp(high), over_baseline.n)


def baselines_in(folders: Sequence[Path]) -> tuple[dict[str, dict[str, Estimate]], dict[str, str]]:
    """Speed-ups over eager by task digest and baseline, of each the narrowest; and the versions that they were measured
    with.

    Raises OSError without rows, ValueError where they are of several versions or of none."""
    columns = ["speedups", "evaluator"]
    rows = [row for one in folders for row in pq.read_table(one / "verdicts.parquet", columns=columns).to_pylist()]
    found: dict[str, dict[str, Estimate]] = {}
    versions: set[tuple[str, ...]] = set()
    for row in rows:
        speedups = {name: Estimate(**one) for name, one in row["speedups"]}
        if _EAGER not in speedups:
            continue
        about = dict(row["evaluator"])
        versions.add(tuple(about[name] for name in _VERSIONS))
        known = found.setdefault(about["task_digest"], {})
        for name in speedups.keys() - {_EAGER}:
            one = quotient(speedups[_EAGER], speedups[name])
            if name not in known or _width(one) < _width(known[name]):
                known[name] = one
    if len(versions) != 1:
        raise ValueError(f"the verdicts are of {len(versions)} sets of versions; one is needed")
    return found, dict(zip(_VERSIONS, versions.pop(), strict=True))


def _width(one: Estimate) -> float:
    return one.high / one.low


def fill(store: BaselineStore, source: str, folders: Sequence[Path]) -> tuple[int, list[str], Mapping[str, str]]:
    """Puts the baselines of the tasks of `source` into a store that lacks them; returns how many, the tasks of which no
    row tells, and the versions."""
    found, versions = baselines_in(folders)
    names = set(existing_baselines(versions["arch"]))
    put, missing = 0, []
    for task in load_task_source(source, "cuda"):
        if task.digest not in found:
            missing.append(task.id)
            continue
        for name in names & found[task.digest].keys():
            if store.get(task, name, versions) is None:
                store.put(task, name, versions, BaselineResult(found[task.digest][name]))
                put += 1
    return put, missing, versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", help="a run's configuration, `bundled`, or a folder or file of tasks")
    parser.add_argument("folders", type=Path, nargs="+", help="what `warpsmith report RUN --publish FOLDER` wrote")
    parser.add_argument("--store", type=Path, required=True)
    given = parser.parse_args()
    folders = [one for one in given.folders if one.is_dir()]
    try:
        put, missing, versions = fill(BaselineStore(given.store), given.tasks, folders)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{put} baselines for {', '.join(versions.values())}; without: {', '.join(missing) or 'no task'}")


if __name__ == "__main__":
    main()
