import json
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import pytest

from configs.schema import RunConfig, SftConfig, TeacherConfig
from evaluators.records import Task
from evaluators.tasks.loader import TaskVariants, load_tasks, load_variants
from orchestration.step.lesson_rounds import TeacherRounds
from orchestration.step.proposals import Proposal, TeacherError
from orchestration.step.teachers import BundledTeacher, FileTeacher, make_teachers
from tests.orchestration.step.endpoint_server import PROGRAM, answer

SOFTMAX = Task("level1/softmax", 1, "softmax", "")
REFERENCE = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
ANSWER = answer()


def names(seed: int) -> list[str]:
    return [proposal.author for proposal in BundledTeacher(seed).proposals(SOFTMAX, "")]


def test_the_bundled_order_follows_the_seed_and_leaves_none_out() -> None:
    assert names(1) == names(1)
    assert len({tuple(names(seed)) for seed in range(5)}) > 1
    everything = sorted(f"teacher:bundled/{variant.name}" for variant in load_variants(SOFTMAX.id))
    assert sorted(names(1)) == everything


KERNEL, COMPILED, PLAIN = "import triton", "@torch.compile", "x = 1"


def test_kernels_come_first_and_one_of_each_rule_before_a_second_one(tmp_path: Path) -> None:
    """Drawn at random, 9 of the first 113 programs of a run had a kernel of their own (docs/results/second-window)."""
    programs = {
        "in_place": PLAIN, "torch_compile": COMPILED, "wrong_sum": KERNEL,
        **{f"triton_{rule}": KERNEL for rule in ("chain_1024", "chain_2048", "rows_1x4", "rows_4x4")},
    }  # fmt: skip
    variants = [
        {"name": name, "source": f"class ModelNew: pass\n{text}", "analysis": "A.", "design": "B.",
         "profiles": ["cpu"], "expect": "wrong" if "wrong" in name else "faster", "rule": name.rpartition("_")[0]}
        for name, text in programs.items()
    ]  # fmt: skip
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"level_id": 1, "task_id": 5, "ref_code": REFERENCE, "variants": variants}))
    (task,) = load_tasks(str(path), "cpu")
    found = set()
    for seed in range(20):
        teacher = BundledTeacher(seed, TaskVariants(str(path), "cpu"), kernels_first=True)
        order = [each.author.removeprefix("teacher:bundled/") for each in teacher.proposals(task, "")]
        assert {name.split("_")[1] for name in order[:2]} == {"chain", "rows"}
        assert order[2:4] == ["torch_compile", "in_place"]
        assert order[6:] == ["wrong_sum"]
        found.add(order[0])
    assert len(found) == 4, "which rule and which tiling comes first is drawn"


# Files


def test_programs_that_come_with_a_file_of_tasks_are_taught_for_the_device_of_the_run(tmp_path: Path) -> None:
    variants = [
        {"name": name, "source": f"class ModelNew: {name} = 1", "analysis": "A.", "design": "B.", "profiles": devices}
        for name, devices in (("loops", ["cpu"]), ("kernel", ["cuda"]), ("algebra", ["cpu", "cuda"]))
    ]
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"level_id": 1, "task_id": 5, "ref_code": REFERENCE, "variants": variants}))
    (task,) = load_tasks(str(path), "cpu")
    for arch, taught in (("cpu", {"loops", "algebra"}), ("H200", {"kernel", "algebra"})):
        config = RunConfig()
        config.tasks.source, config.evaluator.arch = str(path), arch
        (teacher,) = make_teachers(config)
        assert {each.author for each in teacher.proposals(task, "")} == {f"teacher:bundled/{name}" for name in taught}


def proposals(tmp_path: Path, line: str) -> list[Proposal]:
    path = tmp_path / "claude.jsonl"
    path.write_text(f"\n{line}\n\n", encoding="utf-8")
    (teacher,) = FileTeacher.read(str(path))
    return list(teacher.proposals(SOFTMAX, ""))


@pytest.mark.parametrize(
    ("row", "analysis"),
    [
        ({"task_id": "level1/softmax", "source": PROGRAM, "analysis": "slow", "design": "fast"}, "slow"),
        ({"task_id": "level1/softmax", "custom_code": PROGRAM}, "The reference runs one operator after the other."),
        ({"task_id": "softmax", "level_id": 1, "custom_code": PROGRAM, "extra": [1]}, None),
        ({"task_id": "level1/softmax", "response": ANSWER}, "The first is slow."),
    ],
)
def test_every_form_of_a_line_gives_its_program(tmp_path: Path, row: dict[str, Any], analysis: str | None) -> None:
    (proposal,) = proposals(tmp_path, json.dumps(row))
    assert proposal.source.strip() == PROGRAM
    assert proposal.author == "teacher:claude:2"
    assert proposal.design
    assert analysis in (None, proposal.analysis)


