"""RLlib's actor manager as the pools use it: each call has a tag, under which its answer comes.

Calls return the exceptions of methods as values (see `calls`); only Ray's own errors count against an actor here.
RLlib waits for calls by looking at all of them, which takes longer the more there are, so the calls are kept here.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError
from ray.rllib.utils.actor_manager import FaultTolerantActorManager

from actors.calls import Call, Together
from actors.pool_answers import Answers

Tag = int | str
"""The ticket of an item, or the name of another call."""


class Manager(FaultTolerantActorManager):
    """RLlib's manager with calls whose answers are fetched one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: Answers[int] = Answers()
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[Tag, int, ray.ObjectRef[Any]]] = {}  # (tag, actor, call) by the call's number
        self._by_tag: dict[Tag, int] = {}
        self._by_actor: defaultdict[int, set[int]] = defaultdict(set)
        self._unhealthy: set[int] = set()

    def add(self, actor: ActorHandle[Any]) -> int:
        """Takes an actor into service; returns its number."""
        self.add_actors([actor])
        return self._next_id - 1

    def actor(self, actor_id: int) -> ActorHandle[Any]:
        """The handle of an actor."""
        return self._actors[actor_id]

    def unhealthy(self) -> list[int]:
        """The actors that a Ray error has taken out of service."""
        return list(self._unhealthy)

    def set_actor_state(self, actor_id: int, healthy: bool) -> None:
        """Takes an actor into service, or out of it: its calls are forgotten then."""
        super().set_actor_state(actor_id, healthy)
        (self._unhealthy.discard if healthy else self._unhealthy.add)(actor_id)

    def remove_actor(self, actor_id: int) -> ActorHandle[Any]:
        """Forgets an actor and its calls; returns its handle."""
        self._unhealthy.discard(actor_id)
        return super().remove_actor(actor_id)

    def call(self, actor_id: int, tag: Tag, call: Call | Together, *arguments: Any, group: str = "") -> None:
        """Starts a call, whose answer `ready` gives under this tag. Raises RuntimeError if the tag is in use.

        `group`: the concurrency group of the actor that it runs in, empty for the default one.
        """
        if tag in self._by_tag:
            raise RuntimeError(f"there is a call for tag {tag} already; tags must be unique")
        method: Any = self._actors[actor_id].apply
        if group:
            method = method.options(concurrency_group=group)
        under_way, number = method.remote(call, *arguments), next(self._numbers)
        self._calls[number] = (tag, actor_id, under_way)
        self._by_tag[tag] = number
        self._by_actor[actor_id].add(number)
        self.answers.expect(under_way, number)

    def ready(self) -> list[tuple[int, Tag, Any]]:
        """(actor, tag, result or RayError) of every call that was answered since the last time.

        A RayError takes its actor out of service.
        """
        ready = []
        for number, answer in self.answers.take():
            if number not in self._calls:
                continue  # forgotten, or its actor is out of service
            tag, actor, _ = self._drop(number)
            ready.append((actor, tag, answer))
            if isinstance(answer, RayError):
                self.set_actor_state(actor, healthy=False)
        return ready

    def forget(self, tag: Tag) -> None:
        """Cancels a call, and drops its answer if one comes."""
        number = self._by_tag.get(tag)
        if number is not None:
            ray.cancel(self._drop(number)[2])

    def clear(self) -> None:
        """Kills all actors, and forgets them and their calls."""
        super().clear()
        for part in (self._calls, self._by_tag, self._by_actor, self._unhealthy, self.answers):
            part.clear()

    def _drop(self, number: int) -> tuple[Tag, int, ray.ObjectRef[Any]]:
        tag, actor, call = self._calls.pop(number)
        del self._by_tag[tag]
        self._by_actor[actor].discard(number)
        self.answers.drop(call)
        return tag, actor, call

    def _remove_async_state(self, actor_id: int) -> None:
        """Called by RLlib when an actor is taken out of service, or removed."""
        for number in list(self._by_actor.pop(actor_id, ())):
            tag, _, call = self._calls.pop(number)
            del self._by_tag[tag]
            self.answers.drop(call)


def one_line(error: BaseException) -> str:
    """The last line of an error's text: Ray puts the exception of a constructor there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else type(error).__name__
    return f"{type(error).__name__}: {text[:300]}" if isinstance(error, RayError) else text[:300]
