"""What a pool asks of the actors that it manages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Managed:
    """What an actor of a pool inherits: `ping` and `apply`, by which RLlib's actor managers reach it.

    RLlib's own class would take each actor's start another 1.5 s of a core, since it imports all of RLlib.
    """

    def ping(self) -> str:
        """Answers once the actor is up."""
        return "pong"

    def apply(self, func: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Calls `func(self, ...)`."""
        return func(self, *arguments, **keywords)
