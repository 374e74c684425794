"""Tasks from KernelBench's data set have the ids that they have in a checkout. Whatever does not fit is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluators.tasks import TaskError, load_tasks

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
PROBLEMS = [
    (1, 1, "1_Square_matrix_"),
    (1, 23, "23_Softmax"),
    (2, 1, "1_Conv2D_ReLU"),
    (3, 7, "7_Net"),
    (4, 2, "2_a-b_c"),
]


def write(path: Path, problems: list[tuple[int, int, str]] = PROBLEMS, **columns: list[Any] | None) -> Path:
    """A file of the data set. `columns`: in place of its own, None for none."""
    made: dict[str, Any] = {
        "code": [f"# {name}\n{SOURCE}" for _, _, name in problems],
        "level": [level for level, _, _ in problems],
        "name": [name for _, _, name in problems],
        "problem_id": [number for _, number, _ in problems],
        **columns,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: values for name, values in made.items() if values is not None}), path)
    return path


def test_every_source_gives_the_same_tasks(tmp_path: Path) -> None:
    for level, _, name in PROBLEMS:
        folder = tmp_path / "checkout" / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(f"# {name}\n{SOURCE}")
    for level in (1, 2, 3, 4):  # as the hub has them: a file a split
        of_level = [problem for problem in PROBLEMS if problem[0] == level]
        write(tmp_path / "hub" / "data" / f"level_{level}-00000-of-00001.parquet", of_level)
    whole = write(tmp_path / "all.parquet")
    checkout = load_tasks(str(tmp_path / "checkout"))
    assert [(task.id, task.level, task.name) for task in checkout] == [
        ("level1/1", 1, "Square_matrix"), ("level1/23", 1, "Softmax"), ("level2/1", 2, "Conv2D_ReLU"),
        ("level3/7", 3, "Net"), ("level4/2", 4, "a-b_c"),
    ]  # fmt: skip
    assert load_tasks(str(tmp_path / "hub")) == checkout
    assert load_tasks(str(whole)) == checkout


def test_a_split_without_a_column_of_its_level_has_it_in_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "level_4-00000-of-00001.parquet", [(0, 2, "2_Name.py")], level=None)
    assert [(task.id, task.name) for task in load_tasks(str(path))] == [("level4/2", "Name")]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"code": None, "kernel": [""]}, r"has no column code; .* this file has level, name, problem_id, kernel"),
        ({"level": None}, r"x\.parquet: has no column level"),
        ({"problem_id": ["one"]}, r"x\.parquet, row 1: level and problem_id must be whole numbers"),
        ({"code": [None]}, r"x\.parquet, row 1: .*code is no text"),
        ({"code": ["class Model: pass"]}, r"x\.parquet, row 1: not in KernelBench's format, get_init_inputs"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_named(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "x.parquet", PROBLEMS[:1], **columns)
    with pytest.raises(TaskError, match=message):
        load_tasks(str(path))


def test_a_problem_that_is_there_twice_and_a_file_of_another_kind_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.parquet", PROBLEMS[:1])
    with pytest.raises(TaskError, match=r"b\.parquet, row 1: level1/1 is in .*a\.parquet, row 1, too"):
        load_tasks(str(tmp_path))
    (tmp_path / "text.parquet").write_text("no Parquet")
    with pytest.raises(TaskError, match=r"text\.parquet: cannot be read as Parquet"):
        load_tasks(str(tmp_path / "text.parquet"))
