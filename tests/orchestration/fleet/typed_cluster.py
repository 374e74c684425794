"""Pools of several architectures on a Ray cluster whose nodes pretend to have GPUs: `python typed_cluster.py`, in a
process of its own.

Prints one line of JSON with what came back. Takes its temporary folder from RAY_TMPDIR, which must be short.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from actors.capacity_holder import TYPE_LABEL
from actors.evaluation import EvaluationRequest
from actors.pool import ActorPool
from configs.archs import evaluator_on
from configs.load import ConfigError
from configs.schema import (
    ArchConfig,
    EvaluationConfig,
    EvaluatorConfig,
    GuardConfig,
    PlacementConfig,
    RolloutConfig,
    RunConfig,
)
from evaluators.guard.cases import HackCases
from evaluators.records import Candidate
from evaluators.tasks import find_task
from evaluators.tasks.loader import load_variants
from orchestration.fleet.arch_pools import ArchPools, PoolSettings, confirms_jumps, make_arch_pools
from orchestration.fleet.capacity import Capacity
from orchestration.fleet.placement import ENGINE, LEARNER, Placement
from orchestration.fleet.ray_cluster import started
from orchestration.step.elsewhere import Elsewhere
from orchestration.step.gathering import Gathering
from orchestration.step.judging import Judging
from orchestration.step.pipeline import Pipeline
from orchestration.step.review import Reviewer
from tests.orchestration.pretended import pretend
from tests.orchestration.step.scripted import SOFTMAX, Engine, asked, fenced, reviewer

SECONDS = 120.0
AGAIN = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range(60):
            x = torch.relu(x)
        return x
def get_inputs():
    return [torch.rand(65536) - 0.5]
def get_init_inputs():
    return []
"""
ONCE = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
NODES = {"A100": 2, "L40S": 1, "H100": 2}
"""GPUs of the one node of each type."""


def add_node(cluster: Cluster, kind: str, gpus: int) -> Any:
    return started(cluster.add_node, num_cpus=4, num_gpus=gpus, labels={TYPE_LABEL: kind}, object_store_memory=80 << 20)


def wait_for(what: Callable[[], Any], *pools: ActorPool) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := what()):
        if time.monotonic() > deadline:
            raise TimeoutError([pool.describe() for pool in pools])
        for pool in pools:
            pool.poll(0.1)
        time.sleep(0.1)
    return found


def types_of(pool: ActorPool) -> list[str]:
    """The types of the nodes of a pool's actors, and of those that have none ``."""
    labels = {node["NodeID"]: node["Labels"].get(TYPE_LABEL, "") for node in ray.nodes()}
    wait_for(lambda: all(pool.members.whereabouts(actor)[0] for actor, _ in pool.members.items()), pool)
    return sorted(labels[pool.members.whereabouts(actor)[0]] for actor, _ in pool.members.items())


def config_of(**archs: ArchConfig) -> RunConfig:
    return RunConfig(name="typed", evaluation=EvaluationConfig(archs))


def settings_of(config: RunConfig, store: str) -> PoolSettings:
    """Without the guard: what a busy machine makes evaluators doubt is not what is looked at here."""
    return PoolSettings(Placement(config), store, False, 1, SECONDS, SECONDS)


def verdicts_of(pools: ArchPools, sources: dict[str, str]) -> list[tuple[str, str, str]]:
    """Name, architecture and outcome of each program."""
    task = find_task("level1/softmax", "cpu")
    names = {}
    for name, source in sources.items():
        candidate = Candidate.propose(task.id, source, "test")
        names[candidate.digest] = name
        pools.evaluators.submit(EvaluationRequest(task, candidate, "fast"), "evaluate")
    verdicts: list[Any] = []
    while pools.evaluators.pending:
        verdicts += [verdict for _, verdict in pools.evaluators.poll()]
    return sorted((names[verdict.candidate], verdict.arch, str(verdict.outcome)) for verdict in verdicts)


