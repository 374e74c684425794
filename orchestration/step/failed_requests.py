"""Failed requests to an endpoint: what they mean, what is to be done about them, and when one is sent again."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum, auto

from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

_MESSAGE_LENGTH = 200
_TRANSIENT = {408, 409, 425, 429}
_LIMITS = {429, 503, 529}
"""Statuses by which an endpoint asks for fewer requests. 529: overloaded (Anthropic's)."""
_KEY = "set {} to a key that this endpoint accepts"
_CREDIT = "the key has no credit left: add some, or set {} to another one"
_REMEDIES = {401: _KEY, 402: _CREDIT, 403: _KEY}
"""Of failures that every other request would have, too. In braces: the environment variable that has the key."""


@dataclass(frozen=True)
class EndpointKeys:
    """The keys of the configuration that messages name: those of a teacher, or of `rollout.endpoint`.

    `secret`: the environment variable that has the endpoint's key. `limit`: what lets an answer be longer.
    """

    address: str = "sft.teachers"
    model: str = "sft.teacher_model"
    timeout: str = "sft.endpoint.timeout"
    temperature: float = 1.0
    secret: str = "OPENAI_API_KEY"
    limit: str = "another limit of the endpoint"

    @property
    def remedy(self) -> str:
        """What to do if something else stands at the address."""
        return f"check the address in {self.address}, which usually ends in /v1, and {self.model}"


class Kind(Enum):
    """How far a failure reaches."""

    TRANSIENT = auto()  # the same request may be answered later
    REQUEST = auto()  # this request is never answered
    ENDPOINT = auto()  # no request is ever answered


@dataclass(frozen=True)
class Failure:
    """Why a request was not answered, in one line. `remedy`: what a person can do. `wait`: seconds after which the
    endpoint wants to be asked again. `is_limit`: it was asked too often, and nothing is wrong with the request."""

    message: str
    kind: Kind
    remedy: str = ""
    wait: float | None = None
    is_limit: bool = False


def failure_of(
    error: APIError | TimeoutError | NoCompletion, *, has_answered: bool, keys: EndpointKeys | None = None
) -> Failure:
    """The failure behind an exception. `has_answered`: the endpoint has given a chat completion before; without any,
    something else stands at its address. `keys`: those of a teacher if not given."""
    keys = keys or EndpointKeys()
    if isinstance(error, NoCompletion):
        return Failure("gives no chat completion", Kind.TRANSIENT if has_answered else Kind.ENDPOINT, keys.remedy)
    if isinstance(error, TimeoutError | APITimeoutError):
        return Failure("gives no answer in time", Kind.TRANSIENT, f"see {keys.timeout}")
    if not isinstance(error, APIStatusError):
        what = "cannot be reached" if isinstance(error, APIConnectionError) else "gives no valid answer"
        cause = f"{error} {error.__cause__ or ''}"
        return Failure(f"{what} ({_one_line(cause)})", Kind.TRANSIENT)
    status, message = error.status_code, f"does not answer ({_one_line(str(error))})"
    if status == 429 and error.code == "insufficient_quota":
        return Failure(message, Kind.ENDPOINT, _CREDIT.format(keys.secret))
    if status in _TRANSIENT or status >= 500:
        return Failure(message, Kind.TRANSIENT, wait=retry_after(error.response.headers), is_limit=status in _LIMITS)
    if status == 404:
        return Failure(message, Kind.ENDPOINT, keys.remedy)
    if status in _REMEDIES:
        return Failure(message, Kind.ENDPOINT, _REMEDIES[status].format(keys.secret))
    what = f"such a prompt, and temperature {keys.temperature:g}"
    return Failure(message, Kind.REQUEST, f"see whether {keys.model} takes {what}")


class NoCompletion(Exception):
    """The answer was something else than a chat completion: a web page, or an error with status 200."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds for which a response asks to wait (RFC 9110 section 10.2.3: seconds or a date), None if it does not.
    `retry-after-ms` is OpenAI's."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            seconds = float(text) * unit
        except ValueError:
            try:
                date = parsedate_to_datetime(text)
            except ValueError:
                continue
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time()
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    return None


@dataclass(frozen=True)
class Backoff:
    """Pauses between the attempts of a request, in seconds: exponential, with jitter, so that requests that failed
    together do not come back together."""

    first: float = 1.0
    longest: float = 60.0

    def after(self, attempts: int, wait: float | None) -> float:
        """The pause after so many failed attempts, no less than the `wait` that the endpoint asked for."""
        if wait is not None:
            return wait + random.uniform(0.0, self.first)
        return min(self.longest, self.first * 2.0 ** min(attempts - 1, 32)) * random.uniform(0.5, 1.0)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_LENGTH else f"{line[:_MESSAGE_LENGTH]}..."
