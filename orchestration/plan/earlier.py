"""What earlier runs measured: how long each verdict held an evaluator, and how fast engines and learner were.

A run is given by its directory, or by the folder of `warpsmith report RUN --publish FOLDER`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from configs.load import ConfigError
from configs.schema import RunConfig
from evaluators.records import JUDGED_ON, Outcome
from orchestration.report.keys import ASSESSMENT, split_key
from orchestration.report.reached import reached
from orchestration.run.directory import RunDirectory, root_and_name

_VERDICT_COLUMNS = ("candidate", "task", "arch", "outcome", "evaluator", "cost")
_LOOK = "look"  # the stage of a builder's look, in a verdict's cost
_SAMPLING = ("contrastive_rl", "self_supervised")
"""Phases that sample responses. A run is measured by the first of them that it has had."""


@dataclass(frozen=True)
class Judged:
    """Seconds for which a verdict on a candidate for `task` held an evaluator of `arch`, measured at `preset`."""

    task: str
    arch: str
    preset: str
    seconds: float


@dataclass(frozen=True)
class Pace:
    """How fast a run generated and learnt, on `arch`, with the policy `model`.

    `engine_tokens`: tokens that one engine generated in a second, while it generated. `response_tokens`: of a response,
    on average. `learn_seconds`: that one learner rank takes for a response. `push_seconds`: of a push of weights.
    """

    model: str
    arch: str
    engine_tokens: float
    response_tokens: float
    learn_seconds: float
    push_seconds: float


@dataclass(frozen=True)
class EarlierRun:
    """One run. `share`: evaluators' verdicts for each response; None if it sampled none. `pace`: None likewise."""

    name: str
    judged: tuple[Judged, ...]
    share: float | None
    pace: Pace | None


def read_earlier(place: str, *, builders_look: bool = False) -> EarlierRun:
    """The measurements of the run in a folder: a path, or a URI. Raises RunDirectoryError or ConfigError.

    `builders_look`: in the run that is planned, builders look at programs on the evaluators' GPU (`placement.share:
    all`), so what such a look ended in the earlier run needs no evaluator.
    """
    run = RunDirectory(*root_and_name(place))
    config = run.read_config()
    try:
        rows, measured = (table.to_pylist() for table in _tables(run))
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{place}: its tables cannot be read ({error}); give another run, or none") from error
    rows = list(reached(rows))
    for phase in _SAMPLING:
        if found := [row for row in rows if _phase(row) == phase]:
            rows, measured = found, [row for row in measured if _phase(row) == phase]
            break
    fresh = list(_fresh(rows, builders_look=builders_look))
    judged = tuple(one for one in fresh if one is not None)
    if not judged:
        raise ConfigError(f"{place}: holds no verdict that an evaluator measured; give another run, or none")
    steps = _steps(measured)
    return EarlierRun(run.name, judged, _share(steps, len(judged) / len(fresh)), _pace(config, judged[0].arch, steps))


def _tables(run: RunDirectory) -> tuple[pa.Table, pa.Table]:
    """The verdicts and the metrics of a run, or of published results."""
    if not run.storage.is_file("verdicts.parquet"):
        return run.verdicts.read(columns=_VERDICT_COLUMNS), run.metrics.read()
    columns = ["phase", "step", *_VERDICT_COLUMNS]
    verdicts = run.storage.parse("verdicts.parquet", lambda file: pq.read_table(file, columns=columns))
    return verdicts, run.storage.parse("metrics.parquet", pq.read_table)


def _fresh(rows: Iterable[Mapping[str, Any]], *, builders_look: bool) -> Iterator[Judged | None]:
    """The verdicts that say what a program costs; None for one that needs no evaluator."""
    for row in rows:
        about, cost = dict(row["evaluator"]), dict(row["cost"] or ())
        if row["outcome"] == Outcome.INFRA or "total" not in cost:
            continue
        by_builder = JUDGED_ON in about or (builders_look and _LOOK in cost)
        yield None if by_builder else Judged(row["task"], row["arch"], about.get("preset", ""), cost["total"])


def _phase(row: Mapping[str, Any]) -> str:
    """The name of a row's phase; an assessment's is another one."""
    return "" if row["phase"].startswith(ASSESSMENT) else split_key(row["phase"])[1]


def _steps(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, float]]:
    """The metrics of each step that sampled responses."""
    steps: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for row in rows:
        steps[row["phase"], row["step"]][row["name"]] = row["value"]
    return [step for step in steps.values() if step.get("rollouts", 0.0) > 0.0]


def _share(steps: Sequence[Mapping[str, float]], on_evaluators: float) -> float | None:
    """Programs that occur twice, and responses without one, need no verdict."""
    steps = [step for step in steps if "measured" in step]
    responses = sum(step["rollouts"] for step in steps)
    return on_evaluators * sum(step["measured"] for step in steps) / responses if responses else None


def _pace(config: RunConfig, arch: str, steps: Sequence[Mapping[str, float]]) -> Pace | None:
    names = ("generated_tokens", "generate_seconds", "step_seconds", "pipeline_seconds", "sync_seconds")
    steps = [step for step in steps if all(name in step for name in names)]
    total = {name: sum(step[name] for step in steps) for name in ("rollouts", *names)}
    if not steps or not total["generated_tokens"] or not total["generate_seconds"]:
        return None
    learning = max(total["step_seconds"] - total["pipeline_seconds"] - total["sync_seconds"], 0.0)
    return Pace(
        config.policy.model,
        arch,
        total["generated_tokens"] / total["generate_seconds"] / config.rollout.engines,
        total["generated_tokens"] / total["rollouts"],
        learning * config.learner.ranks / total["rollouts"],
        total["sync_seconds"] / len(steps),
    )
