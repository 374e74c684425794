"""Calls that change or probe an engine reach it, however many requests wait at its gate.

Pool, gate and calls are real; there is no vLLM behind them, so that a thousand requests take no time.
"""

import asyncio
from typing import Any

import pytest
import ray

from actors.engine_calls import CONCURRENCY_GROUPS, CONTROL, EngineCalls, requests_at_once
from actors.engine_gate import EngineGate, within
from actors.pool import ActorPool
from configs.schema import RolloutConfig


def engine_class() -> Any:
    """A local class, so that Ray sends it by value."""

    @ray.remote(num_cpus=0, concurrency_groups=CONCURRENCY_GROUPS)
    class Engine(EngineCalls):
        """Answers a request with the version of its weights, which come in two parts."""

        def __init__(self) -> None:
            super().__init__()
            self._gate = EngineGate()
            self._version = 0

        async def generate(self, request: int) -> int:
            async with self._gate.turn():
                return self._version

        @ray.method(concurrency_group=CONTROL)
        async def update_weights(self, part: int) -> int:
            return await self.in_engine_loop(self._update(part))

        async def _update(self, part: int) -> int:
            if part == 0:
                await self._gate.shut(10.0, "weights")
            else:
                self._version += 1
                self._gate.open()
            return part

    return Engine


@pytest.mark.slow
def test_a_push_and_a_ping_go_on_while_requests_take_every_place_of_an_engine(local_ray: None) -> None:
    rollout = RolloutConfig(max_concurrent=1024)
    at_once = requests_at_once(rollout)
    assert at_once > 1000, "as many as Ray runs at once, unless it is told"
    engines = engine_class().options(max_concurrency=at_once)
    pool = ActorPool(
        "rollout", lambda _: engines.remote(), 1, max_in_flight=at_once, timeout=60.0, control_group=CONTROL
    )
    try:
        pool.wait_ready(60)
        assert pool.broadcast("update_weights", 0, timeout=20.0) == [0]
        requests = range(at_once + 100)
        for request in requests:
            pool.submit(request, "generate")
        assert pool.queued == 100
        (engine,) = pool.members.healthy()
        assert ray.get(engine.ping.remote(), timeout=20) == "pong"
        assert pool.broadcast("update_weights", 1, timeout=20.0) == [1]
        answers = {}
        while pool.pending:
            answers.update(pool.poll(5.0))
        assert answers == dict.fromkeys(requests, 1)
        assert pool.members.restarts == 0
    finally:
        pool.stop()


def test_a_request_that_waits_too_long_says_for_what() -> None:
    async def wait() -> None:
        gate = EngineGate()
        await gate.shut(1.0, "weights of policy version 7")
        async with within(0.01, "request a", gate), gate.turn():
            raise AssertionError("the gate is shut")

    expected = r"request a took longer than 0\.01 s: the engine's gate is shut for weights of policy version 7"
    with pytest.raises(TimeoutError, match=expected):
        asyncio.run(wait())
