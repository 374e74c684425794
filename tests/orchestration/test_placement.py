"""Who gets which GPU, by a real Ray that is told of GPUs this machine need not have: it only accounts for them."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
import ray
from configs.schema import EvaluatorConfig, LearnerConfig, PlacementConfig, RolloutConfig, RunConfig
from orchestration.placement import ENGINE, EVALUATOR, LEARNER, Placement

gpus = int(sys.argv[3])
ray.init(address="local", num_cpus=16, num_gpus=gpus, include_dashboard=False, object_store_memory=100 << 20)


@ray.remote
class Somebody:
    def gpus(self):
        return ray.get_gpu_ids()


config = RunConfig(
    name="placed",
    evaluator=EvaluatorConfig(arch="H200", workers=2),
    rollout=RolloutConfig(start_timeout=20.0, **json.loads(sys.argv[2])),
    learner=LearnerConfig(ranks=2),
    placement=PlacementConfig(share=sys.argv[1]),
)
placement = Placement(config)
placement.reserve()
found = {}
for role, count in ((ENGINE, config.rollout.engines), (LEARNER, 2), (EVALUATOR, 2)):
    actors = [Somebody.options(**placement.options(role, index)).remote() for index in range(count)]
    found[role] = ray.get([actor.gpus.remote() for actor in actors], timeout=60)
    globals()[role] = actors
print(json.dumps(found))
"""


def run_script(share: str, gpus: int, **rollout: int) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", SCRIPT, share, json.dumps({"engines": 2, **rollout}), str(gpus)]
    env = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, env=env)


def placed(share: str, **rollout: int) -> dict[str, list[list[int]]]:
    done = run_script(share, 6 if share == "none" else 4, **rollout)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def numbers(gpus: list[list[int]]) -> list[int]:
    assert all(len(one) == 1 for one in gpus)
    return [one[0] for one in gpus]


@pytest.mark.slow
def test_several_engines_stand_on_the_learners_gpu() -> None:
    found = placed("training", engines=4, engines_per_gpu=2)
    engines, learners = numbers(found["engine"]), numbers(found["learner"])
    assert engines == [learners[0], learners[0], learners[1], learners[1]]
    assert learners[0] != learners[1]


@pytest.mark.slow
@pytest.mark.parametrize("share", ["none", "training", "all"])
def test_roles_share_gpus_or_have_their_own(share: str) -> None:
    found = {role: numbers(gpus) for role, gpus in placed(share).items()}
    assert len(set(found["engine"])) == len(set(found["learner"])) == 2
    if share == "none":
        assert len({gpu for gpus in found.values() for gpu in gpus}) == 6
        return
    assert found["engine"] == found["learner"]  # the n-th of each on the n-th GPU
    if share == "all":
        assert found["evaluator"] == found["engine"]
    else:
        assert not set(found["evaluator"]) & set(found["engine"])


@pytest.mark.slow
@pytest.mark.parametrize(("share", "needed"), [("none", 6), ("training", 4), ("all", 2)])
def test_a_host_with_too_few_gpus_is_refused_at_once_with_what_to_change(share: str, needed: int) -> None:
    done = run_script(share, needed - 1)
    said = done.stderr.splitlines()[-1]
    assert f"placement.share={share}: the run needs {needed} GPU(s)" in said
    assert "2 for engines, 2 for learners, 2 for evaluators" in said
    assert f"{needed - 1} are here" in said
    assert ("set placement.share=all" in said) == (share != "all")
