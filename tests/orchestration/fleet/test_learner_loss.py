"""A lost learner is the driver's affair: engines that start meanwhile wait for the weights of the next one.

Roles, pool, push and learner group are real, and so are their Ray actors. What runs in the actors is a stand-in: no
DeepSpeed, no vLLM.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray

from actors.engine_calls import CONCURRENCY_GROUPS, CONTROL, EngineCalls
from actors.generation import GenerationRequest
from actors.learner import LearnerLost
from actors.pool_records import PoolFailure
from configs.schema import EvaluatorConfig, LearnerConfig, RolloutConfig, RunConfig
from configs.waits import STARTS
from orchestration import driver
from orchestration.fleet.roles import Roles
from orchestration.fleet.weight_push import WeightPush
from orchestration.run.directory import RunDirectory
from orchestration.session import Session


def engine_class() -> Any:
    """A local class, so that Ray sends it by value."""

    @ray.remote(num_cpus=0, concurrency_groups=CONCURRENCY_GROUPS)
    class Engine(EngineCalls):
        """Answers with the value of its weights, -1 before any push."""

        def __init__(self, *_: Any) -> None:
            super().__init__()
            self._value = -1

        async def generate(self, request: Any) -> int:
            return self._value

        @ray.method(concurrency_group=CONTROL)
        async def update_weights(self, data: np.ndarray, manifest: Any) -> None:
            self._value = int(data[0])

    return Engine


def rank_class(deaths: Path | None = None) -> Any:
    """Likewise. As often as the file `deaths` has letters, rank 0 dies as it starts."""

    @ray.remote(num_cpus=0)
    class Rank:
        """Hands over weights of one value, in one part."""

        def address(self) -> tuple[str, int]:
            return "", 0

        def node(self) -> str:
            return "node"

        def start(self, _config: Any, _policy: str, rank: int, *_: Any, **__: Any) -> None:
            if rank == 0 and deaths is not None and (left := deaths.read_text()):
                deaths.write_text(left[1:])
                os._exit(1)

        def set_version(self, version: int) -> None:
            self._version = version

        def begin_push(self, *_: Any) -> None: ...

        def next_part(self) -> SimpleNamespace:
            manifest = SimpleNamespace(part=0, last=True, total_bytes=8)
            return SimpleNamespace(manifest=manifest, data=np.array([self._version]), handles={})

    return Rank


class Waiter:
    """Goes on with the engines' pool while something else is waited for, as the pipeline does."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    def meanwhile(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    def finish_responses(self) -> None: ...

    def pump_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self._roles.engines.poll(0.1)

    def forget(self) -> None:
        self._roles.engines.withdraw(lambda _: True)


@pytest.fixture
def roles(local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Roles]:
    """Roles with one engine and two learner ranks, and no others."""
    monkeypatch.setattr("orchestration.fleet.roles.RolloutEngine", engine_class())
    monkeypatch.setattr("actors.learner.LearnerRank", rank_class())
    config = RunConfig(
        name="loss",
        evaluator=EvaluatorConfig(arch="cpu"),
        learner=LearnerConfig(ranks=2, timeout=20.0),
        rollout=RolloutConfig(engines=1, timeout=20.0, start_timeout=60.0),
    )
    made = Roles(config, "policy", RunDirectory(tmp_path, "loss"))
    made.engines = made._make_engines(sleeps=False)
    made.learner = made._make_learner()
    made._push = WeightPush(config, made.engines)
    made.turns = SimpleNamespace(give_to=lambda role: None)  # type: ignore[assignment]
    made.engines.wait_ready(60)
    yield made
    made.engines.stop()
    made.learner.stop()


class Run:
    """A session of these roles, whose learner stands at version 3."""

    recover = Session.recover

    def __init__(self, roles: Roles) -> None:
        self.roles, self.pipeline = roles, Waiter(roles)
        self.commits = SimpleNamespace(state=SimpleNamespace(finished=False))
        self.early_end = contextlib.nullcontext()
        self.drain = SimpleNamespace(requested=False)
        self.ready: list[int] = []  # engines at each restore

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None: ...

    def restore(self) -> None:
        self.roles.engines.poll(0.0)
        self.ready.append(len(self.roles.engines.members.healthy()))
        self.roles.push_weights(3, self.pipeline)


