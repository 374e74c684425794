"""Calls in threads of their own, which never keep the process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


def in_background(name: str, call: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """The result of a call, later. Unlike those of a ThreadPoolExecutor, its thread is not waited for at the end of the
    process."""
    called: Future[Result] = Future()

    def run() -> None:
        try:
            called.set_result(call(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it
            called.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return called
