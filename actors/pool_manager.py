"""RLlib's actor manager as the pools use it: each call has a tag, and a pool waits for the first answer of many.

Calls return the exceptions of methods as values (see `calls`); only Ray's own errors count against an actor here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError
from ray.rllib.utils.actor_manager import FaultTolerantActorManager

from actors.calls import Call


class Manager(FaultTolerantActorManager):
    """RLlib's manager with calls whose answers are fetched one by one."""

    def add(self, actor: ActorHandle[Any]) -> int:
        """Takes an actor into service; returns its number."""
        self.add_actors([actor])
        return self._next_id - 1

    def actor(self, actor_id: int) -> ActorHandle[Any]:
        """The handle of an actor."""
        return self._actors[actor_id]

    def unhealthy(self) -> list[int]:
        """The actors that a Ray error has taken out of service."""
        return [actor for actor in self.actor_ids() if not self.is_actor_healthy(actor)]

    def call(self, actor_id: int, tag: str, call: Call, *arguments: Any, group: str = "") -> None:
        """Starts a call, whose answer `ready` gives under this tag. Raises RuntimeError if the tag is in use.

        `group`: the concurrency group of the actor that it runs in, empty for the default one.
        """
        state = self._remote_actor_states[actor_id]
        if state.get_num_in_flight_requests(tag):
            raise RuntimeError(f"actor {actor_id} has a call for tag {tag} already; tags must be unique")
        method: Any = self._actors[actor_id].apply
        if group:
            method = method.options(concurrency_group=group)
        in_flight: dict[Any, Any] = self._in_flight_req_to_actor_id  # RLlib's own calls name no group
        in_flight[method.remote(func=call, **_named(arguments))] = (tag, actor_id)
        state.increment_requests(tag)

    def ready(self) -> list[tuple[int, str, Any]]:
        """(actor, tag, result or RayError) of every call that was answered since the last time."""
        answers: Iterable[Any] = self.fetch_ready_async_reqs(timeout_seconds=0.0)
        return [(answer.actor_id, answer.tag, answer.get()) for answer in answers]

    def forget(self, tag: str) -> None:
        """Cancels a call, and drops its answer if one comes."""
        in_flight: dict[Any, Any] = self._in_flight_req_to_actor_id  # (tag, actor) by call; RLlib declares it otherwise
        for call, (tag_of_call, actor) in list(in_flight.items()):
            if tag_of_call == tag:
                del in_flight[call]
                self._remote_actor_states[actor].decrement_requests(tag)
                ray.cancel(call)

    def calls(self) -> list[ray.ObjectRef[Any]]:
        """All calls without an answer."""
        return list(self._in_flight_req_to_actor_id)


def _named(arguments: Sequence[Any]) -> dict[str, Any]:
    return {f"argument{index}": argument for index, argument in enumerate(arguments)}


def one_line(error: BaseException) -> str:
    """The last line of an error's text: Ray puts the exception of a constructor there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else type(error).__name__
    return f"{type(error).__name__}: {text[:300]}" if isinstance(error, RayError) else text[:300]
