"""How calls reach a rollout engine: requests in one lane, and what changes or probes the engine in another.

Ray runs a bounded number of an actor's calls at once, and a request that waits at the engine's gate is one of them.
Were the calls that open the gate among the others, requests could take all places, and the gate would stay shut.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import ray

from configs.schema import RolloutConfig

CONTROL = "control"
"""Ray's concurrency group of the calls that change or probe an engine."""
CONCURRENCY_GROUPS = {CONTROL: 16}

Result = TypeVar("Result")


def requests_at_once(rollout: RolloutConfig) -> int:
    """The requests that an engine is given at once: a few more than it decodes, so that it need not wait for the next.

    It must be started with as many places for them (Ray's `max_concurrency`, which is 1,000 unless it is given).
    """
    return rollout.max_concurrent + -(-rollout.max_concurrent // 8)


class EngineCalls:
    """What the actor of an engine inherits. Ray must start it with `CONCURRENCY_GROUPS`.

    Ray runs each concurrency group in an event loop of its own. All parts of an engine belong to the loop of the
    requests, so calls of the group `CONTROL` have to go there (`in_engine_loop`).
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()  # the requests': constructors run in it

    @ray.method(concurrency_group=CONTROL)
    async def ping(self) -> str:
        """Answers once the actor is up, and as long as its requests go on."""
        return await self.in_engine_loop(_pong())

    async def apply(self, func: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Calls `func(self, ...)`, and awaits an awaitable result (RLlib's actor managers)."""
        result = func(self, *arguments, **keywords)
        return await result if inspect.isawaitable(result) else result

    async def in_engine_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine that runs where requests run. It ends if the call is cancelled."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


async def _pong() -> str:
    return "pong"
