"""SFT with teachers behind endpoints: a real server that answers well or badly, and a judge that stands in."""

import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from configs.schema import RunConfig
from evaluators.records import Candidate, Outcome, Verdict
from orchestration.phases import Sft
from orchestration.run.answers import Answers
from orchestration.step import endpoints
from orchestration.step.failed_requests import Backoff
from orchestration.step.proposals import TeacherDown, TeacherError
from tests.orchestration.phases.phase_context import Context, Judge, judged
from tests.orchestration.step.endpoint_server import Endpoint, Reply, answer, chat, serving

KILLED = Path(__file__).parent / "killed_rounds.py"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BACKOFF", Backoff(0.01, 0.05))


@pytest.fixture
def serve() -> Iterator[Callable[..., Endpoint]]:
    with ExitStack() as stack:
        yield lambda reply: stack.enter_context(serving(reply))


def program(number: int) -> str:
    return answer(f"class ModelNew:\n    x = {number}")


class Numbered:
    """Each answer has a program of its own."""

    def __call__(self, number: int, request: dict[str, Any]) -> Reply:
        return Reply(chat(program(number)))


def phase_of(
    endpoint: Endpoint,
    tmp_path: Path,
    judge: Callable[[Candidate], Verdict] | None = None,
    tasks: int = 4,
    **settings: Any,
) -> Sft:
    """The first phase of a run whose judge finds every program right unless told otherwise."""
    config = RunConfig(name="test")
    config.sft.teachers, config.sft.teacher_model = [endpoint.url], "m"
    config.sft.tries, config.sft.successes = settings.pop("tries", 1), settings.pop("successes", 1)
    for name, value in settings.items():
        setattr(config.sft.endpoint, name, value)
    context: Any = Context(config, tasks, tmp_path / "answers.jsonl")
    context.prompts.one_shot = lambda task_id: Prompted(f"make {task_id} fast")
    context.stored = []
    context.archive = Archived(context.stored)
    context.pipeline = Judge(judge or (lambda one: judged(one.task_id, one.source, Outcome.OK, 2.0)[1]))
    return Sft(context, 1)


class Prompted:
    def __init__(self, text: str) -> None:
        self.text = text


class Archived:
    """Writes down how many verdicts were stored each time."""

    def __init__(self, stored: list[int]) -> None:
        self._stored = stored

    def store(self, key: str, step: int, result: Any) -> None:
        self._stored.append(len(result.verdicts))