def judge_everywhere(store: str) -> dict[str, Any]:
    """Where evaluators land, and what they say of a right and of a wrong program."""
    config = config_of(A100=ArchConfig(workers=2), L40S=ArchConfig())
    settings = settings_of(config, store)
    settings.placement.reserve()
    sources = {each.name: each.source for each in load_variants("level1/softmax")}
    programs = {name: sources[name] for name in ("log_softmax", "wrong_axis")}
    found: dict[str, Any] = {"types": {}, "verdicts": {}, "confirmed": {}}
    pools = {arch: make_arch_pools(evaluator_on(config, arch), settings, further=arch) for arch in ("A100", "L40S")}
    for arch, of_arch in pools.items():
        of_arch.evaluators.wait_ready(SECONDS)
        found["types"][arch] = types_of(of_arch.evaluators)
        found["verdicts"][arch] = verdicts_of(of_arch, programs)
        found["confirmed"][arch] = confirm(evaluator_on(config, arch), of_arch, store)
    found["step"] = step(config, settings, pools, programs)
    for of_arch in pools.values():
        of_arch.builders.stop()
        of_arch.evaluators.stop()
    return found


def confirm(config: EvaluatorConfig, pools: ArchPools, store: str) -> dict[str, Any]:
    """What a run of these pools says of a program that jumps, as any does that is faster than the reference."""
    task = replace(SOFTMAX, id="test/again", source=AGAIN, sizes={})
    reviewer = Reviewer(GuardConfig(jump=1.0), HackCases(Path(store) / f"hacks-{config.arch}.parquet"), {})
    judging = Judging(
        [task], pools.builders, pools.evaluators, reviewer, builders_look=False,
        confirms_jumps=confirms_jumps(config),
    )  # fmt: skip
    gathering = Gathering((), samples=0, temperature=0.0, preset="fast")
    candidate = Candidate.propose(task.id, ONCE, "test")
    judging.propose(candidate, gathering)
    while not gathering.result.verdicts:
        judging.advance()
        time.sleep(0.05)
    verdict = gathering.result.verdicts[candidate.digest]
    return {**verdict.evaluator, "outcome": verdict.outcome, "findings": [one.message for one in verdict.guard]}


def step(
    config: RunConfig, settings: PoolSettings, further: dict[str, ArchPools], programs: dict[str, str]
) -> dict[str, Any]:
    """Where the programs of a step are judged whose rewards are over `cpu` and A100: their names, by architecture."""
    first = make_arch_pools(config.evaluator, settings)
    script = {"group": [fenced(source) for source in programs.values()]}
    engines = ActorPool("rollout", lambda _: Engine.remote(script), 1, timeout=SECONDS)
    tasks, folder = [SOFTMAX], Path(settings.store)

    def judging_on(arch: str, *, is_sampled: bool) -> Judging:
        pools = further[arch].builders, further[arch].evaluators
        return Judging(tasks, *pools, reviewer(folder), builders_look=False, arch=arch, is_sampled=is_sampled)

    elsewhere = Elsewhere(
        {"A100": judging_on("A100", is_sampled=False)}, {"L40S": (judging_on("L40S", is_sampled=True), 1.0)}
    )
    pools = engines, first.builders, first.evaluators
    pipeline = Pipeline(tasks, *pools, config.rollout, reviewer(folder), elsewhere=elsewhere)
    verdicts = pipeline.run(asked("group", samples=len(programs))).verdicts
    names = {Candidate.propose(SOFTMAX.id, source, "").digest: name for name, source in programs.items()}
    for pool in pools:
        pool.stop()
    return {
        arch: sorted((names[digest], verdict.arch, str(verdict.outcome)) for digest, verdict in of_arch.items())
        for arch, of_arch in {"cpu": verdicts, **verdicts.elsewhere}.items()
    }


