"""An endpoint in place of engines: a real server answers, well or badly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.generation import GenerationRequest
from configs.schema import EndpointConfig, RunConfig
from orchestration.run.answers import Answers
from orchestration.step import endpoints
from orchestration.step.endpoint_engines import EndpointEngines
from orchestration.step.failed_requests import Backoff
from orchestration.step.proposals import TeacherDown, TeacherError
from tests.orchestration.step.endpoint_server import Endpoint, Reply, answer, chat, serving


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BACKOFF", Backoff(0.01, 0.05))


def config_of(url: str, **asking: Any) -> RunConfig:
    config = RunConfig(name="test")
    config.rollout.temperature, config.rollout.max_tokens = 0.7, 77
    config.rollout.endpoint.url, config.rollout.endpoint.model = url, "m"
    config.rollout.endpoint.asking = EndpointConfig(**{"patience": 0.3, **asking})
    return config


@contextmanager
def engines_of(config: RunConfig, answers: Answers | None = None) -> Iterator[EndpointEngines]:
    engines = EndpointEngines(config, answers)
    try:
        yield engines
    finally:
        engines.close()


@contextmanager
def served(reply: Any, **asking: Any) -> Iterator[tuple[Endpoint, EndpointEngines]]:
    """A server that replies so, and engines that ask it."""
    with serving(reply) as endpoint, engines_of(config_of(endpoint.url, **asking)) as engines:
        yield endpoint, engines


def request(index: int, text: str = "make it fast", n: int = 1) -> GenerationRequest:
    return GenerationRequest(f"0/level1/a#{index}", (), n, 77, 0.7, group="0/level1/a", seed=1000 + index, text=text)


def gather(engines: EndpointEngines, count: int) -> dict[str, list[Any]]:
    """The answers to all requests, by key."""
    found: dict[str, list[Any]] = {}
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found |= {asked.key: completions for asked, completions in engines.poll()}
        time.sleep(0.005)
    assert len(found) == count
    return found


def ask(engines: EndpointEngines, count: int) -> dict[str, list[Any]]:
    for index in range(count):
        engines.submit(request(index))
    return gather(engines, count)


def test_requests_carry_text_model_temperature_and_limit_and_answers_are_completions() -> None:
    with served(lambda number, _: Reply(chat(answer(f"x = {number}")))) as (endpoint, engines):
        found = ask(engines, 3)
        assert engines.paid.tokens == 3 * 140
    assert {one["temperature"] for one in endpoint.seen} == {0.7}
    assert {(one["model"], one["max_tokens"]) for one in endpoint.seen} == {("m", 77)}
    assert endpoint.prompts == ["make it fast"] * 3
    texts = {completions[0].text for completions in found.values()}
    assert len(texts) == 3
    assert all(completions[0].policy_version == 0 for completions in found.values())


def test_an_endpoint_may_keep_its_own_limit() -> None:
    with serving(lambda *_: Reply()) as endpoint:
        config = config_of(endpoint.url)
        config.rollout.endpoint.limit_tokens = False
        with engines_of(config) as engines:
            ask(engines, 1)
    assert "max_tokens" not in endpoint.seen[0]


def test_an_answer_that_was_paid_for_is_never_asked_for_again(tmp_path: Path) -> None:
    with serving(lambda number, _: Reply(chat(answer(f"x = {number}")))) as endpoint:
        with engines_of(config_of(endpoint.url), Answers(tmp_path / "answers.jsonl")) as engines:
            first = ask(engines, 3)
        with engines_of(config_of(endpoint.url), Answers(tmp_path / "answers.jsonl")) as engines:
            again = ask(engines, 4)
            assert engines.paid.tokens == 4 * 140, "what was paid before counts"
        assert len(endpoint.seen) == 4
    assert {key: again[key] for key in first} == first


def test_once_the_budget_is_spent_requests_are_not_sent_and_get_no_answer() -> None:
    with served(lambda *_: Reply(), input_price=1e4, output_price=0.0) as (endpoint, engines):
        engines.allow(tokens=280, money=0.0)
        assert [bool(found) for found in ask(engines, 2).values()] == [True, True]
        assert list(ask(engines, 2).values()) == [[], []]
        engines.allow(tokens=0, money=0.5)  # an answer costs 1
        assert [bool(found) for found in ask(engines, 1).values()] == [True]
        assert list(ask(engines, 1).values()) == [[]]
        engines.allow(tokens=0, money=0.0)
        assert [bool(found) for found in ask(engines, 1).values()] == [True]
    assert len(endpoint.seen) == 4


def test_greedy_responses_are_one_answer() -> None:
    with serving(lambda *_: Reply()) as endpoint, engines_of(config_of(endpoint.url)) as engines:
        engines.submit(request(0, n=3))
        (completions,) = gather(engines, 1).values()
    assert len(completions) == 3


def test_requests_that_are_withdrawn_are_not_answered() -> None:
    with serving(lambda *_: Reply(drip=0.05)) as endpoint, engines_of(config_of(endpoint.url)) as engines:
        engines.submit(request(0))
        assert [one.key for one in engines.withdraw_keys([request(0).key, "other"])] == [request(0).key]
        assert engines.pending == 0
        assert engines.poll() == []


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (Reply("no", 500), TeacherDown, "does not answer"),
        (Reply('{"choices": [', 200), TeacherError, "gives no chat completion"),
        (Reply("<html>", 200, "text/html"), TeacherError, "gives no chat completion"),
        (Reply("no", 401), TeacherError, "set OPENAI_API_KEY"),
        (Reply("no", 404), TeacherError, "rollout.endpoint.url, which usually ends in /v1, and rollout.endpoint.model"),
        (Reply("no", 400), TeacherError, "rollout.endpoint.model takes such a prompt, and temperature 0.7"),
        (Reply(chat("")), TeacherError, "the first 4 answers of http.* are empty"),
        (Reply(chat(None)), TeacherError, "the first 4 answers of http.* are empty"),
    ],
)
def test_what_is_no_answer_ends_with_one_line_that_names_the_endpoint(
    reply: Reply, error: type[Exception], says: str
) -> None:
    says = f"^rollout.endpoint.url: .*{says}"
    with served(lambda *_: reply) as (_, engines), pytest.raises(error, match=says) as raised:
        ask(engines, 4)
    assert "\n" not in str(raised.value)
    assert "sft." not in str(raised.value)


def test_an_endpoint_that_is_away_or_too_slow_is_given_up() -> None:
    away = engines_of(config_of("http://127.0.0.1:9/v1"))
    with away as engines, pytest.raises(TeacherDown, match="cannot be reached"):
        ask(engines, 1)
    slow, says = served(lambda *_: Reply(drip=0.2), timeout=1.0), r"in time; see rollout\.endpoint\.asking\.timeout"
    with slow as (_, engines), pytest.raises(TeacherDown, match=says):
        ask(engines, 1)


def test_an_empty_answer_among_others_is_an_answer_without_a_program() -> None:
    def reply(number: int, _: object) -> Reply:
        return Reply(chat("" if number else answer()))

    with serving(reply) as endpoint, engines_of(config_of(endpoint.url, concurrency=1)) as engines:
        texts = [completions[0].text for completions in ask(engines, 6).values()]
    assert sorted(map(bool, texts)) == [False] * 5 + [True]


def test_a_lost_answer_is_left_out_if_the_share_allows_it() -> None:
    def reply(number: int, _: object) -> Reply:
        return Reply("no", 400) if number == 1 else Reply()

    with serving(reply) as endpoint, engines_of(config_of(endpoint.url, share=0.5, concurrency=1)) as engines:
        found = ask(engines, 3)
    assert sorted(len(completions) for completions in found.values()) == [0, 1, 1]


def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(TeacherError, match=r"^rollout.endpoint.url: http://\[ is no address"):
        EndpointEngines(config_of("http://["))
