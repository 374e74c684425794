"""Arms of a series are compared over tasks and seeds, from published rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.arms import read, rows_of, table_of
from orchestration.report.assemble import Report
from orchestration.report.comparison import overall_gain

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A published run whose page says that two tasks were held out."""
    folder = tmp_path_factory.mktemp("published")
    shutil.copytree(ROOT / "docs/results/rehearsed", folder / "rehearsed")
    (folder / "rehearsed" / "held_out.json").write_text(json.dumps(["level1/softmax", "level1/5"]))
    return read(folder / "rehearsed", folder / "restored")


def test_the_held_out_tasks_are_those_that_the_page_names(rehearsed: Report) -> None:
    training, held_out = rehearsed.groups
    assert {row.task_id for row in rows_of(held_out, "sft", [])} == {"level1/softmax", "level1/5"}
    assert len({row.task_id for row in rows_of(training, "sft", [])}) == 71 - 2
    numbered = rows_of(held_out, "", ["level?/?", "level?/??"])
    assert {row.task_id for row in numbered} == {"level1/5"}
    with pytest.raises(ValueError, match="no stage nothing: only base, sft"):
        rows_of(training, "nothing", [])


def test_an_arm_gains_over_the_common_start_and_over_the_arm_before(rehearsed: Report) -> None:
    group = rehearsed.groups[0]
    start, end = rows_of(group, "sft", []), rows_of(group, "", [])
    table = table_of("tasks", ["one", "same"], [start], [[end], [end]])
    over_start, over_arm = (list(column.cells) for column in table.columns[-2:])
    gain = overall_gain(start, end)
    assert gain is not None
    assert over_start == ["", *(2 * [f"{gain.value:.2f}x ({gain.low:.2f}-{gain.high:.2f})"])]
    assert over_arm == ["", "", "1.00x (1.00-1.00)"]
    two_seeds = table_of("tasks", ["one"], [start, start], [[start, end]])
    (value,) = list(two_seeds.columns[-2].cells)[1:]
    assert float(value.split("x")[0]) == pytest.approx(gain.value**0.5, abs=0.006), "the mean over seeds"
