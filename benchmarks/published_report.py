"""The HTML report of a published run, made again from its rows.

A published folder holds no run directory and no HTML report. This script writes the published rows into a new run
directory and renders its report there. It never changes the published folder.

    python -m benchmarks.published_report docs/results/rehearsed /tmp/again
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from omegaconf import OmegaConf

from configs.schema import RunConfig
from orchestration.report.assemble import build_report
from orchestration.report.html import render_html
from orchestration.report.keys import ASSESSMENT
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState

KINDS = ("samples", "verdicts", "metrics")


def published_config(path: Path) -> RunConfig:
    """The configuration of a published run. Keys that no longer exist are left out: the report does not need them."""
    current = OmegaConf.structured(RunConfig)
    kept = _keys_in_both(OmegaConf.to_container(OmegaConf.load(path)), OmegaConf.to_container(current))
    return OmegaConf.to_object(OmegaConf.merge(current, kept))  # type: ignore[return-value]


def _keys_in_both(stored: Any, current: Any) -> Any:
    if not isinstance(stored, Mapping) or not isinstance(current, Mapping):
        return stored
    return {key: _keys_in_both(value, current[key]) for key, value in stored.items() if key in current}


def held_out_tasks(samples: pa.Table) -> list[str]:
    """The tasks that were assessed and in no round of self-supervised learning, which samples every training task."""
    phases, tasks = samples["phase"], samples["task_id"]
    assessments = pc.starts_with(phases, ASSESSMENT)
    training = pc.and_not(pc.ends_with(phases, "self_supervised"), assessments)
    return sorted(set(tasks.filter(assessments).to_pylist()) - set(tasks.filter(training).to_pylist()))


def restore(folder: Path, root: Path) -> RunDirectory:
    """Writes the rows of a published folder into a run directory below `root`. Raises OSError without the rows."""
    config = published_config(folder / "config.yaml")
    run = RunDirectory(root, config.name)
    run.write_config(config)
    tables = {kind: pq.read_table(folder / f"{kind}.parquet") for kind in KINDS}
    for kind, table in tables.items():
        steps = set(zip(table["phase"].to_pylist(), table["step"].to_pylist(), strict=True))
        for phase, step in sorted(steps):
            rows = table.filter((pc.field("phase") == phase) & (pc.field("step") == step)).drop(["phase", "step"])
            place = root / config.name / kind / f"phase={quote(phase, safe='')}" / f"step={step:06d}"
            place.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, place / f"{kind}.parquet")
    run.write_held_out(held_out_tasks(tables["samples"]))
    run.write_state(RunState(finished=True))
    return run


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="what `warpsmith report RUN --publish FOLDER` wrote")
    parser.add_argument("root", type=Path, help="the folder that the run directory is made in")
    options = parser.parse_args(arguments)
    run = restore(options.folder, options.root)
    print(run.write_report(render_html(build_report(run))))


if __name__ == "__main__":
    main()
