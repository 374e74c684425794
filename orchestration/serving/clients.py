"""Who may ask the service, and how much: a token a client, a bounded number of requests a minute and of places.

Tokens are kept as digests alone. Neither a message nor a log line ever holds one.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from configs.load import ConfigError
from orchestration.serving.records import Refusal

VARIABLE = "WARPSMITH_TOKENS"
LOCAL = "local"
"""The name of whoever asks a service without tokens."""
_SHORTEST = 16  # characters of a token
_TASKS = "tasks"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


@dataclass(frozen=True)
class Limits:
    """What one client, and all together, may ask for. `places`: requests of one client that wait for a verdict.
    `per_minute`: requests of one client, of any kind. `queue`: requests of all that wait for a verdict."""

    places: int = 1024
    per_minute: int = 6000
    queue: int = 20_000


@dataclass
class Client:
    """Somebody who may ask. `sends_tasks`: it may send a task's text, which is trusted code. `places`: how many of its
    requests wait for a verdict."""

    name: str
    sends_tasks: bool = False
    places: int = 0
    _left: float = field(default=-1.0, repr=False)
    _seen: float = field(default=0.0, repr=False)

    def count(self, per_minute: int, now: float) -> None:
        """Counts a request, at `now` seconds of the monotonic clock. Raises Refusal if there are too many: at most as
        many at once as in a minute."""
        if self._left < 0.0:
            self._left = float(per_minute)
        else:
            self._left = min(self._left + (now - self._seen) * per_minute / 60.0, float(per_minute))
        self._seen = now
        if self._left < 1.0:
            wait = int((1.0 - self._left) * 60.0 / per_minute) + 1
            raise Refusal(429, f"more than {per_minute} requests a minute; wait {wait} s", wait)
        self._left -= 1.0


class Clients:
    """The clients of a service, by their tokens. Without tokens there is one, `local`, which needs none."""

    def __init__(
        self,
        tokens: Mapping[str, Client] | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tokens`: clients by the digests of their tokens (`digest`)."""
        self.limits, self._clock = limits or Limits(), clock
        self._by_digest = dict(tokens or {})
        self._by_name = {client.name: client for client in self._by_digest.values()} or {LOCAL: Client(LOCAL)}

    @property
    def needs_token(self) -> bool:
        """Whether a request needs a token."""
        return bool(self._by_digest)

    def named(self, name: str) -> Client:
        """The client with a name; also one that has no token any more, whose requests still wait."""
        return self._by_name.setdefault(name, Client(name))

    def admit(self, authorization: str) -> Client:
        """The client of a request, by its header `Authorization`. Raises Refusal without a right token, or if there
        were too many requests."""
        client = self._find(authorization)
        client.count(self.limits.per_minute, self._clock())
        return client

    def _find(self, authorization: str) -> Client:
        if not self.needs_token:
            return self._by_name[LOCAL]
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token:
            raise Refusal(401, "send the header `Authorization: Bearer TOKEN` with this client's token")
        client = self._by_digest.get(digest(token.strip()))
        if client is None:
            raise Refusal(401, "no client has this token")
        return client


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_tokens(file: Path | None, environment: MutableMapping[str, str]) -> dict[str, Client]:
    """The clients of a file, or of the variable WARPSMITH_TOKENS, which is then removed from the environment, so that
    no other process inherits it. Empty without either.

    A line is `NAME TOKEN`, or `NAME TOKEN tasks` for a client that may send tasks; in the variable, commas separate
    lines, too. Raises ConfigError, which names the line and no token.
    """
    told = environment.pop(VARIABLE, "")
    if file is None:
        return _parse(told.replace(",", "\n"), VARIABLE) if told else {}
    try:
        text, mode = file.read_text(encoding="utf-8"), file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--tokens {file}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if mode & 0o007:
        raise ConfigError(f"--tokens {file}: everybody on this host may read or write it; chmod 600 {file}")
    return _parse(text, f"--tokens {file}")


def _parse(text: str, origin: str) -> dict[str, Client]:
    clients: dict[str, Client] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{origin}, line {number}"
        if len(words) not in (2, 3) or words[2:] not in ([], [_TASKS]):
            raise ConfigError(f"{where}: a line must be NAME TOKEN, or NAME TOKEN {_TASKS}")
        name, token = words[:2]
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{where}: a client's name must be of letters, digits, `.`, `_` and `-`, at most 64")
        if len(token) < _SHORTEST:
            raise ConfigError(f"{where}: the token of {name} must have at least {_SHORTEST} characters")
        if digest(token) in clients or any(client.name == name for client in clients.values()):
            raise ConfigError(f"{where}: {name}, or its token, stands in another line; give each client its own")
        clients[digest(token)] = Client(name, sends_tasks=len(words) == 3)
    if not clients:
        raise ConfigError(f"{origin}: names no client; a line must be NAME TOKEN")
    return clients


def require_tokens(host: str, clients: Clients) -> None:
    """Raises ConfigError if others than this machine's processes could ask a service that needs no token."""
    if not clients.needs_token and not is_loopback(host):
        raise ConfigError(f"--host {host}: without --tokens FILE (or {VARIABLE}) the host must be 127.0.0.1")


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine, for its own processes alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def process_tokens(file: Path | None) -> dict[str, Client]:
    """`read_tokens` with this process's environment."""
    return read_tokens(file, os.environ)