def test_a_published_file_of_tasks_and_programs_teaches_its_own_tasks(tmp_path: Path) -> None:
    """CUDA-L1's format: one file holds the tasks and the teacher's programs."""
    path = tmp_path / "published.jsonl"
    rows = [
        {"level_id": level, "task_id": index, "ref_code": REFERENCE, "custom_code": code, "score_default": 1.2}
        for level, index, code in ((1, 23, PROGRAM), (2, 23, "None"), (2, 7, None), (2, 9, f"{PROGRAM}\n# other"))
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    (teacher,) = FileTeacher.read(str(path))
    taught = {task.id: [proposal.source for proposal in teacher.proposals(task, "")] for task in load_tasks(str(path))}
    assert taught == {"level1/23": [PROGRAM], "level2/7": [], "level2/9": [f"{PROGRAM}\n# other"], "level2/23": []}


def test_a_file_that_names_teachers_is_one_teacher_for_each(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    rows = [("a", "x = 1"), ("b", "x = 2"), ("a", "x = 3"), (None, "x = 4"), ("c", None)]
    path.write_text("\n".join(json.dumps({"task_id": SOFTMAX.id, "source": s, "teacher": t}) for t, s in rows))
    teachers = FileTeacher.read(str(path))
    taught = {teacher.name: [one.source for one in teacher.proposals(SOFTMAX, "")] for teacher in teachers}
    assert taught == {"a": ["x = 1", "x = 3"], "b": ["x = 2"], "examples": ["x = 4"], "c": []}


def test_what_is_neither_a_file_nor_a_name_is_refused_with_what_may_stand_there() -> None:
    config = RunConfig(name="test")
    config.sft.teachers, config.sft.endpoints = ["gtp"], {"gpt": TeacherConfig("http://127.0.0.1:9/v1", "m")}
    with pytest.raises(TeacherError, match=r"sft.teachers: gtp cannot be read .* a name of sft.endpoints") as caught:
        make_teachers(config)
    assert "\n" not in str(caught.value)
    config.sft.teachers = ["gpt"]
    assert [teacher.name for teacher in make_teachers(config)] == ["gpt"]


def test_a_line_separator_inside_a_program_does_not_end_the_line(tmp_path: Path) -> None:
    source = f"# \u2028\n{PROGRAM}"
    row = json.dumps({"task_id": "level1/softmax", "source": source}, ensure_ascii=False)
    assert [proposal.source for proposal in proposals(tmp_path, row)] == [source]


@pytest.mark.parametrize("source", [None, "", "None"])
def test_a_line_whose_teacher_found_nothing_is_left_out(tmp_path: Path, source: str | None) -> None:
    assert proposals(tmp_path, json.dumps({"task_id": "level1/softmax", "custom_code": source})) == []


@pytest.mark.parametrize(
    "line",
    ["{", "null", "7", "[]", '"text"', "{}", '{"source": "x"}', '{"task_id": "level1/softmax"}', '{"level_id": 1}'],
)
def test_the_error_for_a_bad_line_is_one_line_that_names_it(tmp_path: Path, line: str) -> None:
    with pytest.raises(TeacherError) as caught:
        proposals(tmp_path, line)
    assert "claude.jsonl:2: expected task_id and source or response" in str(caught.value)
    assert "\n" not in str(caught.value)


# Lessons


class Endless:
    """A teacher that never runs out of programs, and counts them."""

    def __init__(self, name: str = "endless") -> None:
        self.name = name
        self.asked = 0

    def proposals(self, task: Task, prompt: str) -> Iterator[Proposal]:
        while True:
            self.asked += 1
            yield Proposal(task.id, f"{self.name}_{self.asked} = '{prompt}'", "", "", self.name)


def lesson_of(teachers: list[Any], **settings: int) -> TeacherRounds:
    return TeacherRounds([SOFTMAX], teachers, SftConfig(**settings), lambda task: task.name)


def learn(lesson: TeacherRounds, right: Container[str] = ()) -> list[int]:
    """How many programs each round brought. `right`: the first words of those that are right."""
    sizes = []
    while (asked := lesson.arrived()) is not None:
        for candidate in asked:
            lesson.judged(candidate.digest, success=candidate.source.split()[0] in right)
        sizes += [len(asked)] if asked else []
    return sizes


@pytest.mark.parametrize(("tries", "successes"), [(20, 2), (5, 3), (1, 1), (2, 5)])
def test_a_teacher_without_right_programs_is_asked_as_often_as_tries_says(tries: int, successes: int) -> None:
    teacher = Endless()
    assert max(learn(lesson_of([teacher], tries=tries, successes=successes))) <= successes
    assert teacher.asked == tries


def test_a_teacher_is_left_alone_after_enough_successes() -> None:
    teacher = Endless()
    learn(lesson_of([teacher], tries=20, successes=2), right=("endless_3", "endless_7"))
    assert teacher.asked == 7


def test_two_teachers_with_the_same_name_are_both_asked_and_a_program_of_both_is_judged_once() -> None:
    teachers = [Endless("twin"), Endless("twin")]
    lesson = lesson_of(teachers, tries=3, successes=1)
    assert sum(learn(lesson)) == 3
    assert [teacher.asked for teacher in teachers] == [3, 3]
    assert len(lesson.in_order()) == 6
    shared = [Endless("twin"), Endless("twin")]
    learn(lesson_of(shared, tries=3, successes=1), right=("twin_2",))
    assert [teacher.asked for teacher in shared] == [2, 2], "a right program counts for both"


def test_a_teacher_that_runs_out_ends_the_lesson() -> None:
    assert learn(lesson_of([BundledTeacher(0)], tries=1000, successes=1000)) == [len(load_variants(SOFTMAX.id))]


def test_after_its_end_a_lesson_asks_nobody_and_knows_only_what_was_judged() -> None:
    teacher = Endless()
    lesson = lesson_of([teacher], tries=20, successes=2)
    first, _ = lesson.arrived() or ()
    lesson.judged(first.digest, success=True)
    assert lesson.end() == 1
    assert lesson.arrived() is None
    assert [candidate for candidate, _ in lesson.in_order()] == [first]
    assert [[candidate for candidate, _ in each] for _, each in lesson.by_teacher()] == [[first]]
    assert teacher.asked == 2
