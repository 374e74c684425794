"""An evaluator that starts processes ahead, and the processes that were forked."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.host.zygote_handle import ZygoteHandle
from tests.evaluators.judge.ahead import opened


@pytest.fixture
def ahead(limits: LimitsConfig) -> Iterator[Evaluator]:
    with opened(limits) as made:
        yield made


@pytest.fixture
def forks(monkeypatch) -> list[tuple[str, int]]:
    """The thread and the process of every fork, in their order."""
    seen, request = [], ZygoteHandle.request

    def noted(self, message, *arguments, **options):
        reply = request(self, message, *arguments, **options)
        if message["op"] == "fork":
            seen.append((threading.current_thread().name, int(reply["pid"])))
        return reply

    monkeypatch.setattr(ZygoteHandle, "request", noted)
    return seen
