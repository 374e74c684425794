"""An endpoint in place of a run's rollout engines: the pipeline gives it the same requests, and gets the same answers.

An answer is kept before anybody sees it (`orchestration.run.answers`): a step that is done again after a kill pays for
none twice. The seed of a request tells it from the others with its prompt, and is the same when the step is done again.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from actors.generation import Completion, GenerationRequest
from configs.schema import RunConfig
from orchestration.run.answers import Answer, Answers
from orchestration.step.endpoints import Book, Endpoint
from orchestration.step.failed_requests import EndpointKeys

_PHASE = "rollout"
"""Of the answers in the run's file: `Asked.phase`."""


@dataclass(frozen=True)
class Paid:
    """What answers took: tokens of prompts and answers, and money in the currency of the prices."""

    tokens: int = 0
    money: float = 0.0

    def since(self, earlier: Paid) -> Paid:
        """What came after an earlier reading."""
        return Paid(self.tokens - earlier.tokens, self.money - earlier.money)


class EndpointEngines:
    """Answers requests by one endpoint. Like a pool of engines it is polled, and never waits."""

    def __init__(self, config: RunConfig, answers: Answers | None = None) -> None:
        """Raises TeacherError for an address or a model that cannot be asked."""
        source = config.rollout.endpoint
        keys = EndpointKeys(
            "rollout.endpoint.url",
            "rollout.endpoint.model",
            "rollout.endpoint.asking.timeout",
            config.rollout.temperature,
            limit="a larger rollout.max_tokens, or rollout.endpoint.limit_tokens=false",
        )
        book = Book(answers, _PHASE, 0) if answers is not None else None
        limit = config.rollout.max_tokens if source.limit_tokens else 0
        self._asking = source.asking
        self._answers = answers
        self._endpoint = Endpoint(source.url, source.model, source.asking, book, keys, limit)
        self._under_way: dict[str, tuple[GenerationRequest, Future[Answer | None]]] = {}
        self._withheld: list[GenerationRequest] = []
        self._limit: Paid | None = None
        self.moves = 0

    @property
    def queued(self) -> int:
        """Requests that have to wait until others are answered; a few may, so that the endpoint is never idle."""
        return max(len(self._under_way) - 2 * self._asking.concurrency, 0)

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._under_way) + len(self._withheld)

    @property
    def paid(self) -> Paid:
        """What this process got so far, answers included that an earlier one has paid for."""
        usage = self._endpoint.usage
        return Paid(usage.prompt_tokens + usage.completion_tokens, self._endpoint.cost or 0.0)

    def allow(self, tokens: int, money: float) -> None:
        """From now on, sends requests until their answers took so many tokens or so much money; 0: no limit. Later
        ones get no answer. Those that are under way then are still answered."""
        paid = self.paid
        self._limit = Paid(paid.tokens + tokens if tokens else 0, paid.money + money if money else 0.0)

    @property
    def _is_spent(self) -> bool:
        paid, limit = self.paid, self._limit
        if limit is None:
            return False
        return (0 < limit.tokens <= paid.tokens) or (0.0 < limit.money <= paid.money)

    def figures(self) -> dict[str, float]:
        """What it was asked for, as metrics `endpoint/...`."""
        figures = self._endpoint.usage.figures(self._asking)
        return {name.replace("teacher/", "endpoint/"): value for name, value in figures.items()}

    def submit(self, request: GenerationRequest, method: str = "generate", *, priority: int = 0) -> None:
        """Sends a request for one response, unless the budget is spent (`allow`)."""
        if self._is_spent:
            self._withheld.append(request)
            return
        task_id = request.group.partition("/")[2]
        answer = self._endpoint.ask(task_id, request.text, request.seed or 0)
        self._under_way[request.key] = request, answer

    def poll(self, timeout: float = 0.0) -> list[tuple[GenerationRequest, Any]]:
        """The requests that are answered since the last call, with their responses: none for one that is lost or was
        not sent. Raises TeacherError if the endpoint cannot be asked any more, and OSError if an answer cannot be
        kept."""
        done: list[tuple[GenerationRequest, Any]] = [(request, []) for request in self._withheld]
        self._withheld.clear()
        for key, (request, future) in list(self._under_way.items()):
            if future.done():
                del self._under_way[key]
                answer = future.result()
                done.append((request, [] if answer is None else [_completion_of(answer)] * request.n))
        self.moves += len(done)
        if done and self._answers is not None:
            self._answers.copy(whole=False)
        return done

    def withdraw_keys(self, keys: Collection[str], *, queued_only: bool = False) -> list[GenerationRequest]:
        """Gives up requests, and returns them."""
        taken = [key for key in keys if key in self._under_way]
        for key in taken:
            self._under_way[key][1].cancel()
        return [self._under_way.pop(key)[0] for key in taken]

    def describe(self) -> str:
        """What it waits for, in words. It may be called from another thread."""
        return f"{self.pending} request(s) without an answer"

    def close(self) -> None:
        """Gives up all requests that are under way."""
        self._endpoint.close()
        if self._answers is not None:
            self._answers.copy()


def _completion_of(answer: Answer) -> Completion:
    """An endpoint gives no token ids, and no log-probabilities to learn from."""
    return Completion(answer.content, (), (), answer.finish_reason, 0)


class NoEngines:
    """In place of engines in a run that samples no policy. It is asked for nothing."""

    queued = pending = moves = 0

    def submit(self, request: GenerationRequest, method: str = "generate", *, priority: int = 0) -> None:
        """Raises RuntimeError."""
        raise RuntimeError(f"no policy answers {request.key}: the schedule has no phase that samples one")

    def poll(self, timeout: float = 0.0) -> list[tuple[GenerationRequest, Any]]:
        """Nothing."""
        return []

    def withdraw_keys(self, keys: Collection[str], *, queued_only: bool = False) -> list[GenerationRequest]:
        """Nothing."""
        return []

    def describe(self) -> str:
        """What it waits for, in words."""
        return "nothing"