def outgrow(store: str, cluster: Cluster) -> dict[str, Any]:
    """A pool with one evaluator more than there are GPUs, before and after a node comes."""
    config = config_of(A100=ArchConfig(workers=3))
    pools = make_arch_pools(evaluator_on(config, "A100"), settings_of(config, store), further="A100")
    evaluators = pools.evaluators
    wait_for(lambda: evaluators.members.ready == 2, evaluators)
    message = wait_for(lambda: evaluators.describe() if "waiting for" in evaluators.describe() else "", evaluators)
    (late,) = [actor for actor, member in evaluators.members.items() if not member.is_ready]
    evaluators.members._miss(late, evaluators.members[late], evaluators.members[late].ping, time.monotonic())
    restarts = evaluators.members.restarts
    add_node(cluster, "A100", 1)
    evaluators.wait_ready(SECONDS)
    found = {"message": message, "ready": evaluators.members.ready, "restarts": restarts}
    evaluators.stop()
    pools.builders.stop()
    return found


def refuse(store: str) -> dict[str, str]:
    """What ends a run that asks for what this cluster has not, and a pool that is given another GPU than its own."""
    found = {}
    for name, config in {
        "absent": config_of(T4=ArchConfig()),
        "absent learner": RunConfig(name="typed", placement=PlacementConfig(learner="B200")),
    }.items():
        config.evaluator.arch = "H100" if name == "absent learner" else "cpu"
        try:
            Placement(config).reserve(grows=True)
        except ConfigError as error:
            found[name] = str(error)
    config = config_of(A100=ArchConfig(), L40S=ArchConfig())
    settings = settings_of(config, store)
    wrong = ActorPool(
        "evaluator A100",
        lambda index: start_on("L40S", settings, config),
        1,
        start_timeout=SECONDS,
        max_failed_starts=1,
    )
    found["wrong GPU"] = str(wait_for(lambda: wrong.members.is_exhausted and wrong.members.exhaustion, wrong))
    return found


def start_on(kind: str, settings: PoolSettings, config: RunConfig) -> Any:
    """An evaluator for A100 on a GPU of another type."""
    from orchestration.fleet import arch_pools

    options = settings.placement.options("evaluator", 0, kind)
    return arch_pools.EvaluatorActor.options(**options).remote(evaluator_on(config, "A100"), settings.store)


@ray.remote(num_cpus=0)
class Somebody:
    def kind(self) -> str:
        return str(ray.get_runtime_context().get_node_labels().get(TYPE_LABEL, ""))


def place(share: str) -> dict[str, list[str]]:
    """The types of the nodes of engines and learner that ask for H100."""
    config = RunConfig(
        name="typed",
        rollout=RolloutConfig(start_timeout=30.0),
        placement=PlacementConfig(share=share, learner="H100", engines="H100"),
    )
    config.evaluator.arch = "L40S"
    placement = Placement(config)
    placement.reserve(grows=True)
    actors = {
        role: Somebody.options(**placement.options(role, 0)).remote()  # type: ignore[attr-defined]
        for role in (ENGINE, LEARNER, "evaluator")
    }
    found = {role: ray.get(actor.kind.remote(), timeout=60) for role, actor in actors.items()}
    for actor in actors.values():
        ray.kill(actor)
    placement.release()
    return found


def main() -> None:
    head = {"num_cpus": 8, "include_dashboard": False, "object_store_memory": 80 << 20}
    cluster = started(Cluster, initialize_head=True, head_node_args=head)
    for kind, gpus in NODES.items():
        add_node(cluster, kind, gpus)
    environment = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"], "RAY_worker_niceness": "0"}}
    ray.init(address=cluster.address, log_to_driver=False, runtime_env=environment)
    pretend()
    with tempfile.TemporaryDirectory(prefix="ws-store-") as store:
        os.chmod(store, 0o755)
        found: dict[str, Any] = {"placed": {share: place(share) for share in ("none", "training")}}
        found |= {"refused": refuse(store), "judged": judge_everywhere(store), "outgrown": outgrow(store, cluster)}
        found["capacity"] = dict(wait_for(lambda: Capacity.look().total))
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