def answer(roles: Roles) -> int:
    """An engine's answer to a request. Raises as the pipeline does."""
    roles.engines.submit(GenerationRequest("request", (1,), 1, 1, 0.0), "generate")
    deadline = time.monotonic() + 60
    while not (results := roles.engines.poll(1.0)):
        assert time.monotonic() < deadline, "nobody was told that the learner is lost"
    ((_, result),) = results
    if isinstance(result, PoolFailure):
        raise result.error
    return int(result)


def lose(roles: Roles, rank: int) -> None:
    """A node takes a rank and the engine: both are dead when this returns. `ray.kill` alone does not wait for it."""
    lost = {roles.learner._ranks[rank]: "node", roles.engines.members.healthy()[0]: "ping"}
    for actor in lost:
        ray.kill(actor)
    for actor, method in lost.items():
        with contextlib.suppress(ray.exceptions.RayActorError):
            while True:
                ray.get(getattr(actor, method).remote(), timeout=30)


@pytest.mark.slow
def test_a_node_that_takes_a_rank_and_an_engine_is_a_loss_of_the_learner_and_the_driver_makes_another(
    roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, answers = Run(roles), []

    def train(_: Run) -> None:
        if len(session.ready) == 1:
            assert answer(roles) == 3
            lose(roles, rank=1)
        answers.append(answer(roles))

    for name, stand_in in (("Session", lambda *_: session), ("train", train), ("report", lambda _: None)):
        monkeypatch.setattr(driver, name, stand_in)
    driver.run(roles._config, SimpleNamespace())  # type: ignore[arg-type]
    assert answers == [3]
    assert session.ready == [1, 0], "the new engine waits for the push"
    assert roles.engines.members.restarts == 1, "the engine that started meanwhile was kept"


@pytest.mark.slow
def test_a_rank_that_is_lost_before_the_first_step_is_a_loss_like_any_other(
    roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, answers = Run(roles), []
    ray.kill(roles.learner._ranks[0])
    for name, stand_in in (
        ("Session", lambda *_: session),
        ("train", lambda _: answers.append(answer(roles))),
        ("report", lambda _: None),
    ):
        monkeypatch.setattr(driver, name, stand_in)
    driver.run(roles._config, SimpleNamespace())  # type: ignore[arg-type]
    assert answers == [3]
    assert session.ready == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [2, 3])
def test_a_rank_that_dies_as_it_starts_is_started_again_a_few_times(
    roles: Roles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deaths: int
) -> None:
    left = tmp_path / "deaths"
    left.write_text("x" * deaths)
    monkeypatch.setattr("actors.learner.LearnerRank", rank_class(left))
    if deaths < STARTS:
        roles.restart_learner()
        assert left.read_text() == ""
    else:
        with pytest.raises(LearnerLost, match="learner rank 0 died"):
            roles.restart_learner()


@pytest.mark.slow
def test_every_role_says_what_it_waits_for_and_a_call_of_any_is_a_move(roles: Roles) -> None:
    roles.turns.takes_turns = False
    assert roles.describe() == [
        "rollout: 0 item(s), of which 0 wait; all actors are ready",
        "learner: no call is under way",
    ]
    seen = [roles.moves(), roles.moves()]
    assert seen[0] == seen[1]
    Run(roles).restore()
    seen.append(roles.moves())
    answer(roles)
    seen.append(roles.moves())
    roles.restart_learner()
    seen.append(roles.moves())
    assert len(set(seen)) == 4, "the learner, an engine, another learner"


@pytest.mark.slow
def test_a_lost_learner_is_reported_by_its_name(roles: Roles) -> None:
    Run(roles).restore()
    lose(roles, rank=0)
    with pytest.raises(LearnerLost, match="learner rank 0 died"):
        answer(roles)
