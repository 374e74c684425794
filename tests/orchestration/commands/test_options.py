"""What the values of shared options mean."""

from __future__ import annotations

from evaluators.records import Task
from orchestration.commands.options import parse_baselines, select_levels


def test_all_stands_for_the_baselines_of_the_architecture() -> None:
    assert parse_baselines("all", "cpu") == ("eager", "torch_compile", "torch_compile_reduce_overhead")
    assert parse_baselines("all", "H200")[-2:] == ("cuda_graph", "cudnn")
    assert parse_baselines("eager, torch_compile,eager", "cpu") == ("eager", "torch_compile")


def test_levels_choose_tasks() -> None:
    tasks = [Task(f"level{level}/1", level, "x", "") for level in (1, 2, 3)]
    assert [task.level for task in select_levels(tasks, "1, 3")] == [1, 3]
    assert select_levels(tasks, "") == tasks
