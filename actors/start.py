"""How an actor is started with options that are known only at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.actor import ActorHandle


def start_actor(actor_class: Any, options: Mapping[str, Any], *arguments: Any) -> ActorHandle[Any]:
    """Starts an actor with options for Ray (resources, placement, environment).

    Ray records no events of its calls, which Ray's dashboard would list one by one, unless an option says so: a run
    logs and counts what its roles do itself.

    `actor_class` is untyped because mypy does not see that `ray.remote` replaces the class that it decorates.
    """
    handle: ActorHandle[Any] = actor_class.options(**{"enable_task_events": False, **options}).remote(*arguments)
    return handle
