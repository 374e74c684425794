"""Verdicts of earlier runs, taken over in place of judging the same program again.

Only what would be measured alike counts: the same task and sizes, preset, GPU and versions, judged under the guard,
with every baseline that is asked for. What was doubted, timed out or failed is judged anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import pyarrow.dataset as ds
from pyarrow import fs

from evaluators.records import VERDICT_SCHEMA, Outcome, Verdict

REUSED_FROM = "taken_over"
"""In `Verdict.evaluator`: the name of the folder that the verdict is from."""
_LASTING = (Outcome.OK, Outcome.WRONG)
_PER_VERDICT = ("preset", "task_digest", "containment")

Key = tuple[str, str, str]
"""Task digest, candidate digest, preset."""


def verdicts_in(folder: str) -> Iterator[Verdict]:
    """The verdicts in a run directory, or in what `warpsmith report RUN --publish FOLDER` wrote.

    `folder`: a path, or a URI that pyarrow knows (`s3://...`). Raises FileNotFoundError where there are none.
    """
    system, path = fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
    published = f"{path}/verdicts.parquet"
    is_file = system.get_file_info(published).type == fs.FileType.File
    rows = ds.dataset(published if is_file else f"{path}/verdicts", filesystem=system, format="parquet")
    if missing := {"candidate", "outcome", "evaluator"} - set(rows.schema.names):
        raise FileNotFoundError(f"{folder} holds no verdicts: its rows have no {sorted(missing)[0]}")
    columns = [name for name in VERDICT_SCHEMA.names if name in rows.schema.names]
    for row in rows.to_table(columns=columns).to_pylist():  # published rows have no messages
        yield Verdict.from_row(row)


def read_reusable_verdicts(
    folders: Sequence[str], versions: Mapping[str, str], baselines: Sequence[str]
) -> dict[Key, Verdict]:
    """What may be taken over from `folders`, of later ones first, by an evaluator with these versions and baselines."""
    known: dict[Key, Verdict] = {}
    for folder in folders:
        name = PurePosixPath(folder.rstrip("/")).name
        for verdict in verdicts_in(folder):
            about = verdict.evaluator
            measured = {key: value for key, value in about.items() if key not in (*_PER_VERDICT, REUSED_FROM)}
            if verdict.outcome not in _LASTING or measured != versions:
                continue
            if verdict.outcome is Outcome.OK and not set(baselines) <= verdict.speedups.keys():
                continue
            taken = replace(verdict, evaluator={REUSED_FROM: name, **about}, cost={})
            known[about["task_digest"], verdict.candidate, about["preset"]] = taken
    return known
