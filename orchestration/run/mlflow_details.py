"""What MLflow shows of a run beside its numbers: what it is about, its tasks, and its samples as tables.

Nothing here keeps a state. What is sent again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from configs.code_version import code_version, commit_of, in_short
from configs.schema import RunConfig
from orchestration.run.judged_rollouts import JudgedRollout

_TABLES = "mlflow.loggedArtifacts"  # the tag by which MLflow knows which artifacts are tables
_MOST_CHARACTERS = 8 << 20  # of a table


def run_tags(config: RunConfig) -> dict[str, str]:
    """What tells runs apart in a list of them, which MLflow can show as columns, and a description. The commit is also
    under the name that MLflow has for it."""
    code = code_version()
    phases = " + ".join(config.schedule.phases) + (f", {config.schedule.cycles} cycles" * (config.schedule.cycles > 1))
    archs = ", ".join([config.evaluator.arch, *config.evaluation.archs])
    tags = {
        "warpsmith.model": config.policy.model,
        "warpsmith.arch": archs,
        "warpsmith.phases": phases,
        "warpsmith.exemplars": f"{config.buffer.exemplars} by {config.buffer.strategy}",
        "warpsmith.reward": f"{config.reward.worth} over {config.reward.baseline}",
        "warpsmith.preset": f"{config.evaluator.preset}, {config.evaluator.strict}",
        "warpsmith.seed": str(config.seed),
        "warpsmith.code": in_short(code),
    }
    described = "\n".join(f"- {name.partition('.')[2]}: {value}" for name, value in tags.items() if value)
    commit = {"mlflow.source.git.commit": found} if (found := commit_of(code)) else {}
    return {**tags, **commit, "mlflow.note.content": f"A run of Warpsmith.\n\n{described}"}


def log_tasks(client: Any, run_id: str, sets: Sequence[Mapping[str, Any]]) -> None:
    """Logs sets of tasks as a run's inputs. Each has `name`, `context` (`training`, `held_out`), `digest`, `source` and
    a `profile` of numbers."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    inputs = [
        DatasetInput(
            Dataset(
                one["name"],
                one["digest"],
                "local",
                json.dumps({"uri": one["source"]}),
                None,
                json.dumps(one["profile"]),
            ),
            [InputTag("mlflow.data.context", one["context"])],
        )
        for one in sets
    ]
    client.log_inputs(run_id, inputs)


def log_samples(client: Any, run_id: str, name: str, rollouts: Sequence[JudgedRollout]) -> None:
    """Writes rollouts as a table of a run, in place of one of the same name. Of a table that would be very long, the
    first rows."""
    rows, left = [], _MOST_CHARACTERS
    for rollout in rollouts:
        row = _row_of(rollout)
        if (left := left - sum(len(str(value)) for value in row.values())) < 0:
            break
        rows.append(row)
    path = f"samples/{name}.json"
    table = {"columns": list(rows[0]) if rows else [], "data": [list(row.values()) for row in rows]}
    client.log_text(run_id, json.dumps(table), path)
    known = json.loads(client.get_run(run_id).data.tags.get(_TABLES, "[]"))
    if (entry := {"path": path, "type": "table"}) not in known:
        client.set_tag(run_id, _TABLES, json.dumps([*known, entry]))


def _row_of(rollout: JudgedRollout) -> dict[str, Any]:
    verdict = rollout.verdict
    eager = verdict.estimate_over("eager") if verdict else None
    best = verdict.speedup_over("best") if verdict else None
    return {
        "task": rollout.task,
        "number": rollout.number,
        "outcome": rollout.outcome,
        "speedup": eager.value if eager else None,
        "low": eager.low if eager else None,
        "high": eager.high if eager else None,
        "over the best baseline": best,
        "copy of": rollout.copy_of,
        "message": verdict.message if verdict else "",
        "tokens": rollout.tokens,
        "finish reason": rollout.finish_reason,
        "program": rollout.program,
        "response": rollout.response,
    }
