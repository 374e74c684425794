"""Models behind OpenAI-compatible endpoints: many requests at once, each until it is answered or lost.

Requests run in a thread of their own. An answer is kept before anybody sees it, and is never asked for again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from openai import APIError, AsyncOpenAI

from configs.addresses import without_login
from configs.schema import EndpointConfig
from evaluators.records import Task, digest_of
from orchestration.run.answers import Answer, Answers, Asked
from orchestration.step.failed_requests import Backoff, EndpointKeys, Failure, Kind, NoCompletion, failure_of
from orchestration.step.pace import Pace
from orchestration.step.proposals import Proposal, TeacherDown, TeacherError
from orchestration.step.usage import Usage, cost_of
from prompts.parse import parse_response

_log = logging.getLogger(__name__)
BACKOFF = Backoff()
_CLOSE_SECONDS = 5.0
_WARN_AFTER, _WARN_SECONDS = 10.0, 60.0
"""How long requests fail before a line says so, and how long until the next line."""
_EMPTY_ANSWERS = 4
"""So many first answers without any text end a phase."""


@dataclass(frozen=True)
class Book:
    """Where a phase's answers are kept. `teacher`: the endpoint's place among `sft.teachers`."""

    answers: Answers
    phase: str
    teacher: int


class Endpoint:
    """A model behind an OpenAI-compatible endpoint, whose key comes from an environment variable.

    A request is lost if the endpoint does not accept it, or if it fails for `config.patience` seconds. Then the phase
    goes on, as long as the share of lost requests allows that (`config.share`).
    """

    def __init__(
        self,
        url: str,
        model: str,
        config: EndpointConfig | None = None,
        book: Book | None = None,
        keys: EndpointKeys | None = None,
        max_tokens: int = 0,
    ) -> None:
        """Without a `book` answers are not kept. `keys`: those of a teacher if not given. `max_tokens`: of an answer,
        which the endpoint is told; 0: nothing is said. Raises TeacherError for an address or a model that cannot be
        asked."""
        self._keys = keys or EndpointKeys()
        if not model:
            raise TeacherError(f"{self._keys.model}: name the model to ask {without_login(url)} for")
        self._model = self.name = model
        self._sampling: dict[str, Any] = {"temperature": self._keys.temperature}
        if max_tokens:
            self._sampling["max_tokens"] = max_tokens
        self._url, self._config = url, config or EndpointConfig()
        self._pace = Pace(self._config.requests_per_minute)
        self._shown_url = _shown(url, self._keys.address)
        self._book = book
        self._before, self._now = Usage(), Usage()  # counted in the phase's thread, and in that of the requests
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._room = asyncio.Semaphore(self._config.concurrency)
        self._end: TeacherError | None = None  # why no request is worth sending any more
        self._down: Failure | None = None
        self._resume_at = 0.0  # the time at which the endpoint wants to be asked again
        self._under_way, self._silent_since = 0, 0.0
        self._warned_at = -_WARN_SECONDS
        self._has_spoken, self._empty = False, 0

    @property
    def usage(self) -> Usage:
        """What it was asked for so far."""
        return self._before + self._now

    @property
    def cost(self) -> float | None:
        """What the answers so far cost, in the currency of the prices; None without prices."""
        return cost_of(self.usage.prompt_tokens, self.usage.completion_tokens, self._config)

    # Called from the phase's thread

    @property
    def is_down(self) -> bool:
        """Whether it is asked no more, because it does not answer."""
        return self._down is not None

    def ask(self, task_id: str, prompt: str, number: int) -> Future[Answer | None]:
        """The answer to a request that is sent at once, or that was answered before; None if it is lost. The future
        raises TeacherError if the phase cannot go on. `number`: which of the requests with this prompt it is."""
        asked = self._asked(task_id, prompt, number)
        self._before.asked += 1
        kept = self._book.answers.of(asked) if self._book else None
        if kept is None:
            return asyncio.run_coroutine_threadsafe(self._ask(asked, prompt), self._running_loop())
        self._before.count(kept)
        self._before.kept += 1
        self._has_spoken |= bool(kept.content.strip())
        future: Future[Answer | None] = Future()
        future.set_result(kept)
        return future

    def close(self) -> None:
        """Gives up all requests that are under way."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_SECONDS)
            self._loop = self._thread = None

    def _asked(self, task_id: str, prompt: str, number: int) -> Asked:
        phase, teacher = (self._book.phase, self._book.teacher) if self._book else ("", 0)
        return Asked(phase, teacher, self._model, task_id, digest_of(prompt), number)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            key = os.environ.get(self._keys.secret) or "none"  # a private server may need no key
            # The client's own retries know neither the other requests nor an end.
            self._client = AsyncOpenAI(base_url=self._url, api_key=key, timeout=self._config.timeout, max_retries=0)
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="teacher", daemon=True)
            self._thread.start()
        return self._loop

    # Called in the thread of the requests

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for waiting in others:
                waiting.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._client.close()

        loop.run_forever()
        loop.run_until_complete(end())
        loop.close()

    async def _ask(self, asked: Asked, prompt: str) -> Answer | None:
        """The answer to a request; None if it is lost. Raises TeacherError if the phase cannot go on."""
        async with self._room:
            if not self._under_way:
                self._silent_since = time.monotonic()
            self._under_way += 1
            try:
                answer = await self._answer(asked, prompt)
            finally:
                self._under_way -= 1
        if answer is None:
            return None
        if self._book is not None:
            self._book.answers.add(asked, answer)
        self._now.count(answer)
        self._refuse_silence(answer)
        return answer

    def _refuse_silence(self, answer: Answer) -> None:
        """Raises TeacherError once the first answers were all empty."""
        self._has_spoken |= bool(answer.content.strip())
        self._empty += not self._has_spoken
        if self._empty < _EMPTY_ANSWERS or self._has_spoken:
            return
        cut = " and cut off" if answer.finish_reason == "length" else ""
        self._end = TeacherError(
            f"{self._keys.address}: the first {self._empty} answers of {self._shown_url} are empty{cut}: a model that "
            f"thinks first needs {self._keys.limit}"
        )
        raise self._end

    async def _answer(self, asked: Asked, prompt: str) -> Answer | None:
        failing_since = wrong_since = None  # since the first failure; since the first that is no limit
        for attempt in itertools.count(1):
            await self._pause()
            if self._end is not None:
                raise self._end
            if self._down is not None:
                self._lose(asked, self._down)
                return None
            try:
                answer = await self._send(prompt)
            except (APIError, TimeoutError, NoCompletion) as error:
                failure = failure_of(error, has_answered=bool(self.usage.answers), keys=self._keys)
            else:
                self._silent_since = time.monotonic()
                return answer
            if failure.kind is Kind.ENDPOINT:
                self._end = self._error(failure)
                raise self._end
            if failure.kind is Kind.REQUEST:
                self._lose(asked, failure)
                return None
            now, pause = time.monotonic(), BACKOFF.after(attempt, failure.wait)
            failing_since = failing_since or now
            if not failure.is_limit:
                wrong_since = wrong_since or now
            if failure.wait is not None:
                self._resume_at = max(self._resume_at, now + pause)
            if now + pause - max(failing_since, self._silent_since) > self._config.patience:
                self._down = failure
                self._lose(asked, failure)  # raises if the phase cannot go on
                _log.warning("%s: %s %s, and is asked no more", self._keys.address, self._shown_url, failure.message)
                return None
            if wrong_since is not None and now + pause - wrong_since > self._config.patience:
                self._lose(asked, failure)
                return None
            if now - failing_since >= _WARN_AFTER:
                self._warn(failure)
            await asyncio.sleep(pause)
        raise AssertionError("never reached")

    async def _send(self, prompt: str) -> Answer:
        """One attempt. Raises APIError, TimeoutError or NoCompletion."""
        self._now.attempts += 1
        try:
            async with asyncio.timeout(self._config.timeout):  # the client's own limit begins anew with every byte
                made = await self._client.chat.completions.create(
                    model=self._model, messages=[{"role": "user", "content": prompt}], **self._sampling
                )
        except ValueError as error:  # half a JSON text
            raise NoCompletion from error
        return _read(made)

    async def _pause(self) -> None:
        """Waits for as long as the endpoint wants to be left alone, and for its rate limit."""
        await self._wait_until_resumed()
        if seconds := self._pace.wait(time.monotonic()):
            await asyncio.sleep(seconds)
            await self._wait_until_resumed()

    async def _wait_until_resumed(self) -> None:
        while (seconds := self._resume_at - time.monotonic()) > 0 and self._down is None:
            await asyncio.sleep(seconds)

    def _lose(self, asked: Asked, failure: Failure) -> None:
        """Counts a lost request. Raises TeacherError if there are too many."""
        self._now.lost += 1
        usage = self.usage
        if usage.asked - usage.lost < self._config.share * usage.asked - 1e-9:
            self._end = self._error(failure)
            raise self._end
        if self._down is None:
            _log.warning("%s %s; its answer about %s is lost", self._shown_url, failure.message, asked.task_id)

    def _warn(self, failure: Failure) -> None:
        """Says that requests fail, from time to time."""
        if time.monotonic() - self._warned_at >= _WARN_SECONDS:
            self._warned_at = time.monotonic()
            address = self._keys.address
            _log.warning("%s: %s %s; requests are sent again", address, self._shown_url, failure.message)

    def _error(self, failure: Failure) -> TeacherError:
        usage, remedy = self.usage, f"; {failure.remedy}" if failure.remedy else ""
        kept = f"; {usage.answers} answers are kept" if usage.answers and self._book else ""
        kind = TeacherDown if failure.kind is Kind.TRANSIENT else TeacherError
        return kind(f"{self._keys.address}: {self._shown_url} {failure.message}{remedy}{kept}")


