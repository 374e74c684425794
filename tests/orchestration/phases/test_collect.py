"""Collecting: what each teacher gave, and a file that teaches a later run the same without asking anybody."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema import EndpointConfig, RunConfig, TeacherConfig
from evaluators.records import Candidate, Outcome, Verdict
from orchestration.phases import Collect, Sft, collecting
from orchestration.step import endpoints
from orchestration.step.failed_requests import Backoff
from orchestration.step.pace import Pace
from orchestration.step.proposals import TeacherError
from prompts.parse import parse_response
from tests.orchestration.phases.phase_context import Context, Judge, judged
from tests.orchestration.phases.test_asking_endpoints import Prompted
from tests.orchestration.step.endpoint_server import Endpoint, Reply, answer, chat, serving


@pytest.fixture
def serve() -> Iterator[Callable[..., Endpoint]]:
    with ExitStack() as stack:
        yield lambda reply: stack.enter_context(serving(reply))


def judge(candidate: Candidate) -> Verdict:
    """A program `speedup = X` is right and so fast; any other one is wrong."""
    _, _, figure = candidate.source.strip().partition("speedup = ")
    outcome = Outcome.OK if figure else Outcome.WRONG
    return judged(candidate.task_id, candidate.source, outcome, float(figure or 0.0))[1]


def saying(*programs: str) -> Callable[[int, dict[str, Any]], Reply]:
    """A model that answers the n-th request about a task with the n-th program."""
    asked = Counter[str]()

    def reply(_: int, request: dict[str, Any]) -> Reply:
        prompt = request["messages"][0]["content"]
        asked[prompt] += 1
        return Reply(chat(answer(f"class ModelNew:\n    {programs[(asked[prompt] - 1) % len(programs)]}"), (100, 40)))

    return reply


def context_of(config: RunConfig, folder: Path, tasks: int = 2) -> Any:
    context: Any = Context(config, tasks, folder / "answers.jsonl")
    context.prompts.one_shot = lambda task_id: Prompted(f"make {task_id} fast")
    context.prompts.response_of = lambda row: answer(row["source"], row["analysis"])
    context.pipeline = Judge(judge)
    context.archive = SimpleNamespace(
        store=lambda *_: None, write_examples=(folder / "examples.jsonl").write_bytes, folder=folder
    )
    return context


def config_of(**endpoints: TeacherConfig) -> RunConfig:
    config = RunConfig(name="test")
    config.sft.teachers, config.sft.endpoints = list(endpoints), dict(endpoints)
    config.sft.tries, config.sft.successes, config.sft.min_speedup = 6, 2, 1.05
    return config


def two_models(serve: Callable[..., Endpoint]) -> tuple[RunConfig, list[Endpoint]]:
    """One needs four tries for two lessons, and one of its other programs is right, but slow. The other never gives a
    lesson, and is not paid for."""
    good = serve(saying("x = 1", "speedup = 1.5", "speedup = 0.9", "speedup = 2.0"))
    poor = serve(saying("x = 1", "speedup = 1.0"))
    asking = EndpointConfig(concurrency=1, input_price=10.0, output_price=50.0)
    config = config_of(
        good=TeacherConfig(good.url, "large", asking=asking), poor=TeacherConfig(poor.url, "small", temperature=0.3)
    )
    return config, [good, poor]


def collected(config: RunConfig, folder: Path) -> tuple[Collect, list[dict[str, Any]]]:
    phase = Collect(context_of(config, folder), 1)
    phase.gather(0)
    return phase, [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]


def test_each_teacher_is_asked_at_its_own_address_for_its_own_model(serve: Any, tmp_path: Path) -> None:
    config, servers = two_models(serve)
    collected(config, tmp_path)
    asked = [{(one["model"], one["temperature"]) for one in endpoint.seen} for endpoint in servers]
    assert asked == [{("large", 1.0)}, {("small", 0.3)}]


def test_a_key_comes_from_the_variable_that_the_teacher_names(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "first")
    monkeypatch.setenv("OTHER_KEY", "second")
    config, servers = two_models(serve)
    config.sft.endpoints["poor"].key = "OTHER_KEY"
    collected(config, tmp_path)
    assert [{one["key"] for one in endpoint.seen} for endpoint in servers] == [{"Bearer first"}, {"Bearer second"}]
    refused = serve(lambda *_: Reply("no", 401))
    config.sft.endpoints["poor"].url = refused.url
    (tmp_path / "b").mkdir()
    with pytest.raises(TeacherError, match=r"^sft\.endpoints\.poor\.url: .*set OTHER_KEY to a key"):
        collected(config, tmp_path / "b")


def test_the_table_says_what_each_teacher_gave_and_cost(serve: Any, tmp_path: Path) -> None:
    config, _ = two_models(serve)
    phase, _ = collected(config, tmp_path)
    good, poor = phase.memory["teachers"]
    paid = (8 * 100 * 10.0 + 8 * 40 * 50.0) / 1e6
    tokens = {"prompt_tokens": 800, "completion_tokens": 320}
    assert good == {
        "name": "good", "tasks": 2, "solved": 2, "tries": 8, "right": 6, "faster": 4, "lost": 0, "cost": paid, **tokens,
    }  # fmt: skip
    assert (poor["tries"], poor["solved"], poor["right"], poor["faster"], poor["cost"]) == (12, 0, 6, 0, None)
    assert json.loads(json.dumps(phase.memory)) == phase.memory, "plain JSON, which a resume reads"


def test_every_right_program_is_an_example_with_prompt_response_verdict_and_cost(serve: Any, tmp_path: Path) -> None:
    config, _ = two_models(serve)
    _, rows = collected(config, tmp_path)
    assert [(row["teacher"], row["task_id"], row["speedup"]) for row in rows] == [
        ("good", "level1/0", 1.5), ("good", "level1/0", 0.9), ("good", "level1/0", 2.0),
        ("good", "level1/1", 1.5), ("good", "level1/1", 0.9), ("good", "level1/1", 2.0),
        ("poor", "level1/0", 1.0), ("poor", "level1/1", 1.0),
    ]  # fmt: skip
    first, last = rows[0], rows[-1]
    assert first["prompt"] == "make level1/0 fast"
    assert parse_response(first["response"]).code == first["source"]
    assert (first["prompt_tokens"], first["completion_tokens"], first["cost"]) == (100, 40, pytest.approx(0.003))
    assert last["cost"] is None
    for row in rows:
        verdict = row["verdict"]
        assert verdict["outcome"] == "ok"
        assert verdict["candidate"] == Candidate.propose(row["task_id"], row["source"], "").digest


def test_a_run_learns_the_same_from_the_file_and_asks_nobody(serve: Any, tmp_path: Path) -> None:
    config, servers = two_models(serve)
    config.sft.min_speedup = 1.0  # so that both teachers give lessons
    asking = Sft(context_of(config, tmp_path), 1)
    asking.gather(0)
    (tmp_path / "collect").mkdir()
    collected(config, tmp_path / "collect")
    before = [len(endpoint.seen) for endpoint in servers]
    config.sft.teachers, config.sft.endpoints = [str(tmp_path / "collect" / "examples.jsonl")], {}
    reading = Sft(context_of(config, tmp_path), 1)
    reading.gather(0)
    assert [len(endpoint.seen) for endpoint in servers] == before

    def lessons(phase: Sft) -> list[str]:
        return sorted(json.dumps(lesson, sort_keys=True) for lesson in phase.memory["lessons"])

    assert lessons(reading) == lessons(asking)
    assert len(lessons(asking)) == 2 * (2 + 1)
    assert reading.memory["ideas"] == asking.memory["ideas"]
    names = [row["name"] for row in reading.memory["teachers"]]
    assert names == ["good", "poor"], "each teacher is asked until it has given enough, as before"


def test_teachers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder, speedup in (("a", "1.5"), ("b", "1.7")):
        (tmp_path / folder).mkdir()
        row = {"task_id": "level1/0", "source": f"speedup = {speedup}"}
        (tmp_path / folder / "programs.jsonl").write_text(json.dumps(row))
    config = RunConfig(name="test")
    config.sft.teachers = [str(tmp_path / folder / "programs.jsonl") for folder in ("a", "b")]
    _, rows = collected(config, tmp_path)
    assert [(row["teacher"], row["speedup"]) for row in rows] == [("programs (1)", 1.5), ("programs (2)", 1.7)]


def test_every_request_asks_the_rate_limit_of_its_endpoint_also_when_it_is_sent_again(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []

    class Noted(Pace):
        def __init__(self, per_minute: float) -> None:
            super().__init__(0.0)
            self._noted = per_minute

        def wait(self, now: float) -> float:
            begun.append(self._noted)
            return super().wait(now)

    monkeypatch.setattr(endpoints, "Pace", Noted)
    monkeypatch.setattr(endpoints, "BACKOFF", Backoff(0.01, 0.02))
    says = saying("speedup = 2.0", "speedup = 3.0")
    busy = serve(lambda number, request: Reply("", 503) if number == 0 else says(number, request))
    asking = EndpointConfig(requests_per_minute=120.0)
    _, rows = collected(config_of(busy=TeacherConfig(busy.url, "m", asking=asking)), tmp_path)
    assert len(rows) == 4
    assert begun == [120.0] * 5 == [120.0] * len(busy.seen)


def test_a_model_that_says_nothing_ends_the_phase_after_a_few_answers(serve: Any, tmp_path: Path) -> None:
    silent = serve(lambda *_: Reply(chat("")))
    config = config_of(mute=TeacherConfig(silent.url, "m", asking=EndpointConfig(concurrency=1)))
    with pytest.raises(TeacherError, match=r"^sft\.endpoints\.mute\.url: the first 4 answers of http.* are empty"):
        collected(config, tmp_path)
    assert len(silent.seen) == 4


def test_a_phase_in_which_nothing_is_right_leaves_an_empty_file(
    serve: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = serve(saying("x = 1", "x = 2"))
    phase, rows = collected(config_of(bad=TeacherConfig(wrong.url, "m")), tmp_path)
    assert rows == []
    assert phase.memory["examples"] == 0
    assert "none of the 12 programs of teachers was right" in caplog.text


def test_an_interrupt_keeps_the_verdicts_so_far(serve: Any, tmp_path: Path) -> None:
    """They take an evaluator minutes, and are else kept every 64 programs."""
    good, asking = serve(saying("speedup = 1.5", "speedup = 2.0")), EndpointConfig(concurrency=1)
    context, kept = context_of(config_of(good=TeacherConfig(good.url, "m", asking=asking)), tmp_path), []
    context.archive.store_interrupted = lambda *stored: kept.append(stored)

    def interrupted(candidate: Candidate) -> Verdict:
        if candidate.source.endswith("2.0"):
            raise KeyboardInterrupt
        return judge(candidate)

    context.pipeline = Judge(interrupted)
    with pytest.raises(KeyboardInterrupt):
        Collect(context, 1).gather(0)
    ((key, step, result),) = kept
    assert (key, step) == ("1-collect", 0)
    assert [verdict.speedup for verdict in result.verdicts.values()] == [1.5] * len(result.verdicts)
    assert set(result.candidates) == set(result.verdicts) != set()


class OneByOne(Judge):
    """Judges one program at a time, each of which takes a minute of `now`."""

    now = 0.0

    def evaluate_arriving(
        self, arrived: Callable[[], Sequence[Candidate] | None], preset: str
    ) -> Iterator[tuple[Candidate, Verdict]]:
        waiting: list[Candidate] = []
        while (candidates := arrived()) is not None:
            waiting += candidates
            if waiting:
                self.now += 60.0
                candidate = waiting.pop(0)
                yield candidate, self.judge(candidate)


@pytest.mark.parametrize(("minutes", "judged"), [(0.0, 20), (3.0, 3), (100.0, 20)])
def test_collecting_ends_in_time_with_what_was_judged_of_tasks_in_a_drawn_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float, judged: int
) -> None:
    rows = [
        {"task_id": f"level1/{task}", "source": f"speedup = {task}.{index}"} for task in range(10) for index in "56"
    ]
    (tmp_path / "programs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = config_of()
    config.sft.teachers, config.sft.collect_minutes = [str(tmp_path / "programs.jsonl")], minutes
    context = context_of(config, tmp_path, tasks=10)
    context.pipeline = clock = OneByOne(judge)
    monkeypatch.setattr(collecting, "time", SimpleNamespace(monotonic=lambda: clock.now))
    phase = Sft(context, 1)
    result = phase.gather(0)
    assert len(result.verdicts) == result.metrics["proposals"] == judged
    assert phase.memory["teachers"][0]["tries"] == judged
    first = [candidate.task_id for candidate in result.candidates.values()][:3]
    assert (first == ["level1/0", "level1/0", "level1/1"]) == (minutes == 0.0)
