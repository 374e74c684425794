"""The reward functions, called as TRL, verl and verifiers call theirs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema import RewardConfig
from evaluators.records import Outcome
from orchestration.client import Rewards, ServiceError
from orchestration.client.rewards import text_of
from orchestration.serving.records import as_json
from tests.orchestration.serving.served import Served, program, served, verdict_on

OUTCOMES = {0: Outcome.OK, 1: Outcome.WRONG, 2: Outcome.SUSPECT, 3: Outcome.OK}


def response(number: int) -> str:
    return f"Here it is.\n```python\n{program(number)}```\n"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    """Judges at once: program 0 is ok (1.5), 1 wrong, 2 suspect, 3 ok."""
    with served(tmp_path) as service:

        def judge(request: Any) -> None:
            number = int(request.candidate.source.rpartition("=")[2])
            verdict = verdict_on(request, OUTCOMES[number])
            service._settle(request, verdict, as_json(verdict))

        service.judge.submit = judge  # type: ignore[method-assign]
        yield service


def test_trl_gets_a_reward_for_each_completion_and_none_for_a_neutral_one(service: Served) -> None:
    reward_func = Rewards(service.url).trl
    assert reward_func.__name__ == "trl"
    texts = [response(0), response(1), response(2), "no program", response(3)]
    called = partial(
        reward_func,
        prompts=["p"] * 5,
        completion_ids=[[1]] * 5,
        task=["softmax"] * 5,
        trainer_state=SimpleNamespace(global_step=1),
        log_extra=print,
        log_metric=print,
    )
    assert called(completions=texts) == [1.5, 0.0, None, 0.0, 1.5]
    conversations = [[{"role": "assistant", "content": text}] for text in texts]
    assert called(completions=conversations) == [1.5, 0.0, None, 0.0, 1.5]
    with pytest.raises(ServiceError, match="the data set needs a column `task`"):
        reward_func(prompts=["p"], completions=[response(0)])


def test_verl_gets_a_number_for_each_solution_alone_or_in_a_batch(service: Served) -> None:
    rewards = Rewards(service.url, neutral=0.25)
    row = {"data_source": "warpsmith", "ground_truth": "softmax", "extra_info": None}
    assert not inspect.iscoroutinefunction(rewards.compute_score)  # so verl calls it in a thread
    scores = [rewards.compute_score(**row, solution_str=response(number)) for number in range(4)]
    assert scores == [1.5, 0.0, 0.25, 1.5]
    assert rewards.compute_scores(
        data_sources=["warpsmith"] * 4,
        solution_strs=[response(number) for number in range(4)],
        ground_truths=[None] * 4,
        extra_infos=[{"task": "level1/softmax"}] * 4,
        reward_router_address=None,
    ) == [1.5, 0.0, 0.25, 1.5]
    with pytest.raises(ServiceError, match="a row names no task"):
        rewards.compute_score("warpsmith", response(0), None, {"index": 3})


def test_verifiers_gets_a_number_and_its_event_loop_goes_on(service: Served) -> None:
    reward_func = Rewards(service.url).verifiers
    assert reward_func.__name__ == "verifiers"
    parameters = inspect.signature(reward_func).parameters
    group_indicators = {"states", "prompts", "completions", "answers", "tasks", "infos"}  # how verifiers tells them
    assert not parameters.keys() & group_indicators

    async def score(number: int, *, as_record: bool) -> float:
        message: Any = {"role": "assistant", "content": response(number)}
        message = SimpleNamespace(**message) if as_record else message
        known = {"prompt": [], "completion": [message], "answer": "", "state": {}, "task": None}
        return float(await reward_func(**known, info={"task": "softmax"}))

    async def score_all() -> list[float]:
        return await asyncio.gather(*(score(number, as_record=number > 1) for number in range(4)))

    assert asyncio.run(score_all()) == [1.5, 0.0, 0.0, 1.5]


def test_verifiers_of_today_gives_a_task_and_a_trace(service: Served) -> None:
    rewards = Rewards(service.url)

    async def speedup(task: Any, trace: Any) -> float:
        return await rewards.verifiers(trace.last_reply, task.id)

    task, trace = SimpleNamespace(id="level1/softmax"), SimpleNamespace(last_reply=response(3).strip())
    assert asyncio.run(speedup(task=task, trace=trace)) == 1.5


def test_a_reward_is_what_a_run_would_give(service: Served) -> None:
    gain = Rewards(service.url, reward=RewardConfig(worth="gain"))
    assert gain.of_responses(["softmax"], [response(0)]) == [pytest.approx(0.6)]


def test_the_text_of_a_completion_is_that_of_the_assistants_last_message() -> None:
    assert text_of("text") == "text"
    messages = [{"role": "assistant", "content": "first"}, {"role": "tool", "content": "result"}]
    assert text_of(messages) == "first"
    assert text_of([SimpleNamespace(role="assistant", content=[{"type": "text", "text": "parts"}])]) == "parts"
    assert text_of([]) == ""