class EndpointTeacher(Endpoint):
    """A model behind an endpoint as a teacher. Its name is the model's unless it is given one."""

    def cost_of(self, proposal: Proposal) -> float | None:
        """What the answer with a proposal cost; None without prices."""
        return cost_of(proposal.prompt_tokens or 0, proposal.completion_tokens or 0, self._config)

    def proposals(self, task: Task, prompt: str) -> Iterator[Future[Proposal | None]]:
        """Samples, each a request that is sent at once, until the endpoint is down."""
        for number in itertools.count():
            if self.is_down:
                return
            yield self._proposed(task.id, self.ask(task.id, prompt, number))

    def _proposed(self, task_id: str, answer: Future[Answer | None]) -> Future[Proposal | None]:
        """The proposal in an answer that is still to come."""
        proposed: Future[Proposal | None] = Future()

        def pass_on(answered: Future[Answer | None]) -> None:
            if answered.cancelled():
                proposed.cancel()
                return
            try:
                made = answered.result()
                proposed.set_result(None if made is None else self._proposal(task_id, made))
            except BaseException as error:  # noqa: BLE001 - raised in the thread that asks for the proposal
                proposed.set_exception(error)

        answer.add_done_callback(pass_on)
        return proposed

    def _proposal(self, task_id: str, answer: Answer) -> Proposal:
        parsed = parse_response(answer.content, answer.finish_reason)
        return Proposal(
            task_id,
            parsed.code or "",
            parsed.analysis or "",
            parsed.design or "",
            f"teacher:{self.name}",
            answer.prompt_tokens,
            answer.completion_tokens,
        )


def _read(made: Any) -> Answer:
    """The answer in what an endpoint sent, which the client does not check. Raises NoCompletion."""
    try:
        choice, usage = made.choices[0], getattr(made, "usage", None)
        return Answer(
            str(choice.message.content or "").encode("utf-8", "replace").decode(),
            str(choice.finish_reason or "stop"),
            _count(usage, "prompt_tokens"),
            _count(usage, "completion_tokens"),
            time.time(),
        )
    except (AttributeError, LookupError, TypeError) as error:  # a web page, or an error with status 200
        raise NoCompletion from error


def _count(usage: Any, name: str) -> int | None:
    count = getattr(usage, name, None)
    return count if isinstance(count, int) else None


def _shown(url: str, key: str) -> str:
    """The address as it may be printed. Raises TeacherError if it is none."""
    try:
        urlsplit(url)
    except ValueError as error:
        raise TeacherError(f"{key}: {without_login(url)} is no address ({error})") from error
    return without_login(url)
