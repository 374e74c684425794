"""Runs of KernelBench of any version are read, and what is none is named in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestration.kernelbench.layout import LayoutError, Result, read_published, read_results, read_run

RIGHT = {"compiled": True, "correctness": True, "runtime": 0.25, "metadata": {"hardware": "H100"}, "runtime_stats": {}}


def write(folder: Path, *names: str, results: object = None) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(f"# {name}")
    if results is not None:
        (folder / "eval_results.json").write_text(json.dumps(results))
    return folder


def test_programs_come_in_the_order_of_their_numbers_with_their_results(tmp_path: Path) -> None:
    names = [f"level_1_problem_{n}_sample_{s}_kernel.py" for n, s in ((10, 0), (2, 1), (2, 0))]
    results = {
        "2": [{"sample_id": 0, **RIGHT}, {"sample_id": 1, "compiled": False, "correctness": False, "runtime": -1.0}]
    }
    samples = read_run(write(tmp_path / "run", *names, "level_1_problem_2_prompt.txt", results=results))
    assert [(each.problem.number, each.sample) for each in samples] == [(2, 0), (2, 1), (10, 0)]
    assert samples[0].source == "# level_1_problem_2_sample_0_kernel.py"
    assert samples[0].result == Result(True, True, 0.25, "H100")
    assert samples[1].result == Result(False, False, None)
    assert samples[2].result is None


def test_results_of_earlier_versions_are_one_a_problem(tmp_path: Path) -> None:
    write(tmp_path, results={"3": {"sample_id": 0, **RIGHT}, "4": RIGHT})
    assert read_results(tmp_path / "eval_results.json") == {
        (3, 0): Result(True, True, 0.25, "H100"), (4, 0): Result(True, True, 0.25, "H100"),
    }  # fmt: skip


def test_numbers_say_nothing_about_a_problem_if_a_folder_has_two_levels(tmp_path: Path) -> None:
    names = [f"level_{level}_problem_1_sample_0_kernel.py" for level in (1, 2)]
    samples = read_run(write(tmp_path / "run", *names, results={"1": [{"sample_id": 0, **RIGHT}]}))
    assert [(each.problem.level, each.result) for each in samples] == [(1, None), (2, None)]


@pytest.mark.parametrize("results", [[1], {"one": RIGHT}, {"1": [{"sample_id": 0}]}, {"1": ["right"]}, "text"])
def test_results_of_another_form_are_refused(tmp_path: Path, results: object) -> None:
    write(tmp_path, results=results)
    with pytest.raises(LayoutError, match=r"eval_results\.json: not KernelBench's results by problem"):
        read_results(tmp_path / "eval_results.json")


def test_a_folder_without_programs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"holds no program \(expected level_1_problem_1_sample_0_kernel\.py"):
        read_run(tmp_path)
    with pytest.raises(LayoutError, match="absent: cannot be read"):
        read_run(tmp_path / "absent")


def test_published_programs_are_lines_with_custom_code(tmp_path: Path) -> None:
    rows = [
        {"level_id": 2, "task_id": 3, "custom_code": "b"},
        {"level_id": "1", "task_id": "12", "custom_code": "a\u2028a"},
        {"level_id": 1, "task_id": 12, "custom_code": "c"},
        {"level_id": 1, "task_id": 13, "custom_code": "None"},
        {"level_id": 1, "task_id": 14, "custom_code": None},
    ]
    path = tmp_path / "kernels.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n")
    samples = read_published(path)
    assert [(each.problem.task_id, each.sample, each.source) for each in samples] == [
        ("level1/12", 0, "a\u2028a"), ("level1/12", 1, "c"), ("level2/3", 0, "b"),
    ]  # fmt: skip
    path.write_text('{"level_id": 1}\n')
    with pytest.raises(LayoutError, match=r"kernels\.jsonl:1: expected level_id, task_id and custom_code"):
        read_published(path)
