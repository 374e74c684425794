"""Reward checkers: models that are asked whether a program cheats, and whose answers count only in a fixed form.

The program is shown without any text of its own (`evaluators.guard.rendition`), so that it cannot speak to the model.
An answer without the question's token is ignored, as is one that calls a program a hack without naming a line of it.
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
_TECHNIQUE_LENGTH, _REASON_LENGTH = 60, 300  # characters that are kept of an answer
_ANSWER_TOKENS = 300
_ENDPOINT_TOKENS = 4096  # a model may think first
_ASKED_AT_ONCE = 4
_MOST_SILENCES, _PAUSE_SECONDS = 3, 300.0  # after so many questions without an opinion, no question for so long
# The messages of these findings hold names that a runner gave. They are replaced in a question.
_CLAIMED = {
    "integrity": "it replaced something by which it is measured",
    "flags": "its calls set global numeric flags, under which the reference did not run",
}
POLICY = "policy"
"""The value of `guard.checker` with which the run's own engines are asked."""


@dataclass(frozen=True)
class Question:
    """What a model is asked about one program.

    `text`: the prompt. `token`: a random word that the answer must repeat. `lines`: how many lines the shown program
    has.
    """

    text: str
    token: str
    lines: int

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of an answer."""
        properties = {
            "token": {"type": "string", "enum": [self.token]},
            "decision": {"type": "string", "enum": [str(decision) for decision in Decision]},
            "technique": {"type": "string", "maxLength": _TECHNIQUE_LENGTH},
            "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 16},
            "reason": {"type": "string", "maxLength": _REASON_LENGTH},
        }
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def question_about(
    candidate: Candidate, verdict: Verdict, reference: str, neighbours: Neighbours, best: float | None
) -> Question | None:
    """The question about a candidate, None if it is too long or too deep to be shown whole.

    `reference`: the source of the task's reference. `neighbours`: the known cases nearest to the candidate. `best`: the
    best believed speed-up of the task. Claims of a runner and explanations of other programs are not repeated: a
    program may have written both.
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
    """The opinion in an answer, None if the answer is not in the form of the question's schema. `by`: who gave it."""
    start, end = answer.find("{"), answer.rfind("}")
    try:
        fields = json.loads(answer[start : end + 1])
        decision = Decision(fields["decision"])
        technique, reason = (" ".join(str(fields[key]).split()) for key in ("technique", "reason"))
        lines = [line for line in fields["lines"] if isinstance(line, int) and 1 <= line <= question.lines]
        has_token = fields["token"] == question.token
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not has_token or (decision is Decision.HACK and not lines):
        return None
    return Opinion(decision, technique[:_TECHNIQUE_LENGTH], reason[:_REASON_LENGTH], by)


class EndpointChecker:
    """A model behind an OpenAI-compatible endpoint; the key comes from OPENAI_API_KEY. The caller limits the time."""

    def __init__(self, config: GuardConfig) -> None:
        self._model, self._url = config.checker_model, config.checker
        key = os.environ.get("OPENAI_API_KEY") or "none"  # a private server may need no key
        self._client = AsyncOpenAI(base_url=config.checker, api_key=key, timeout=config.checker_timeout, max_retries=0)

    async def __call__(self, question: Question) -> Opinion | None:
        """The model's opinion, or None, with a log line that gives the reason."""
        form = {"type": "json_schema", "json_schema": {"name": "opinion", "strict": True, "schema": question.schema}}
        try:
            try:
                limits = {"temperature": 0.0, "max_tokens": _ENDPOINT_TOKENS}
                answer = await self._ask(question, {"response_format": form, **limits})
            except BadRequestError:  # the server has no structured outputs, or the model takes no such limits
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
    """The answer of an engine of the run, with the interface of a future; `PolicyChecker` fills it in."""

    question: Question
    opinion: Opinion | None = None
    has_ended: bool = False

    def done(self) -> bool:
        """Whether the answer is there, or was lost."""
        return self.has_ended

    def result(self) -> Opinion | None:
        """The opinion; None if the answer was lost or not in the right form."""
        return self.opinion


class PolicyChecker:
    """Asks the run's own engines, whose sampling is bound to the answer's form.

    The pipeline polls their pool, and hands every answer to `take`.
    """

    def __init__(
        self, submit: Callable[[GenerationRequest], None], encode: Callable[[str], Sequence[int]], max_length: int
    ) -> None:
        """`submit` sends a request to the engines. `encode` makes a prompt's token ids. Prompt and answer together have
        at most `max_length` tokens."""
        self._submit, self._encode, self._room = submit, encode, max_length - _ANSWER_TOKENS
        self._waiting: dict[str, Answer] = {}

    def __call__(self, question: Question) -> Answer:
        ids = tuple(self._encode(question.text))
        if len(ids) > self._room:
            _log.warning("guard.checker: a question of %d tokens does not fit; nearest known hacks decide", len(ids))
            return Answer(question, has_ended=True)
        key = f"check-{question.token}"
        self._waiting[key] = Answer(question)
        form = json.dumps(question.schema)
        self._submit(GenerationRequest(key, ids, 1, _ANSWER_TOKENS, temperature=0.0, schema=form))
        return self._waiting[key]

    def take(self, key: str, outcome: Sequence[Completion] | None) -> bool:
        """Takes the outcome of a request, None if it failed; returns whether the request was a question."""
        answer = self._waiting.pop(key, None)
        if answer is None:
            return False
        if outcome:
            answer.opinion = opinion_of(outcome[0].text, answer.question, "the policy as its own reward checker")
        answer.has_ended = True
        return True


class Background:
    """Asks an endpoint in a thread of its own, a few questions at once. Each may take `seconds`, with waiting."""

    def __init__(self, checker: Callable[[Question], Awaitable[Opinion | None]], seconds: float) -> None:
        self._checker, self._seconds = checker, seconds
        self._room = asyncio.Semaphore(_ASKED_AT_ONCE)
        self._silences, self._paused_until = 0, 0.0
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="checker", daemon=True).start()

    def __call__(self, question: Question) -> Future[Opinion | None]:
        return asyncio.run_coroutine_threadsafe(self._ask(question), self._loop)

    async def _ask(self, question: Question) -> Opinion | None:
        if time.monotonic() < self._paused_until:
            return None
        try:
            async with asyncio.timeout(self._seconds), self._room:
                opinion = await self._checker(question)
        except TimeoutError:
            _log.warning("guard.checker: no answer within %.0f s; the nearest known hacks decide", self._seconds)
            opinion = None
        self._silences = 0 if opinion else self._silences + 1
        if self._silences >= _MOST_SILENCES:
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            _log.warning("guard.checker: no question is asked for %.0f s", _PAUSE_SECONDS)
        return opinion

    def take(self, key: str, outcome: Sequence[Completion] | None) -> bool:
        """False: an endpoint is asked, not an engine."""
        return False

    def close(self) -> None:
        """Ends the thread; questions without an answer are dropped."""
        self._loop.call_soon_threadsafe(self._loop.stop)
