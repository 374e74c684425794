"""An engine that does not fall asleep or wake up in time ends with its actor, instead of keeping its caller."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from actors import engine_weights
from actors.engine_gate import EngineGate
from actors.engine_weights import EngineWeights


class Ended(Exception):
    """In place of the end of an actor."""


class Engine:
    """vLLM in so far as it sleeps: `seconds` to fall asleep, and as many to wake up."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asleep = seconds, False

    async def sleep(self, level: int) -> None:
        await asyncio.sleep(self.seconds)
        self.asleep = True

    async def wake_up(self) -> None:
        await asyncio.sleep(self.seconds)
        self.asleep = False


@pytest.fixture(autouse=True)
def _actors_end_by_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(engine: Any, reason: str) -> NoReturn:
        raise Ended(reason)

    monkeypatch.setattr(engine_weights, "end_actor", end)


def weights_of(engine: Engine) -> EngineWeights:
    return EngineWeights(engine, EngineGate(), frozenset(), 0, 0.2, 0)


async def sleep_and_wake(engine: Engine, *, seconds_to_wake: float = 0.0) -> None:
    weights = weights_of(engine)
    await weights.sleep()
    assert engine.asleep
    engine.seconds = seconds_to_wake
    await weights.wake_up()
    assert not engine.asleep


def test_an_engine_in_time_sleeps_and_wakes() -> None:
    asyncio.run(sleep_and_wake(Engine(0.0)))


def test_an_engine_that_does_not_fall_asleep_ends() -> None:
    with pytest.raises(Ended, match=r"vLLM did not fall asleep within 0\.2 s"):
        asyncio.run(sleep_and_wake(Engine(60.0)))


def test_an_engine_that_does_not_wake_up_ends() -> None:
    with pytest.raises(Ended, match=r"vLLM did not wake up within 0\.2 s"):
        asyncio.run(sleep_and_wake(Engine(0.0), seconds_to_wake=60.0))
