"""Reward functions for TRL, verl and verifiers (prime-rl), whose rewards are the verdicts of a service.

The program is looked for in a response as in a run's (`prompts.parse`), and the verdict is worth what it is worth there
(`evaluators.reward`). An answer without a program gets 0 and is not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from configs.schema import RewardConfig
from evaluators.records import Verdict
from evaluators.reward import reward_of
from orchestration.client.verdicts import Asked, ServiceError, Verdicts
from prompts.parse import parse_response

_AT_ONCE = 256  # asynchronous calls that wait for their verdicts


class Rewards:
    """Reward functions over the service at `url`. For `token`, `patience` and `limit` see `Verdicts`.

    `reward`: what a verdict is worth, as the section `reward` of a run's configuration; by default the speed-up over
    eager. `neutral`: the reward of a verdict that must neither gain nor lose (`suspect`, `infra`) for trainers that
    know none; TRL gets None. `priority`: of its requests, from -100 to 100, the highest first.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        reward: RewardConfig | None = None,
        neutral: float = 0.0,
        priority: int = 0,
        patience: float = 600.0,
        limit: float = 7200.0,
    ) -> None:
        self.verdicts = Verdicts(url, token, patience=patience, limit=limit)
        self._reward, self._neutral, self._priority = reward or RewardConfig(), neutral, priority
        self._waiting = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rewards")

    def trl(self, completions: Sequence[Any], task: Sequence[str] | None = None, **_: Any) -> list[float | None]:
        """For `reward_funcs` of TRL's GRPOTrainer. The data set's column `task` names the task of each prompt. A
        neutral verdict is None, which TRL leaves out. Raises ServiceError, which ends the training."""
        if task is None:
            raise ServiceError("the data set needs a column `task` with the id of each prompt's task")
        return self.of_responses(list(task), list(map(text_of, completions)))

    def compute_score(
        self, data_source: str, solution_str: str, ground_truth: Any = None, extra_info: Any = None, **_: Any
    ) -> float:
        """For `custom_reward_function` of verl. `extra_info["task"]`, or else `ground_truth`, names the task."""
        return self._known(self.of_responses([_task_of(extra_info, ground_truth)], [solution_str]))[0]

    def compute_scores(
        self,
        data_sources: Sequence[str],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Any],
        **_: Any,
    ) -> list[float]:
        """The same for verl's reward manager `batch`, which gives a whole batch at once."""
        tasks = [_task_of(info, truth) for info, truth in zip(extra_infos, ground_truths, strict=True)]
        return self._known(self.of_responses(tasks, list(solution_strs)))

    async def verifiers(self, completion: Any, answer: Any = "", info: Any = None, **_: Any) -> float:
        """For a `Rubric` of verifiers, which prime-rl trains on. `info["task"]`, or else `answer`, names the task."""
        loop, text = asyncio.get_running_loop(), text_of(completion)
        task = _task_of(info, answer)
        return self._known(await loop.run_in_executor(self._waiting, self.of_responses, [task], [text]))[0]

    def of_responses(self, tasks: Sequence[str], responses: Sequence[str]) -> list[float | None]:
        """The rewards of a model's responses to prompts on tasks; None is neutral. Raises ServiceError."""
        programs = [parse_response(response).code for response in responses]
        asked = [
            Asked(task, code, self._priority) for task, code in zip(tasks, programs, strict=True) if code is not None
        ]
        verdicts = iter(self.verdicts.judge_all(asked))
        return [0.0 if code is None else self.of_verdict(next(verdicts)) for code in programs]

    def of_verdict(self, verdict: Verdict) -> float | None:
        """What a verdict is worth; None is neutral."""
        return reward_of(verdict, self._reward)

    def _known(self, rewards: Sequence[float | None]) -> list[float]:
        return [self._neutral if reward is None else reward for reward in rewards]


def text_of(completion: Any) -> str:
    """The text of a completion: a string, or messages (mappings or objects), of which the assistant's last counts."""
    if isinstance(completion, str):
        return completion
    for message in reversed(list(completion)):
        role, content = _field(message, "role"), _field(message, "content")
        if role in (None, "assistant") and content:
            return content if isinstance(content, str) else "".join(str(_field(part, "text") or "") for part in content)
    return ""


def _field(record: Any, name: str) -> Any:
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)


def _task_of(info: Any, otherwise: Any) -> str:
    """The task that a row of a data set names."""
    named = info.get("task") if isinstance(info, Mapping) else None
    task = named or otherwise
    if not isinstance(task, str) or not task:
        raise ServiceError("a row names no task: put its id into the field that docs/guides/other-trainers.md names")
    return task
