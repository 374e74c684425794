import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from configs.schema import RunConfig, SftConfig
from evaluators.records import Task
from evaluators.tasks.loader import load_tasks, load_variants
from orchestration.step.teachers import (
    BundledTeacher,
    EndpointTeacher,
    FileTeacher,
    Proposal,
    TeacherError,
    TeacherRounds,
    make_teachers,
)

SOFTMAX = Task("level1/softmax", 1, "softmax", "")
PROGRAM = "class ModelNew:\n    pass"
REFERENCE = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
ANSWER = f"""## Performance Analysis
The first is slow.

## Algorithm Design
One pass.

## Code Implementation
```python
{PROGRAM}
```
"""


def names(seed: int) -> list[str]:
    return [proposal.author for proposal in BundledTeacher(seed).proposals(SOFTMAX, "")]


def test_the_bundled_order_follows_the_seed_and_leaves_none_out() -> None:
    assert names(1) == names(1)
    assert len({tuple(names(seed)) for seed in range(5)}) > 1
    everything = sorted(f"teacher:bundled/{variant.name}" for variant in load_variants(SOFTMAX.id))
    assert sorted(names(1)) == everything


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
    return list(FileTeacher(str(path)).proposals(SOFTMAX, ""))


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
    teacher = FileTeacher(str(path))
    taught = {task.id: [proposal.source for proposal in teacher.proposals(task, "")] for task in load_tasks(str(path))}
    assert taught == {"level1/23": [PROGRAM], "level2/7": [], "level2/9": [f"{PROGRAM}\n# other"], "level2/23": []}


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


# Endpoints


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[dict[str, Any]], dict[str, Any]]]:
    """A server with the chat format: its address, the requests that it receives, and the reply that it gives."""
    seen: list[dict[str, Any]] = []
    reply: dict[str, Any] = {"status": 200, "type": "application/json", "body": ""}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append({"path": self.path, "key": self.headers["Authorization"], **body})
            content = reply["body"].encode()
            self.send_response(reply["status"])
            self.send_header("Content-Type", reply["type"])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", seen, reply
    server.shutdown()
    server.server_close()


def chat(content: str | None) -> str:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})


def test_an_endpoint_is_asked_with_the_prompt_and_its_answer_read(endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    url, seen, reply = endpoint
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    reply["body"] = chat(ANSWER)
    stream = EndpointTeacher(url, "m").proposals(SOFTMAX, "make it fast")
    first, second = next(stream), next(stream)
    assert first == second == Proposal(SOFTMAX.id, PROGRAM, "The first is slow.", "One pass.", "teacher:m")
    assert [request["path"] for request in seen] == ["/v1/chat/completions"] * 2
    assert seen[0]["model"] == "m"
    assert seen[0]["messages"] == [{"role": "user", "content": "make it fast"}]


def test_the_key_of_an_endpoint_comes_from_the_environment(endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    url, seen, reply = endpoint
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    reply["body"] = chat(None)
    assert next(EndpointTeacher(url, "m").proposals(SOFTMAX, "")).source == ""
    assert seen[0]["key"] == "Bearer secret"


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (401, "application/json", '{"error": {"message": "bad key"}}'),
        (404, "text/html", "<html>nothing here</html>"),
        (200, "text/html", "<html>welcome</html>"),
        (200, "application/json", '{"error": "no such model"}'),
    ],
)
def test_the_error_for_a_silent_endpoint_is_one_line(endpoint, status: int, kind: str, body: str) -> None:
    url, _, reply = endpoint
    reply.update(status=status, type=kind, body=body)
    with pytest.raises(TeacherError, match=r"sft\.teachers: http://127") as caught:
        next(EndpointTeacher(url, "m").proposals(SOFTMAX, ""))
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
            yield Proposal(task.id, f"{prompt} {self.asked}", "", "", self.name)


def lesson_of(teachers: list[Any], **settings: int) -> TeacherRounds:
    return TeacherRounds([SOFTMAX], teachers, SftConfig(**settings), lambda task: task.name)


@pytest.mark.parametrize(("tries", "successes"), [(20, 2), (5, 3), (1, 1), (2, 5)])
def test_a_teacher_without_right_programs_is_asked_as_often_as_tries_says(tries: int, successes: int) -> None:
    teacher = Endless()
    lesson = lesson_of([teacher], tries=tries, successes=successes)
    while asked := lesson.next_round():
        assert len(asked) <= successes
    assert teacher.asked == tries


def test_a_teacher_is_left_alone_after_enough_successes() -> None:
    teacher = Endless()
    lesson = lesson_of([teacher], tries=20, successes=2)
    right = [7, 3]  # the third and the seventh program are right
    while asked := lesson.next_round():
        for key, proposal in asked:
            if int(proposal.source.split()[-1]) in right:
                lesson.succeeded(key)
    assert teacher.asked == 7


def test_two_teachers_with_the_same_name_are_both_asked() -> None:
    teachers = [Endless("twin"), Endless("twin")]
    lesson = lesson_of(teachers, tries=3, successes=1)
    while lesson.next_round():
        pass
    assert [teacher.asked for teacher in teachers] == [3, 3]


def test_a_teacher_that_runs_out_ends_the_lesson() -> None:
    lesson = lesson_of([BundledTeacher(0)], tries=1000, successes=1000)
    assert len(lesson.next_round()) == len(load_variants(SOFTMAX.id))
    assert lesson.next_round() == []