def test_requests_are_under_way_together_but_no_more_than_configured(
    serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    together, lock, under_way = threading.Barrier(3), threading.Lock(), Counter[str]()

    def reply(number: int, request: dict[str, Any]) -> Reply:
        with lock:
            under_way["now"] += 1
            under_way["most"] = max(under_way["most"], under_way["now"])
        together.wait(20)
        with lock:
            under_way["now"] -= 1
        return Numbered()(number, request)

    result = phase_of(serve(reply), tmp_path, tasks=6, concurrency=3).gather(0)
    assert result.metrics["lessons"] == 6
    assert under_way["most"] == 3


def test_answers_are_judged_while_others_are_still_awaited(serve: Callable[..., Endpoint], tmp_path: Path) -> None:
    first_is_judged = threading.Event()

    def reply(number: int, request: dict[str, Any]) -> Reply:
        if "level1/0" not in request["messages"][0]["content"] and not first_is_judged.wait(20):
            return Reply("too late", 400)
        return Numbered()(number, request)

    def judge(one: Candidate) -> Verdict:
        first_is_judged.set()
        return judged(one.task_id, one.source, Outcome.OK, 2.0)[1]

    assert phase_of(serve(reply), tmp_path, judge).gather(0).metrics["lessons"] == 4


def test_a_task_is_asked_about_again_only_after_its_own_verdicts(
    serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    """Program 0 of a task is wrong and the others right: with two successes wanted, three requests are enough."""
    counts, lock = Counter[str](), threading.Lock()

    def reply(number: int, request: dict[str, Any]) -> Reply:
        prompt = request["messages"][0]["content"]
        with lock:
            counts[prompt] += 1
            return Reply(chat(program(counts[prompt] - 1)))

    def judge(one: Candidate) -> Verdict:
        right = "x = 0" not in one.source
        return judged(one.task_id, one.source, Outcome.OK if right else Outcome.WRONG, 2.0)[1]

    phase = phase_of(serve(reply), tmp_path, judge, tries=20, successes=2)
    result = phase.gather(0)
    assert set(counts.values()) == {3}
    assert (result.metrics["proposals"], result.metrics["lessons"]) == (12, 8)


def test_an_endpoint_that_fails_in_every_way_for_a_while_is_asked_again(
    serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    failures = [
        Reply("", 500),
        Reply("overloaded", 503, "text/plain", {"Retry-After": "0"}),
        Reply("{}", 429, headers={"Retry-After": "0.05"}),
        Reply(sends=-1),
        Reply(sends=40),
        Reply('{"id": "1", "object": "chat.', 200),
        Reply("", 408),
        Reply("", 529),
    ]

    def reply(number: int, request: dict[str, Any]) -> Reply:
        return failures[number - 1] if 0 < number <= len(failures) else Numbered()(number, request)

    endpoint = serve(reply)
    result = phase_of(endpoint, tmp_path, concurrency=1).gather(0)
    assert result.metrics["lessons"] == 4
    assert len(endpoint.seen) == 4 + len(failures)
    figures = {name.removeprefix("teacher/"): value for name, value in result.metrics.items()}
    assert (figures["answers"], figures["attempts"], figures["lost"]) == (4, 12, 0)


def test_lessons_stand_in_the_order_of_the_tasks_whatever_comes_first(
    serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    others = threading.Semaphore(0)

    def reply(number: int, request: dict[str, Any]) -> Reply:
        prompt = request["messages"][0]["content"]
        if "level1/0" in prompt:
            for _ in range(3):
                others.acquire(timeout=20)
        else:
            others.release()
        return Reply(chat(program(number)))

    phase = phase_of(serve(reply), tmp_path)
    result = phase.gather(0)
    lessons: Any = phase.memory["lessons"]
    assert [lesson["task_id"] for lesson in lessons] == [f"level1/{index}" for index in range(4)]
    assert [one.task_id for one in result.candidates.values()] == [f"level1/{index}" for index in range(4)]
    assert list(result.verdicts) == list(result.candidates)


# What was paid for


def test_tokens_are_counted_and_cost_is_reported_if_prices_are_known(
    serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    phase = phase_of(serve(Numbered()), tmp_path, input_price=2.0, output_price=10.0)
    metrics = phase.gather(0).metrics
    assert (metrics["teacher/prompt_tokens"], metrics["teacher/completion_tokens"]) == (400, 160)
    assert metrics["teacher/cost"] == pytest.approx((400 * 2 + 160 * 10) / 1e6)
    shown: Any = phase.context.pipeline
    assert shown.shown[-1]["teacher/answers"] == 4
    free = phase_of(serve(lambda *_: Reply(chat(answer(), None))), tmp_path / "free").gather(0).metrics
    assert "teacher/cost" not in free
    assert (free["teacher/completion_tokens"], free["teacher/uncounted"]) == (0, 4)


def test_after_an_error_only_what_is_missing_is_asked_for(serve: Callable[..., Endpoint], tmp_path: Path) -> None:
    wrong_key = Reply('{"error": {"message": "bad key"}}', 401)
    endpoint = serve(lambda number, request: wrong_key if number == 5 else Numbered()(number, request))
    phase = phase_of(endpoint, tmp_path, tasks=8, concurrency=1)
    with pytest.raises(TeacherError, match=r"bad key.*OPENAI_API_KEY.*5 answers are kept"):
        phase.gather(0)
    stored: Any = phase.context
    assert stored.stored, "what was judged is stored"
    assert len(endpoint.seen) == 6, "a wrong key is wrong for every request"
    result = phase_of(endpoint, tmp_path, tasks=8).gather(0)
    assert result.metrics["lessons"] == 8
    assert Counter(endpoint.prompts).most_common(2) == [("make level1/5 fast", 2), ("make level1/0 fast", 1)]
    assert (result.metrics["teacher/answers"], result.metrics["teacher/kept"]) == (8, 5)
    assert result.metrics["teacher/prompt_tokens"] == 800, "with what was paid before"


def test_a_killed_process_pays_for_no_answer_twice(serve: Callable[..., Endpoint], tmp_path: Path) -> None:
    """A real process, killed while three requests are under way and with half a line at the end of its file."""
    counts, lock, hanging, over = Counter[str](), threading.Lock(), threading.Semaphore(0), threading.Event()

    def reply(number: int, request: dict[str, Any]) -> Reply:
        with lock:
            counts["answered"] += 1
            hangs = not over.is_set() and counts["answered"] > 9
        if hangs:
            hanging.release()
            over.wait(60)
        return Numbered()(number, request)

    endpoint = serve(reply)
    command = [sys.executable, str(KILLED), endpoint.url, str(tmp_path / "answers.jsonl")]
    with subprocess.Popen(command, cwd=Path(__file__).parents[3]) as killed:
        for _ in range(3):
            assert hanging.acquire(timeout=60)
        killed.send_signal(signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    over.set()
    with open(tmp_path / "answers.jsonl", "ab") as file:
        file.write(b'{"phase": "1-sft", "teacher": 0, "mo')
    paid = Answers(tmp_path / "answers.jsonl").count
    assert paid == 9
    result = phase_of(endpoint, tmp_path, tasks=20, concurrency=3).gather(0)
    assert (result.metrics["lessons"], result.metrics["teacher/kept"]) == (20, 9)
    again = Counter(endpoint.prompts)
    assert len(again) == 20
    assert sorted(again.values()) == [1] * 17 + [2] * 3, "only requests without an answer are sent again"
    assert Answers(tmp_path / "answers.jsonl").count == 20


# Endpoints that stay away


def test_an_endpoint_that_is_down_ends_the_phase_in_bounded_time(
    serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    endpoint = serve(lambda number, _: Numbered()(number, {}) if number < 2 else Reply("", 503))
    with pytest.raises(TeacherDown, match=r"sft\.teachers: http://127.*503.*2 answers are kept") as caught:
        phase_of(endpoint, tmp_path, tasks=200, patience=0.3, concurrency=4).gather(0)
    assert "\n" not in str(caught.value)
    assert len(endpoint.seen) < 200, "requests that wait for others are not tried one by one"


def test_a_phase_goes_on_without_an_endpoint_if_enough_was_answered(
    serve: Callable[..., Endpoint], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def reply(number: int, request: dict[str, Any]) -> Reply:
        return Numbered()(number, request) if number < 7 else Reply(sends=-1)

    phase = phase_of(serve(reply), tmp_path, tasks=10, tries=3, successes=2, patience=0.2, concurrency=1, share=0.3)
    metrics = phase.gather(0).metrics
    assert (metrics["lessons"], metrics["teacher/answers"], metrics["teacher/lost"]) == (7, 7, 13)
    assert re.search("asked no more", caplog.text)
    with pytest.raises(TeacherDown, match="cannot be reached"):
        phase_of(serve(reply), tmp_path / "b", tasks=10, tries=3, patience=0.2, concurrency=1, share=0.8).gather(0)


@pytest.mark.parametrize("drip", [0.0, 0.02])
def test_an_endpoint_that_hangs_or_sends_a_byte_now_and_then_is_given_up(
    serve: Callable[..., Endpoint], tmp_path: Path, drip: float
) -> None:
    over = threading.Event()

    def reply(number: int, request: dict[str, Any]) -> Reply:
        if not drip:
            over.wait(60)
        return Reply(drip=drip)

    try:
        with pytest.raises(TeacherDown, match=r"gives no answer in time; see sft\.endpoint\.timeout"):
            phase_of(serve(reply), tmp_path, timeout=0.1, patience=0.3).gather(0)
    finally:
        over.set()


def test_a_request_that_is_not_accepted_is_not_sent_again(serve: Callable[..., Endpoint], tmp_path: Path) -> None:
    """A prompt that is too long for the teacher; the phase may go on without it."""
    too_long = Reply('{"error": {"message": "the context has 4096 tokens"}}', 400)

    def reply(number: int, request: dict[str, Any]) -> Reply:
        return too_long if "level1/2" in request["messages"][0]["content"] else Numbered()(number, request)

    endpoint = serve(reply)
    with pytest.raises(TeacherError, match=r"4096 tokens.*see whether sft\.teacher_model takes such a prompt"):
        phase_of(endpoint, tmp_path, concurrency=1).gather(0)
    assert len(endpoint.seen) == 3
    endpoint.seen.clear()
    metrics = phase_of(endpoint, tmp_path, tries=5, share=0.75).gather(0).metrics
    assert (metrics["lessons"], metrics["teacher/lost"]) == (3, 1)
    assert Counter(endpoint.prompts) == {"make level1/2 fast": 1, "make level1/3 fast": 1}


def test_a_request_on_which_the_server_always_fails_does_not_hold_up_the_others(
    serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    def reply(number: int, request: dict[str, Any]) -> Reply:
        if "level1/0" in request["messages"][0]["content"]:
            return Reply("", 500)
        return Numbered()(number, request)

    phase = phase_of(serve(reply), tmp_path, tasks=40, tries=1, patience=0.3, concurrency=2, share=0.9)
    metrics = phase.gather(0).metrics
    assert (metrics["lessons"], metrics["teacher/lost"]) == (39, 1)
