"""The calls that a pool sends to its actors: a method by name, whose exceptions come back as values.

RLlib takes an actor out of service whenever a call raises, but an actor is not broken because a program raised. Every
actor's process imports this module, so it must not import RLlib, which takes seconds.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from typing import Any

import ray


@dataclass(frozen=True)
class Raised:
    """The exception that a method raised instead of returning."""

    error: Exception


@dataclass(frozen=True)
class Call:
    """A call by name for an actor's `apply`. `arguments`: the method's first ones, which others may follow. What Ray
    is given as one argument it packs at once; but it resolves ObjectRefs only among arguments of the call itself."""

    method: str
    arguments: tuple[Any, ...] = ()

    def __call__(self, actor: Any, *further: Any) -> Any:
        try:
            result = getattr(actor, self.method)(*self.arguments, *further)
        except Exception as error:  # noqa: BLE001 - handed to the caller as a value
            return Raised(error)
        return self._await(result) if inspect.isawaitable(result) else result

    async def _await(self, result: Any) -> Any:
        try:
            return await result
        except Exception as error:  # noqa: BLE001 - handed to the caller as a value
            return Raised(error)


@dataclass(frozen=True)
class Together:
    """Calls for an actor's `apply` that it makes one after the other, each of a method that is not asynchronous. The
    answer is a list of theirs."""

    calls: tuple[Call, ...]

    def __call__(self, actor: Any, *further: Any) -> list[Any]:
        return [call(actor, *further) for call in self.calls]


def whereabouts(actor: Any) -> tuple[str, int]:
    """The id of an actor's node, and of its process there. Called within the actor."""
    return str(ray.get_runtime_context().get_node_id()), os.getpid()
