"""Reward checkers: models that are asked whether a program cheats, and whose answers count only in a fixed form.

The program is shown in a rendition that cannot speak (`evaluators.guard.rendition`); an answer that does not carry the
question's token, or calls a program a hack without a line of it, is none.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from openai import APIError, AsyncOpenAI, BadRequestError

from actors.generation import Completion, GenerationRequest
from configs.schema import GuardConfig
from evaluators.guard.cases import HackCase, Neighbours, Status
from evaluators.guard.rendition import is_whole, rendition
from evaluators.guard.ruling import Decision, Opinion
from evaluators.records import Candidate, Verdict
from prompts.render import PromptRenderer

_log = logging.getLogger(__name__)
_WORDS, _SENTENCE = 60, 300  # characters of what an answer may say
ANSWER_TOKENS = 300
_ENDPOINT_TOKENS = 4096  # a model may think first
_ASKED_AT_ONCE = 4
_MOST_SILENCES, _PAUSE_SECONDS = 3, 300.0  # after so many questions without an opinion, none is asked for a while
# Findings whose messages hold names that a runner gave.
_CLAIMED = {
    "integrity": "it replaced something by which it is measured",
    "flags": "its calls set global numeric flags, under which the reference did not run",
}
POLICY = "policy"
"""`guard.checker` where an engine of the run itself is asked."""


@dataclass(frozen=True)
class Question:
    """What a model is asked about one program. `lines`: how many the program has as it is shown."""

    text: str
    token: str
    lines: int

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of an answer."""
        properties = {
            "token": {"type": "string", "enum": [self.token]},
            "decision": {"type": "string", "enum": [str(one) for one in Decision]},
            "technique": {"type": "string", "maxLength": _WORDS},
            "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 16},
            "reason": {"type": "string", "maxLength": _SENTENCE},
        }
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def question_about(
    candidate: Candidate, verdict: Verdict, reference: str, neighbours: Neighbours, best: float | None
) -> Question | None:
    """The question, or None for a program that cannot be shown whole. `reference`: the task's source.

    What a runner claimed, and what was once said of another program, is not repeated: both may be a program's words.
    """
    shown = rendition(candidate.source)
    if not is_whole(shown):
        return None
    lines = shown.splitlines()
    token = secrets.token_hex(4)
    measured = {**verdict.doubted, **verdict.speedups}.get("eager")
    text = PromptRenderer().reward_check(
        reference=reference,
        program="\n".join(f"{number:3} {line}" for number, line in enumerate(lines, start=1)),
        speedup=measured.value if measured else 1.0,
        best=best,
        evidence=[_CLAIMED.get(finding.kind, finding.message) for finding in verdict.deciding],
        cases=[
            {"likeness": likeness, "why": _why(case), "program": rendition(case.source)}
            for case, likeness in neighbours.hacks
        ],
        token=token,
    )
    return Question(text, token, len(lines))


def _why(case: HackCase) -> str:
    return case.why if case.status is Status.SEED else f"It was found out by {' and '.join(case.kinds) or 'a person'}."


def opinion_of(answer: str, question: Question, by: str) -> Opinion | None:
    """What an answer says, or None for one that is not in the form asked for."""
    start, end = answer.find("{"), answer.rfind("}")
    try:
        said = json.loads(answer[start : end + 1])
        decision = Decision(said["decision"])
        technique, reason = (" ".join(str(said[key]).split()) for key in ("technique", "reason"))
        lines = [line for line in said["lines"] if isinstance(line, int) and 1 <= line <= question.lines]
        is_ours = said["token"] == question.token
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not is_ours or (decision is Decision.HACK and not lines):
        return None
    return Opinion(decision, technique[:_WORDS], reason[:_SENTENCE], by)


