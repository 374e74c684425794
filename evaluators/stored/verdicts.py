"""Verdicts of earlier runs, which are reused instead of judging the same program again.

A verdict is reused only if it would be measured alike: the same task and sizes, preset, GPU and versions, judged as
strictly, under the guard, with every baseline that is asked for. A program that was doubted, timed out or failed is
judged anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import pyarrow.dataset as ds
from pyarrow import fs

from evaluators.records import DROP_IN, VERDICT_SCHEMA, Outcome, Verdict

REUSED_FROM = "taken_over"
"""The key in `Verdict.evaluator` of the name of the folder that the verdict was reused from."""
_LASTING = (Outcome.OK, Outcome.WRONG)
_PER_VERDICT = ("preset", "task_digest", "containment")

Key = tuple[str, str, str, str]
"""Task digest, candidate digest, preset, and how strictly it was judged."""


def _read_verdicts(folder: str) -> Iterator[Verdict]:
    """The verdicts in a run directory, or in a folder that `warpsmith report RUN --publish FOLDER` wrote.

    `folder`: a path, or a URI that pyarrow knows (`s3://...`). Raises FileNotFoundError if it holds none.
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
    folders: Sequence[str], versions: Mapping[str, str], baselines: Sequence[str], strict: str = DROP_IN
) -> dict[Key, Verdict]:
    """The verdicts of `folders` that an evaluator with these versions and baselines may reuse, which judges as `strict`
    says.

    If several folders have a verdict on one program, that of the last folder counts. Raises FileNotFoundError for a
    folder without verdicts.
    """
    reusable: dict[Key, Verdict] = {}
    for folder in folders:
        name = PurePosixPath(folder.rstrip("/")).name
        for verdict in _read_verdicts(folder):
            settings = verdict.evaluator
            measured_with = {key: value for key, value in settings.items() if key not in (*_PER_VERDICT, REUSED_FROM)}
            if verdict.outcome not in _LASTING or verdict.strict != strict or measured_with != versions:
                continue
            if verdict.outcome is Outcome.OK and not set(baselines) <= verdict.speedups.keys():
                continue
            reused = replace(verdict, evaluator={REUSED_FROM: name, **settings}, cost={})
            reusable[settings["task_digest"], verdict.candidate, settings["preset"], strict] = reused
    return reusable
