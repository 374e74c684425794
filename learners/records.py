"""The records of learning: the rollouts of engines, and the samples on which the learner trains.

They hold plain data only, so that they can cross processes and be stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

REFERENCE, EXEMPLAR = "reference", "exemplar"


@dataclass(frozen=True)
class Rollout:
    """One prompt and one sampled response.

    `prompt_ids` and `response_ids` are token ids; `logprobs` has one natural log-probability per response token, as the
    rollout engine computed it at the sampling temperature under `policy_version`. The responses to one prompt have the
    same `group`. `reward` and `advantage` are None until they are computed. `copy_of` says whether the prompt shows the
    same program: `REFERENCE`, `EXEMPLAR`, or empty for neither; None if this was not checked or there is no program.
    `fastest_shown` is the speed-up of the fastest program that the prompt shows, where the reference counts as 1; None
    in rows of older runs. `shown_speedups`: of the exemplars, in the order of the prompt, None for those that it shows
    without; empty for a prompt without any, None in rows of older runs. `repairs`: the digest of the failing program
    that a repair turn showed; empty in other rollouts, None in rows of older runs.
    """

    task_id: str
    group: str
    prompt: str
    response: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_version: int
    finish_reason: str = "stop"
    candidate_digest: str | None = None
    outcome: str | None = None
    reward: float | None = None
    advantage: float | None = None
    copy_of: str | None = None
    fastest_shown: float | None = None
    shown_speedups: tuple[float | None, ...] | None = None
    repairs: str | None = None


ROLLOUT_SCHEMA = pa.schema(
    [
        ("task_id", pa.string()),
        ("group", pa.string()),
        ("prompt", pa.string()),
        ("response", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("response_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("policy_version", pa.int64()),
        ("finish_reason", pa.string()),
        ("candidate_digest", pa.string()),
        ("outcome", pa.string()),
        ("reward", pa.float64()),
        ("advantage", pa.float64()),
        ("copy_of", pa.string()),
        ("fastest_shown", pa.float64()),
        ("shown_speedups", pa.list_(pa.float64())),
        ("repairs", pa.string()),
    ]
)


def rollout_table(rollouts: Iterable[Rollout]) -> pa.Table:
    """Rollouts as an Arrow table of `ROLLOUT_SCHEMA`."""
    rows = list(rollouts)
    columns = {name: [getattr(row, name) for row in rows] for name in ROLLOUT_SCHEMA.names}
    return pa.Table.from_pydict(columns, schema=ROLLOUT_SCHEMA)


def table_of_steps(steps: Mapping[int, Iterable[Rollout]]) -> pa.Table:
    """The rollouts of several steps as one Arrow table, in their order: `ROLLOUT_SCHEMA` with a column `step`."""
    tables = []
    for step, rollouts in steps.items():
        table = rollout_table(rollouts)
        tables.append(table.add_column(0, "step", pa.array([step] * len(table), pa.int64())))
    return pa.concat_tables(tables)


def steps_from(table: pa.Table) -> dict[int, list[Rollout]]:
    """The inverse of `table_of_steps`; a step without rollouts is missing."""
    steps: dict[int, list[Rollout]] = {}
    for row in table.to_pylist():
        fields: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in row.items()}
        steps.setdefault(fields.pop("step"), []).append(Rollout(**fields))
    return steps


@dataclass(frozen=True)
class Sample:
    """One sequence to train on. Cross-entropy uses the ids only; GRPO also uses `advantage` and `logprobs`.

    `logprobs`: as the rollout engine reported them, one per response token, or empty. `has_signal`: false if the whole
    group is rewarded alike, so that the sample only counts in means and in the KL term; its advantage is 0 then.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    advantage: float = 1.0
    logprobs: tuple[float, ...] = ()
    has_signal: bool = True
