"""How an actor is started with options that are known only at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.actor import ActorHandle


def start_actor(actor_class: Any, options: Mapping[str, Any], *arguments: Any) -> ActorHandle[Any]:
    """Starts an actor with options for Ray (resources, placement, environment).

    `actor_class` is untyped because mypy does not see that `ray.remote` replaces the class that it decorates.
    """
    handle: ActorHandle[Any] = actor_class.options(**options).remote(*arguments)
    return handle
