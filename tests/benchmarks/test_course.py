"""How fast fresh samples are after each phase is read out of a published run's rows, failures included."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from benchmarks.course import by_stage
from evaluators.records import Estimate, Outcome, Verdict, verdict_table
from learners.records import Rollout, rollout_table

STAGES = {  # speed-ups over eager by task, 0 for what is not right; level1/gelu_tanh is never trained on
    "assess/base": {"level1/softmax": [0.0, 1.0], "level2/7": [0.0, 0.0], "level1/gelu_tanh": [9.0, 9.0]},
    "assess/1-contrastive_rl": {"level1/softmax": [16.0, 0.0], "level2/7": [1.0, 0.5], "level1/gelu_tanh": [0.0, 0.0]},
    "assess/1-sft": {"level1/softmax": [4.0, 4.0], "level2/7": [0.0, 0.0], "level1/gelu_tanh": [9.0, 9.0]},
    "1-self_supervised": {"level1/softmax": [32.0], "level2/7": [32.0]},
}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    tables, verdicts = [], {}
    for phase, tasks in STAGES.items():
        rollouts = []
        for task, speeds in tasks.items():
            for speed in speeds:
                outcome = Outcome.OK if speed else Outcome.WRONG
                over = {"eager": Estimate(speed, speed, speed, 5)} if speed else {}
                digest = f"{task} {speed}"
                verdicts[digest] = Verdict(digest, task, "cpu", outcome, speedups=over)
                rollouts.append(
                    Rollout(task, "g", "", "", (1,), (2,), (-1.0,), 1, candidate_digest=digest, outcome=str(outcome))
                )
        table = rollout_table(rollouts)
        for name, value in {"phase": phase, "step": 0}.items():
            table = table.append_column(name, [[value] * len(rollouts)])
        tables.append(table)
    pq.write_table(pa.concat_tables(tables), tmp_path / "samples.parquet")
    pq.write_table(verdict_table(verdicts.values()), tmp_path / "verdicts.parquet")
    return tmp_path


def test_a_sample_that_is_not_right_counts_as_the_reference(published: Path) -> None:
    console = Console(file=io.StringIO(), width=140)
    console.print(by_stage(published))
    assert isinstance(console.file, io.StringIO)
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines() if "x (" in line]
    assert [line.partition("x (")[0] for line in lines] == [
        "base 4 25.0% 0 of 4 1.00",
        "1-sft 4 50.0% 2 of 4 2.00",
        "1-contrastive_rl 4 75.0% 1 of 4 1.68",  # the fourth root of 16 / 2
    ]
    assert lines[0].endswith("1.00x (1.00-1.00)")
    assert lines[1].endswith("2.00x (2.00-2.00) 2.00x (2.00-2.00)")  # drawn anew, equal samples are the same again
    assert lines[2].endswith("1.68x (0.71-4.00) 0.84x (0.35-2.00)")
