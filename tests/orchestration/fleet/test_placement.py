"""Which actor gets which GPU, by a real Ray. It is told of GPUs that this machine need not have, since it only keeps
accounts of them."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

GPUS = 6
SCRIPT = """
import json, sys, time
import ray
from configs.load import ConfigError
from configs.schema import EvaluatorConfig, LearnerConfig, PlacementConfig, RolloutConfig, RunConfig
from orchestration.fleet.placement import BUILDER, ENGINE, EVALUATOR, LEARNER, Placement
from orchestration.fleet.ray_cluster import started

gpus, cases = json.loads(sys.argv[1])
started(ray.init, address="local", num_cpus=16, num_gpus=gpus, include_dashboard=False, object_store_memory=100 << 20)


@ray.remote
class Somebody:
    def gpus(self):
        return ray.get_gpu_ids()


def placed(share, rollout):
    builders = rollout.pop("builders", 3)
    config = RunConfig(
        name="placed",
        evaluator=EvaluatorConfig(arch="H200", workers=2, builders=builders),
        rollout=RolloutConfig(start_timeout=20.0, **rollout),
        learner=LearnerConfig(ranks=2),
        placement=PlacementConfig(share=share),
    )
    placement = Placement(config)
    try:
        placement.reserve()
    except ConfigError as error:
        return str(error)
    gpus_of, everybody = {}, []
    for role, count in ((ENGINE, config.rollout.engines), (LEARNER, 2), (EVALUATOR, 2), (BUILDER, 3)):
        actors = [Somebody.options(**placement.options(role, index)).remote() for index in range(count)]
        gpus_of[role] = ray.get([actor.gpus.remote() for actor in actors], timeout=60)
        everybody += actors
    for actor in everybody:
        ray.kill(actor)
    placement.release()
    while ray.available_resources().get("GPU", 0) < gpus:
        time.sleep(0.1)
    return gpus_of


print(json.dumps({name: placed(share, rollout) for name, (share, rollout) in cases.items()}))
"""
CASES: dict[str, tuple[str, dict[str, int]]] = {
    **{share: (share, {"engines": 2}) for share in ("none", "training", "all")},
    "several": ("training", {"engines": 4, "engines_per_gpu": 2}),
    "none, too many": ("none", {"engines": 3}),
    "training, too many": ("training", {"engines": 5}),
    "all, too many": ("all", {"engines": 7}),
    "all, too few cores": ("all", {"engines": 2, "builders": 12}),
}


@pytest.fixture(scope="module")
def placed() -> dict[str, Any]:
    """By case: the GPUs of each actor of each role, or the error's message."""
    arguments = [sys.executable, "-c", SCRIPT, json.dumps([GPUS, CASES])]
    env = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    cases: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return cases


def numbers(gpus: list[list[int]]) -> list[int]:
    assert all(len(one) == 1 for one in gpus)
    return [one[0] for one in gpus]


@pytest.mark.slow
def test_several_engines_share_the_learners_gpu(placed: dict[str, Any]) -> None:
    engines, learners = numbers(placed["several"]["engine"]), numbers(placed["several"]["learner"])
    assert engines == [learners[0], learners[0], learners[1], learners[1]]
    assert learners[0] != learners[1]


@pytest.mark.slow
@pytest.mark.parametrize("share", ["none", "training", "all"])
def test_roles_share_gpus_or_have_their_own(placed: dict[str, Any], share: str) -> None:
    builders = placed[share].pop("builder")
    gpus_of = {role: numbers(gpus) for role, gpus in placed[share].items()}
    assert len(set(gpus_of["engine"])) == len(set(gpus_of["learner"])) == 2
    if share == "none":
        assert len({gpu for gpus in gpus_of.values() for gpu in gpus}) == 6
        return
    assert gpus_of["engine"] == gpus_of["learner"]  # the n-th of each on the n-th GPU
    if share == "all":
        assert gpus_of["evaluator"] == gpus_of["engine"]
        first, second = gpus_of["evaluator"]
        assert numbers(builders) == [first, first, second]
    else:
        assert not set(gpus_of["evaluator"]) & set(gpus_of["engine"])
        assert builders == [[]] * 3


@pytest.mark.slow
@pytest.mark.parametrize("share", ["none", "training", "all"])
def test_a_host_with_too_few_gpus_is_refused_with_what_to_change(placed: dict[str, Any], share: str) -> None:
    message = placed[f"{share}, too many"]
    engines = CASES[f"{share}, too many"][1]["engines"]
    assert f"placement.share={share}: the run needs 7 GPU(s)" in message
    assert f"{engines} for engines, 2 for learners, 2 for evaluators" in message
    assert f"{GPUS} are here" in message
    assert ("set placement.share=all" in message) == (share != "all")


@pytest.mark.slow
def test_shared_gpus_for_which_a_node_has_too_few_cores_are_refused_at_once(placed: dict[str, Any]) -> None:
    """Ten minutes of two H200s went into the wait for cores that the machine did not have."""
    message = placed["all, too few cores"]
    assert "2 GPU(s) with 9 CPUs each do not fit into the cluster's nodes, which have 6 GPU(s) and 16 CPUs" in message
    assert "lower rollout.engines, learner.ranks, evaluator.workers and evaluator.builders" in message
