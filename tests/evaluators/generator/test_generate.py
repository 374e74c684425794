"""A generated file loads like any other, holds no structure that is kept out, and follows from its seed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from evaluators.audit.quick import reason_to_drop
from evaluators.generator.generate import SIZES_OF_A_STRUCTURE, Generated, generate, rows_of, write_rows
from evaluators.generator.structure import structure_digest
from evaluators.records import Task
from evaluators.tasks import load_tasks
from evaluators.tasks.loader import TaskVariants

NUMBER = 12


@pytest.fixture(scope="module")
def kept_out() -> Task:
    """A foreign task with the structure of the first task that seed 0 gives."""
    ((first, _),) = generate(1, 0, {}).tasks
    source = first.task.source.replace("class Model(", "class Net(") + "\n\nModel = Net\n"
    return Task("level9/1", 9, "planted", source, sizes=dict(first.profiles["small"]))


@pytest.fixture(scope="module")
def generated(kept_out: Task) -> Generated:
    return generate(NUMBER, 0, {"bundled": load_tasks("bundled", "cpu"), "mine": [kept_out]})


@pytest.fixture(scope="module")
def path(generated: Generated, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generated") / "tasks.jsonl"
    write_rows(list(rows_of(generated)), path)
    return path


def test_a_twin_of_a_kept_out_task_is_dropped(generated: Generated, kept_out: Task) -> None:
    assert generated.dropped["structure of a task of mine"] >= 1
    assert structure_digest(kept_out) not in {digest for _, digest in generated.tasks}
    assert generated.kept_out == {"bundled": (24, 24), "mine": (1, 1)}


def test_no_structure_is_that_of_a_bundled_task_or_comes_too_often(generated: Generated) -> None:
    digests = Counter(digest for _, digest in generated.tasks)
    assert len(generated.tasks) == NUMBER
    assert max(digests.values()) <= SIZES_OF_A_STRUCTURE
    assert not digests.keys() & {structure_digest(task) for task in load_tasks("bundled", "cpu")}
    assert len({(digest, task.layout) for task, digest in generated.tasks}) == NUMBER


@pytest.mark.slow
def test_the_number_of_processes_changes_no_byte(generated: Generated, kept_out: Task) -> None:
    again = generate(NUMBER, 0, {"bundled": load_tasks("bundled", "cpu"), "mine": [kept_out]}, jobs=2)
    assert json.dumps(list(rows_of(again))) == json.dumps(list(rows_of(generated)))


def test_a_file_is_read_back_with_its_sizes_and_programs(generated: Generated, path: Path) -> None:
    rows = {f"level{row['level_id']}/{row['task_id']}": row for row in rows_of(generated)}
    for profile in ("cpu", "cuda", "small"):
        assert {task.id: dict(task.sizes) for task in load_tasks(str(path), profile)} == {
            name: dict(row["profiles"][profile]) for name, row in rows.items()
        }
    (cpu, cuda, every) = (TaskVariants(str(path), profile) for profile in ("cpu", "cuda", ""))
    for name, row in rows.items():
        assert [each.name for each in every.of(name)] == [each["name"] for each in row["variants"]]
        assert all("triton" not in each.source for each in cpu.of(name))
        assert all("load_inline" not in each.source for each in cuda.of(name))


def test_accepted_tasks_pass_the_audit(path: Path) -> None:
    for task in load_tasks(str(path), "small")[:4]:
        assert reason_to_drop(task, ({},), seed=99) == ""
