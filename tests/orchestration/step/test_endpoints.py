"""One endpoint as a teacher. Its part in a phase is tested in `tests/orchestration/phases/test_asking_endpoints.py`."""

import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest

from configs.schema import EndpointConfig
from evaluators.records import Task
from orchestration.step import endpoints
from orchestration.step.endpoints import EndpointTeacher
from orchestration.step.failed_requests import Backoff, retry_after
from orchestration.step.proposals import Proposal, TeacherError
from tests.orchestration.step.endpoint_server import PROGRAM, Reply, answer, chat, serving

SOFTMAX = Task("level1/softmax", 1, "softmax", "")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BACKOFF", Backoff(0.01, 0.05))


@pytest.fixture
def opened() -> Iterator[list[EndpointTeacher]]:
    """Teachers to close at the end."""
    teachers: list[EndpointTeacher] = []
    yield teachers
    for teacher in teachers:
        teacher.close()


def ask(teacher: EndpointTeacher, opened: list[EndpointTeacher], count: int = 1) -> list[Proposal | None]:
    opened.append(teacher)
    stream = teacher.proposals(SOFTMAX, "make it fast")
    return [future.result(30) for future in [next(stream) for _ in range(count)]]


def test_an_endpoint_is_asked_with_the_prompt_and_its_answer_read(
    opened: list[EndpointTeacher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(lambda *_: Reply()) as endpoint:
        first, second = ask(EndpointTeacher(endpoint.url, "m"), opened, 2)
    assert first == second == Proposal(SOFTMAX.id, PROGRAM, "The first is slow.", "One pass.", "teacher:m", 100, 40)
    assert [request["path"] for request in endpoint.seen] == ["/v1/chat/completions"] * 2
    assert endpoint.seen[0]["model"] == "m"
    assert endpoint.seen[0]["messages"] == [{"role": "user", "content": "make it fast"}]


def test_the_key_of_an_endpoint_comes_from_the_environment(
    opened: list[EndpointTeacher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(lambda *_: Reply(chat(None))) as endpoint:
        (proposal,) = ask(EndpointTeacher(endpoint.url, "m"), opened)
    assert proposal is not None
    assert proposal.source == ""
    assert endpoint.seen[0]["key"] == "Bearer secret"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply('{"error": {"message": "bad key"}}', 401), "bad key.*OPENAI_API_KEY"),
        (Reply("<html>nothing here</html>", 404, "text/html"), "usually ends in /v1"),
        (Reply("<html>welcome</html>", 200, "text/html"), "gives no chat completion; check the address"),
        (Reply('{"error": "no such model"}', 200), "gives no chat completion; check the address"),
        (Reply('{"choices": []}', 200), "gives no chat completion; check the address"),
        (Reply('{"choices": [{"message": null}], "usage": 7}', 200), "gives no chat completion; check the address"),
        (Reply("[]", 200), "gives no chat completion; check the address"),
        (Reply('{"error": {"code": "insufficient_quota", "message": "pay"}}', 429), "pay.*no credit left"),
    ],
)
def test_what_no_request_can_get_past_ends_at_once_with_one_line(
    opened: list[EndpointTeacher], reply: Reply, says: str
) -> None:
    with serving(lambda *_: reply) as endpoint:
        teacher = EndpointTeacher(endpoint.url, "m", EndpointConfig(concurrency=1, share=0.0))
        with pytest.raises(TeacherError, match=rf"sft\.teachers: http://127.*{says}") as caught:
            ask(teacher, opened, 3)
    assert len(endpoint.seen) == 1
    assert "\n" not in str(caught.value)


def test_an_answer_that_is_no_completion_is_asked_for_again_once_there_was_one(opened: list[EndpointTeacher]) -> None:
    with serving(lambda number, _: Reply('{"error": "upstream"}' if number == 1 else chat(answer()))) as endpoint:
        teacher = EndpointTeacher(endpoint.url, "m", EndpointConfig(concurrency=1))
        assert all(ask(teacher, opened, 2))
    assert len(endpoint.seen) == 3


def test_no_request_is_sent_while_the_endpoint_wants_to_be_left_alone(opened: list[EndpointTeacher]) -> None:
    times: list[float] = []

    def reply(number: int, request: dict[str, Any]) -> Reply:
        times.append(time.monotonic())
        return Reply("{}", 429, headers={"Retry-After": "0.4"}) if number == 0 else Reply()

    with serving(reply) as endpoint:
        ask(EndpointTeacher(endpoint.url, "m", EndpointConfig(concurrency=1)), opened, 3)
    assert len(times) == 4
    assert times[1] - times[0] >= 0.4


def test_an_endpoint_that_wants_to_be_left_alone_for_too_long_is_down_at_once(opened: list[EndpointTeacher]) -> None:
    with (
        serving(
            lambda *_: Reply('{"error": {"message": "come back tomorrow"}}', 429, headers={"Retry-After": "86400"})
        ) as endpoint,
        pytest.raises(TeacherError, match="come back tomorrow"),
    ):
        ask(EndpointTeacher(endpoint.url, "m"), opened)
    assert len(endpoint.seen) == 1


def test_an_endpoint_without_a_server_is_down_after_its_patience(opened: list[EndpointTeacher]) -> None:
    with serving(lambda *_: Reply()) as endpoint:
        pass
    begun = time.monotonic()
    with pytest.raises(TeacherError, match="cannot be reached"):
        ask(EndpointTeacher(endpoint.url, "m", EndpointConfig(patience=0.3)), opened, 100)
    assert 0.2 < time.monotonic() - begun < 5


def test_closing_gives_up_requests_that_hang(opened: list[EndpointTeacher]) -> None:
    asked, over = threading.Event(), threading.Event()

    def reply(number: int, request: dict[str, Any]) -> Reply:
        asked.set()
        over.wait(60)
        return Reply()

    with serving(reply) as endpoint:
        teacher = EndpointTeacher(endpoint.url, "m")
        future = next(teacher.proposals(SOFTMAX, ""))
        assert asked.wait(30)
        teacher.close()
        over.set()
    assert future.cancelled()


def test_an_address_is_shown_without_its_password(opened: list[EndpointTeacher]) -> None:
    with serving(lambda *_: Reply("", 401)) as endpoint:
        url = endpoint.url.replace("://", "://me:secret@")
        with pytest.raises(TeacherError) as caught:
            ask(EndpointTeacher(url, "m"), opened)
    assert endpoint.url in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25, 0.25),
        ({"retry-after": "-3"}, 0, 0),
    ],
)
def test_retry_after_is_seconds(headers: dict[str, str], low: float, high: float) -> None:
    seconds = retry_after(headers)
    assert seconds is not None
    assert low <= seconds <= high


def test_retry_after_is_a_date() -> None:
    ahead, passed = (formatdate(time.time() + seconds, usegmt=True) for seconds in (3600, -3600))
    seconds = retry_after({"retry-after": ahead})
    assert seconds is not None
    assert 3000 < seconds <= 3600
    assert retry_after({"retry-after": passed}) == 0


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf"])
def test_a_retry_after_that_says_nothing_is_ignored(text: str) -> None:
    assert retry_after({"retry-after": text}) is None
    assert retry_after({}) is None


def test_pauses_grow_to_a_bound_with_jitter_and_are_never_shorter_than_asked() -> None:
    backoff = Backoff(1.0, 60.0)
    for attempts, most in ((1, 1), (2, 2), (5, 16), (7, 60), (1000, 60)):
        drawn = [backoff.after(attempts, None) for _ in range(50)]
        assert most / 2 <= min(drawn) < max(drawn) <= most
    asked = [backoff.after(1, 9.0) for _ in range(50)]
    assert 9 <= min(asked) < max(asked) <= 10
