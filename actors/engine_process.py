"""The start and the end of a vLLM engine within its actor.

A start that fails is one clear line. An engine that failed takes its actor with it: the pool then starts another.
"""

from __future__ import annotations

import logging
import os
from typing import Any, NoReturn

import ray
from safetensors import SafetensorError

from actors.engine_options import on_cores, tensor_names

_log = logging.getLogger(__name__)


class EngineStartError(RuntimeError):
    """A rollout engine did not come up. One line: the model and the reason."""


def start_engine(model_path: str, arguments: dict[str, Any], cores: str) -> Any:
    """vLLM's AsyncLLM on these cores (`rollout.cpu_cores`). Raises EngineStartError."""
    try:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        with on_cores(cores):
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except Exception as error:
        reason = " ".join(str(error).split())[:500] or type(error).__name__
        raise EngineStartError(
            f"rollout engine could not start with {model_path}: {reason} (the engine's own log has the details)"
        ) from error


def check_model(model_path: str) -> frozenset[str]:
    """The names of the checkpoint's tensors (see `tensor_names`). Raises EngineStartError.

    Called before vLLM starts, whose own message on a folder without a model is in another process's log.
    """
    try:
        return tensor_names(model_path)
    except (OSError, ValueError, SafetensorError) as error:
        raise EngineStartError(f"rollout engine could not start with {model_path}: {error}") from error


def end_actor(engine: Any, reason: str) -> NoReturn:
    """Ends the engine and, from within one of its methods, the actor. Its pool starts another."""
    _log.error("rollout engine ends: %s", reason)
    engine.shutdown()
    ray.actor.exit_actor()
    raise AssertionError("exit_actor returned")  # it raises, but is not typed so


def end_process(engine: Any, reason: str) -> NoReturn:
    """Ends the engine and the actor from outside of its methods, where Ray's `exit_actor` would wait for calls under
    way."""
    _log.error("rollout engine ends: %s", reason)
    engine.shutdown()
    os._exit(1)
