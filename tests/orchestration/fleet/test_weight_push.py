"""The transport of weights follows from the placement, and a broken broadcast is replaced by the object store.

The pool and the learner of the last test are stand-ins: a real broadcast that fails half-way takes GPUs, or a minute.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from actors.weight_transport import BROADCAST, HOST, SHARED, ByBroadcast
from configs.schema import EvaluatorConfig, LearnerConfig, LoraConfig, PlacementConfig, RolloutConfig, RunConfig
from orchestration.fleet.weight_push import WeightPush, serves_adapters, transport_of


def config_of(share: str = "none", arch: str = "H200", ranks: int = 1, **rollout: Any) -> RunConfig:
    return RunConfig(
        name="push",
        evaluator=EvaluatorConfig(arch=arch),
        placement=PlacementConfig(share=share),
        learner=LearnerConfig(ranks=ranks),
        rollout=RolloutConfig(**rollout),
    )


@pytest.mark.parametrize(
    ("config", "way"),
    [
        (config_of(arch="cpu"), HOST),
        (config_of(), BROADCAST),
        (config_of(engines=2, engines_per_gpu=2), HOST),  # NCCL allows one process on a GPU
        (config_of("training"), SHARED),
        (config_of("all", engines=3, engines_per_gpu=3), SHARED),
        (config_of("training", engines=4, ranks=2), HOST),  # two engines are on GPUs without a rank
        (config_of("training", weight_transport="host"), HOST),
    ],
)
def test_the_transport_follows_from_the_placement(config: RunConfig, way: str) -> None:
    assert transport_of(config) == way


def test_only_adapters_are_pushed_if_there_are_some_and_the_config_says_so() -> None:
    for rank, sync, alone in ((0, "merged", False), (8, "merged", False), (8, "adapters", True)):
        config = config_of()
        config.learner.lora = LoraConfig(rank=rank, sync=sync)
        assert serves_adapters(config) is alone


class Pool:
    """Engines that accept and record every part."""

    def __init__(self) -> None:
        self.got: list[tuple[str, int]] = []
        self.held: list[str] = []
        self.members = SimpleNamespace(healthy=lambda: ["engine"], hold_restarts=self.held.append)

    def begin_broadcast(self, method: str, *arguments: Any, timeout: float) -> Any:
        if method == "update_weights":
            data, manifest = arguments
            self.got.append((BROADCAST if isinstance(data, ByBroadcast) else HOST, manifest.part))
        return SimpleNamespace(done=True, results=[None])


class Learner:
    """Has three parts, and fails to broadcast the second."""

    has_trained = True

    def __init__(self) -> None:
        self.sent = 0

    def parts(self, version: int, dtype: str, transport: str, limit_bytes: int) -> Any:
        for part in range(3):
            manifest = SimpleNamespace(part=part, last=part == 2, total_bytes=100)
            yield manifest, ByBroadcast() if transport == BROADCAST else b""

    def send_part(self, timeout: float) -> None:
        self.sent += 1
        if self.sent == 2:
            raise TimeoutError("weight channel: rank 0 waited 1 s for a rollout engine's worker")


def test_after_a_broken_broadcast_all_parts_go_through_the_object_store() -> None:
    pool, learner = Pool(), Learner()
    push = WeightPush(config_of(), pool)  # type: ignore[arg-type]
    push._channel = (learner, ("engine",))  # type: ignore[assignment]
    waits = SimpleNamespace(meanwhile=lambda call, *arguments: call(*arguments), pump_until=lambda done: done())
    assert push.to_all(learner, 7, waits) == 300  # type: ignore[arg-type]
    assert pool.got == [(BROADCAST, 0), (BROADCAST, 1), (HOST, 0), (HOST, 1), (HOST, 2)]
    assert pool.held == ["the others get policy version 7", ""]
    assert (learner.has_trained, push._channel) == (False, None)
