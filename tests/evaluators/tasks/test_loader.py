"""Tasks load from every format. If one does not load, the error says so in one line."""

from __future__ import annotations

import json

import pytest

from evaluators.tasks import TaskError, find_task, load_tasks
from evaluators.tasks.loader import TaskVariants, load_variants

SOURCE = """
import torch
import torch.nn as nn
n = 4
class Model(nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.randn(n)]
def get_init_inputs():
    return []
"""


def test_a_folder_in_kernelbench_layout(tmp_path) -> None:
    for level, name in ((1, "2_Second_one_"), (1, "10_Tenth"), (1, "1_First"), (2, "1_Other")):
        (tmp_path / f"level{level}").mkdir(exist_ok=True)
        (tmp_path / f"level{level}" / f"{name}.py").write_text(SOURCE)
    (tmp_path / "level1" / "notes.py").write_text("x = 1")
    tasks = load_tasks(str(tmp_path))
    assert [task.id for task in tasks] == ["level1/1", "level1/2", "level1/10", "level2/1"]
    assert [task.name for task in tasks] == ["First", "Second_one", "Tenth", "Other"]
    assert [task.level for task in tasks] == [1, 1, 1, 2]
    assert [task.id for task in load_tasks(str(tmp_path / "level2"))] == ["level2/1"]


def test_the_level_is_that_of_the_nearest_folder(tmp_path) -> None:
    (tmp_path / "level3-copy" / "level1").mkdir(parents=True)
    path = tmp_path / "level3-copy" / "level1" / "7_Name.py"
    path.write_text(SOURCE)
    assert find_task(str(path)).id == "level1/7"


def test_json_lines(tmp_path) -> None:
    path = tmp_path / "tasks.jsonl"
    lines = [{"level_id": 2, "task_id": 3, "ref_code": SOURCE, "name": "three"}]
    lines.append({"level_id": "1", "task_id": "12", "ref_code": "# line\u2028separator ä\n" + SOURCE})
    path.write_text("\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    tasks = load_tasks(str(path))
    assert [(task.id, task.level, task.name) for task in tasks] == [("level1/12", 1, "1-12"), ("level2/3", 2, "three")]


VARIANT = {"name": "fast", "source": "class ModelNew: pass", "analysis": "A.", "design": "B.", "profiles": ["cpu"]}


def line(tmp_path, **more) -> str:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"level_id": 1, "task_id": 7, "ref_code": SOURCE, **more}) + "\n")
    return str(path)


def test_a_line_may_carry_sizes_tags_and_programs(tmp_path) -> None:
    profiles = {"cpu": {"n": 8}, "cuda": {"n": 4096}}
    path = line(
        tmp_path, profiles=profiles, tags=["elementwise"], variants=[VARIANT, {**VARIANT, "profiles": ["cuda"]}]
    )
    for profile, sizes in (("cpu", {"n": 8}), ("cuda", {"n": 4096}), ("source", {})):
        (task,) = load_tasks(path, profile)
        assert (task.sizes, task.tags) == (sizes, ("elementwise",))
    for profile, number in (("cpu", 1), ("cuda", 1), ("", 2)):
        (found, *rest) = TaskVariants(f"bundled,{path}", profile).of("level1/7")
        assert (found.name, found.source, found.analysis, found.design) == ("fast", VARIANT["source"], "A.", "B.")
        assert len(rest) == number - 1
        assert TaskVariants(f"bundled,{path}", profile).of("level1/softmax") == load_variants("level1/softmax")
    assert TaskVariants(line(tmp_path)).of("level1/7") == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"profiles": {"cuda": {"n": 1}}}, "no profile `cpu`"),
        ({"profiles": [1]}, "sizes by profile"),
        ({"profiles": {"cpu": {"n": [1]}}}, "neither a number nor a text"),
        ({"tags": "a"}, "list of texts"),
        ({"variants": [{"name": "x"}]}, "a variant needs"),
        ({"variants": ["x"]}, "a variant needs"),
    ],
)
def test_the_error_for_a_line_names_it(tmp_path, more, message) -> None:
    path = line(tmp_path, **more)
    with pytest.raises(TaskError, match=message) as error:  # noqa: PT012
        load_tasks(path, "cpu")
        TaskVariants(path)
    assert f"{path}:1" in str(error.value)