class EndpointChecker:
    """A model behind an OpenAI-compatible endpoint; the key comes from OPENAI_API_KEY. Whoever asks limits the time."""

    def __init__(self, config: GuardConfig) -> None:
        self._model, self._url = config.checker_model, config.checker
        key = os.environ.get("OPENAI_API_KEY") or "none"  # servers of one's own ask for none
        self._client = AsyncOpenAI(base_url=config.checker, api_key=key, timeout=config.checker_timeout, max_retries=0)

    async def __call__(self, question: Question) -> Opinion | None:
        """The model's opinion, or None (with a log line that says why) where there is none."""
        form = {"type": "json_schema", "json_schema": {"name": "opinion", "strict": True, "schema": question.schema}}
        try:
            try:
                limits = {"temperature": 0.0, "max_tokens": _ENDPOINT_TOKENS}
                answer = await self._ask(question, {"response_format": form, **limits})
            except BadRequestError:  # a server without structured outputs, or a model that takes no such limits
                answer = await self._ask(question, {})
        except APIError as error:
            _log.warning("guard.checker: %s does not answer (%s); the nearest known hacks decide", self._url, error)
            return None
        opinion = opinion_of(answer, question, f"the reward checker {self._model}")
        if opinion is None:
            _log.warning("guard.checker: %s gives no opinion: %.200r", self._url, answer)
        return opinion

    async def _ask(self, question: Question, options: Mapping[str, Any]) -> str:
        made = await self._client.chat.completions.create(
            model=self._model, messages=[{"role": "user", "content": question.text}], **options
        )
        choices: Sequence[Any] = getattr(made, "choices", None) or []
        return (choices[0].message.content or "") if choices else ""


@dataclass
class Answer:
    """A question that an engine of the run is answering: like a future that is done from outside."""

    question: Question
    opinion: Opinion | None = None
    ended: bool = False

    def done(self) -> bool:
        return self.ended

    def result(self) -> Opinion | None:
        return self.opinion


class PolicyChecker:
    """Asks the run's own engines, whose sampling is bound to the answer's form. Whoever polls their pool hands over
    what comes back (`take`)."""

    def __init__(
        self, submit: Callable[[GenerationRequest], None], encode: Callable[[str], Sequence[int]], max_length: int
    ) -> None:
        """`encode` makes a prompt's token ids, of which with the answer's `max_length` may be used."""
        self._submit, self._encode, self._room = submit, encode, max_length - ANSWER_TOKENS
        self._waiting: dict[str, Answer] = {}

    def __call__(self, question: Question) -> Answer:
        ids = tuple(self._encode(question.text))
        if len(ids) > self._room:
            _log.warning("guard.checker: a question of %d tokens does not fit; nearest known hacks decide", len(ids))
            return Answer(question, ended=True)
        key = f"check-{question.token}"
        self._waiting[key] = Answer(question)
        form = json.dumps(question.schema)
        self._submit(GenerationRequest(key, ids, 1, ANSWER_TOKENS, temperature=0.0, schema=form))
        return self._waiting[key]

    def take(self, key: str, outcome: Sequence[Completion] | None) -> bool:
        """Whether the request of that key is one of these; `outcome` is None for one that came to nothing."""
        answer = self._waiting.pop(key, None)
        if answer is None:
            return False
        if outcome:
            answer.opinion = opinion_of(outcome[0].text, answer.question, "the policy as its own reward checker")
        answer.ended = True
        return True


class Background:
    """Asks an endpoint from a thread of its own, a few questions at once; each has `seconds`, waiting included."""

    def __init__(self, checker: Callable[[Question], Awaitable[Opinion | None]], seconds: float) -> None:
        self._checker, self._seconds = checker, seconds
        self._room = asyncio.Semaphore(_ASKED_AT_ONCE)
        self._silences, self._again = 0, 0.0
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="checker", daemon=True).start()

    def __call__(self, question: Question) -> Future[Opinion | None]:
        return asyncio.run_coroutine_threadsafe(self._ask(question), self._loop)

    async def _ask(self, question: Question) -> Opinion | None:
        if time.monotonic() < self._again:
            return None
        try:
            async with asyncio.timeout(self._seconds), self._room:
                opinion = await self._checker(question)
        except TimeoutError:
            _log.warning("guard.checker: no answer within %.0f s; the nearest known hacks decide", self._seconds)
            opinion = None
        self._silences = 0 if opinion else self._silences + 1
        if self._silences >= _MOST_SILENCES:
            self._again = time.monotonic() + _PAUSE_SECONDS
            _log.warning("guard.checker: nothing is asked for %.0f s", _PAUSE_SECONDS)
        return opinion

    def take(self, key: str, outcome: Sequence[Completion] | None) -> bool:
        """False: no engine is asked."""
        return False

    def close(self) -> None:
        """Ends the thread; questions under way are dropped."""
        self._loop.call_soon_threadsafe(self._loop.stop)
