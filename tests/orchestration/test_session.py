"""What a step brought is stored beside learning, and is there, or its failure known, before the step is committed."""

from __future__ import annotations

import threading

import pytest

from orchestration.gathering import StepResult
from orchestration.session import Session


def test_storing_goes_on_beside_the_block_and_has_ended_behind_it() -> None:
    session = Session.__new__(Session)
    begun, learnt, stored = threading.Event(), threading.Event(), threading.Event()

    def store(key: str, step: int, result: StepResult) -> None:
        begun.set()
        assert learnt.wait(10), "both wait for each other unless they run side by side"
        stored.set()

    session.store = store  # type: ignore[method-assign]
    with session.storing("1-sft", 0, StepResult()):
        assert begun.wait(10)
        learnt.set()
    assert stored.is_set()


def test_what_cannot_be_stored_ends_the_step() -> None:
    session = Session.__new__(Session)

    def store(key: str, step: int, result: StepResult) -> None:
        raise OSError("no space left on device")

    session.store = store  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"), session.storing("1-sft", 0, StepResult()):
        pass