def test_one_file(tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    (task,) = load_tasks(str(path))
    assert (task.id, task.level, task.name, task.source) == ("file/mine", 0, "mine", SOURCE)
    assert find_task(str(path)) == task


def test_a_bundled_task_by_id_or_name() -> None:
    task = find_task("level1/softmax", "cpu")
    assert find_task("softmax", "cpu") == task
    assert task.sizes != find_task("softmax", "cuda").sizes


BAD_LINES = {
    "not JSON": "{",
    "a number": "3",
    "a list": "[1]",
    "no code": json.dumps({"level_id": 1, "task_id": 1}),
    "no number": json.dumps({"level_id": "one", "task_id": 1, "ref_code": SOURCE}),
    "null": json.dumps({"level_id": None, "task_id": 1, "ref_code": SOURCE}),
    "does not parse": json.dumps({"level_id": 1, "task_id": 1, "ref_code": "def ("}),
    "null bytes": json.dumps({"level_id": 1, "task_id": 1, "ref_code": "x = 1\0"}),
    "another format": json.dumps({"level_id": 1, "task_id": 1, "ref_code": "x = 1"}),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_named_in_one_line(tmp_path, name) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n" + BAD_LINES[name] + "\n")
    with pytest.raises(TaskError) as error:
        load_tasks(str(path))
    assert str(error.value).startswith(f"{path}:2: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"def (", b"\xff\xfe", b"x = 1", b"x = 1\0"])
@pytest.mark.parametrize("name", ["task.py", "tasks.jsonl", "level1/1_Task.py"])
def test_a_bad_file_is_named_in_one_line(tmp_path, name, content) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(TaskError) as error:
        load_tasks(str(path if path.parent == tmp_path else tmp_path))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_source_is_named_with_a_remedy(tmp_path) -> None:
    for source in (tmp_path, tmp_path / "missing", tmp_path / "missing.jsonl"):
        with pytest.raises(TaskError, match=str(source)):
            load_tasks(str(source))
    with pytest.raises(TaskError, match="no-such-task"):
        find_task("no-such-task")
    with pytest.raises(TaskError, match="tpu"):
        load_tasks("bundled", "tpu")


# Several sources


def lines_of(*tasks: tuple[int, int]) -> str:
    return "\n".join(json.dumps({"level_id": level, "task_id": index, "ref_code": SOURCE}) for level, index in tasks)


def test_several_sources_are_one_list_by_level(tmp_path) -> None:
    (tmp_path / "mine.jsonl").write_text(lines_of((2, 7), (1, 30), (1, 4)))
    folder = tmp_path / "KernelBench" / "level3"
    folder.mkdir(parents=True)
    (folder / "2_Net.py").write_text(SOURCE)
    tasks = load_tasks(f"bundled, {tmp_path / 'mine.jsonl'},{folder.parent}", "cuda")
    ours = [task.id for task in load_tasks("bundled")]
    ids = [task.id for task in tasks]
    assert sorted(ids) == sorted([*ours, "level1/4", "level1/30", "level2/7", "level3/2"])
    assert [task.level for task in tasks] == sorted(task.level for task in tasks)
    assert ids.index("level1/4") < ids.index("level1/30")
    sizes = {task.id: task.sizes for task in tasks}
    assert sizes["level1/softmax"] == find_task("softmax", "cuda").sizes, "a profile is of the bundled tasks"
    assert sizes["level1/4"] == {}


def test_two_sources_of_one_id_are_refused(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text(lines_of((1, 4)))
    (tmp_path / "b.jsonl").write_text(lines_of((1, 5), (1, 4)))
    with pytest.raises(TaskError, match=r"b\.jsonl: level1/4 is a task of .*a\.jsonl, too"):
        load_tasks(f"{tmp_path / 'a.jsonl'},{tmp_path / 'b.jsonl'}")
    with pytest.raises(TaskError, match="missing"):
        load_tasks(f"{tmp_path / 'a.jsonl'},missing")


def test_a_comma_in_a_path_is_no_separator(tmp_path) -> None:
    path = tmp_path / "a,b.jsonl"
    path.write_text(lines_of((1, 4)))
    assert [task.id for task in load_tasks(str(path))] == ["level1/4"]
