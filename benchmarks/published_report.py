"""The HTML report of a published run, made again from its rows.

A published folder holds no run directory and no HTML report. This script writes the published rows into a new run
directory and renders its report there.

    python -m benchmarks.published_report docs/results/rehearsed /tmp/again

With `--page` it also makes the tables of the stages in the folder's README.md again, as this version shows them. It
changes nothing else there. `--baselines` takes the baselines on tasks without a right program from other published runs
on the same GPU.
"""

from __future__ import annotations

import argparse
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
from orchestration.report.assemble import Report, build_report
from orchestration.report.html import render_html
from orchestration.report.keys import ASSESSMENT
from orchestration.report.publish import stage_sections
from orchestration.report.rows import baselines_of
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState

AFTER_STAGES = "\n## Over the steps\n"
"""The heading of a published page that follows the tables of its stages."""

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


def with_stages(page: str, report: Report) -> str:
    """A published page with its tables of the stages made again. Raises ValueError for another text."""
    introduction, first, rest = page.partition("\n## ")
    _, after, rest = rest.partition(AFTER_STAGES)
    if not first or not after:
        raise ValueError(f"not a published page: it lacks {AFTER_STAGES.strip()!r}")
    return "\n\n".join([introduction.rstrip(), *stage_sections(report)]) + "\n" + after + rest


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="what `warpsmith report RUN --publish FOLDER` wrote")
    parser.add_argument("root", type=Path, help="the folder that the run directory is made in")
    parser.add_argument("--page", action="store_true", help="make the tables of the folder's README.md again")
    parser.add_argument("--baselines", type=Path, nargs="+", default=[], help="further published runs on the same GPU")
    options = parser.parse_args(arguments)
    run = restore(options.folder, options.root)
    report = build_report(run, published_baselines([path for path in options.baselines if path.is_dir()]))
    print(run.write_report(render_html(report)))
    if options.page:
        page = options.folder / "README.md"
        page.write_text(with_stages(page.read_text(encoding="utf-8"), report), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
