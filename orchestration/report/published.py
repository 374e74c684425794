"""A published run, read back from its rows (`warpsmith report RUN --publish FOLDER`).

A published folder holds no run directory. Its rows are written into a new one, which reports read like any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from omegaconf import OmegaConf

from configs.schema import RunConfig
from evaluators.records import Outcome, Verdict
from orchestration.report.keys import ASSESSMENT
from orchestration.report.rows import baselines_of
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState

KINDS = ("samples", "verdicts", "metrics")


def is_published(folder: Path) -> bool:
    """Whether a folder holds the rows of a published run."""
    return all((folder / f"{kind}.parquet").is_file() for kind in KINDS) and (folder / "config.yaml").is_file()


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
    """Writes the rows of a published folder into a run directory of its name below `root`. Raises OSError without the
    rows."""
    config = published_config(folder / "config.yaml")
    run = RunDirectory(root, folder.name)  # two published runs may have had one name
    run.write_config(config)
    tables = {kind: pq.read_table(folder / f"{kind}.parquet") for kind in KINDS}
    for kind, table in tables.items():
        steps = set(zip(table["phase"].to_pylist(), table["step"].to_pylist(), strict=True))
        for phase, step in sorted(steps):
            rows = table.filter((pc.field("phase") == phase) & (pc.field("step") == step)).drop(["phase", "step"])
            place = root / folder.name / kind / f"phase={quote(phase, safe='')}" / f"step={step:06d}"
            place.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, place / f"{kind}.parquet")
    named = folder / "held_out.json"  # pages of earlier versions have none
    run.write_held_out(json.loads(named.read_text()) if named.is_file() else held_out_tasks(tables["samples"]))
    run.write_state(RunState(finished=True))
    return run


def published_baselines(folders: Sequence[Path]) -> dict[str, dict[str, float]]:
    """The speed-ups of the baselines over eager by task, from the right programs of published runs."""
    columns = ["candidate", "task", "arch", "outcome", "speedups"]
    right = pc.field("outcome") == Outcome.OK
    tables = (pq.read_table(folder / "verdicts.parquet", columns=columns, filters=right) for folder in folders)
    return baselines_of(Verdict.from_row(row) for table in tables for row in table.to_pylist())
