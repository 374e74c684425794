"""Submission to a real Ray cluster that the commands did not start: a whole run, its kill and its resume, and a stop.

The cluster is rendered by `warpsmith cluster render`, and its nodes are pretended ones, which Ray's autoscaler starts.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.job import CHECKOUT
from cluster.render import FORMATS
from configs.load import load_config
from orchestration.run.directory import RunDirectory
from tests.cluster.breaking_proxy import BreakingProxy
from tests.cluster.pretended import own_address, pretended_cluster
from tests.orchestration.processes import HANG_SECONDS, pids_of, wait_for
from tests.orchestration.small import POLICY

COMMAND = (sys.executable, "-m", "orchestration.commands.main")
SMALL = [
    "name=first",
    "tasks.include=[level1/softmax,level1/triangular_matmul]",
    *POLICY,
    "rollout.max_concurrent=16",
    "sft.epochs=2",
    "sft.successes=1",
    "sft.batch_size=2",
    "self_supervised.max_rounds=1",
    "self_supervised.samples=1",
    "contrastive_rl.steps=6",
    "checkpoint_every=1",
    "contrastive_rl.tasks_per_step=1",
    "contrastive_rl.group_size=2",
    "assessment.samples=1",
    "tracking.enabled=false",
    "ray.request_capacity=true",
]
DRAINS = """
import sys, time
from cluster.client import Jobs
from cluster.job import Job
class Draining(Job):
    entrypoint = sys.argv[2]
metadata = {"warpsmith.run": "draining", "warpsmith.directory": "/nowhere/draining"}
jobs = Jobs(sys.argv[1])
jobs.submit(Draining((), {"RAY_JOB_STOP_WAIT_TIME_S": "30"}, metadata, None), "draining")
while "00:00:01  began" not in jobs.log("draining").splitlines():  # the log begins with the command itself
    time.sleep(0.2)
"""
PLACES = """
import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False)
@ray.remote(num_gpus=1, num_cpus=1)
class Evaluator:
    def label(self):
        node = ray.get_runtime_context().get_node_id()
        return next(one["Labels"]["ray.io/accelerator-type"] for one in ray.nodes() if one["NodeID"] == node)
kept = []
for accelerator in ("H100", "L40S"):
    place = {"ray.io/accelerator-type": accelerator}
    kept += [members := [Evaluator.options(label_selector=place).remote() for _ in range(2)]]
    print(accelerator, ray.get([member.label.remote() for member in members], timeout=90))
print(sum(one["Alive"] for one in ray.nodes() if "ray.io/accelerator-type" in one["Labels"]))
"""
SHELL = """trap 'sleep 5; echo "00:00:09  drained its step"; exit 0' TERM
echo '00:00:01  began'
while true; do sleep 0.1; done"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment variables of a user who has activated the environment and has the cluster's token.

    Every process of the cluster is known by the folder at the end of its path.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTHONPATH")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"], str(tmp_path_factory.mktemp("marked"))])
    return {**kept, "PATH": path, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}


@pytest.fixture(scope="module")
def ports(environment: dict[str, str]) -> Iterator[dict[str, int]]:
    """The ports of the head of a cluster as it is rendered: at first it has no other node."""
    gpus = "cluster.gpu_nodes=[H100x8:0-4@gpu=h100,L40Sx1:0-8@gpu=l40s]"
    words = [*("root=s3://bucket/runs", "cluster.image=none", "cluster.cpus=16", "cluster.memory_gib=2"), gpus]
    with pretended_cluster(FORMATS["raycluster"](load_config("local", words)), environment) as found:
        yield found


@pytest.fixture(scope="module")
def port(ports: dict[str, int]) -> int:
    return ports["dashboard-port"]


def start(environment: dict[str, str], port: int, *words: str) -> subprocess.Popen[str]:
    """`warpsmith` with these words, as a user starts it in the checkout."""
    command = [*COMMAND, *words, "--address", f"http://127.0.0.1:{port}"]
    return subprocess.Popen(
        command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str], code: int) -> tuple[str, str]:
    """What it printed, when it ended with this exit code."""
    output, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == code, (output, errors)
    return output, errors


@pytest.mark.slow
def test_a_run_whose_job_is_killed_is_resumed_by_the_same_command(
    port: int, environment: dict[str, str], tmp_path: Path
) -> None:
    words = ["submit", "local", f"root={tmp_path}", *SMALL, "--wait"]
    run, marked = RunDirectory(str(tmp_path), "first"), Path(environment["PATH"].split(os.pathsep)[-1])
    with BreakingProxy(port) as proxy:
        first = start(environment, proxy.port, *words)
        wait_for(first, run, "sft", 1)
        with proxy.unreachable():
            time.sleep(1.5)
        proxy.wait_for_connection()
        wait_for(first, run, "contrastive_rl", 1)
        proxy.cut()
        (driver,) = pids_of(marked, f"orchestration.commands.main\0run\0local\0root={tmp_path}")[-1:]
        os.kill(driver, signal.SIGKILL)
        output, errors = end(first, 128 + signal.SIGKILL)
    assert "job first: started" in errors
    assert "first: the connection is lost; trying again" in errors
    assert "job first: FAILED" in errors
    assert "ray.request_capacity:" not in output, "the cluster was not asked for capacity"
    assert output == end(start(environment, port, "logs", "first"), 0)[0]
    committed = run.read_state()
    assert committed is not None
    assert not committed.finished

    output, errors = end(start(environment, port, *words), 0)
    assert "job first-2: started, which resumes the run; job first is FAILED" in errors
    assert output.splitlines()[-1] == "first: finished"
    assert not re.search(r"sft +1/3 ", output), "it began anew"
    state = run.read_state()
    assert state is not None
    assert state.finished

    _, errors = end(start(environment, port, *words), 0)
    assert "first: finished, by job first-2" in errors
    output, _ = end(start(environment, port, "status", "first"), 0)
    assert [line.split(",")[0] for line in output.splitlines()[:2]] == [
        "first: job first-2 is SUCCEEDED", "before: job first is FAILED",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_stopped_job_drains_and_a_token_is_needed(port: int, environment: dict[str, str], tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{port}"
    draining = [sys.executable, "-c", DRAINS, address, SHELL]
    subprocess.run(draining, cwd=CHECKOUT, env=environment, check=True, timeout=100)
    stopping = start(environment, port, "stop", "draining")
    plan = start(environment, port, "submit", "local", f"root={tmp_path}", "name=job", "--dry-run")
    absent = ["submit", "local", f"root={tmp_path}", "tasks.source=/absent.jsonl", "--dry-run"]
    refused = start(environment, port, *absent)
    wrong = start({**environment, "RAY_AUTH_TOKEN": "wrong" * 8}, port, "status", "draining")

    output, _ = end(stopping, 0)
    assert "job draining is STOPPED" in output
    assert "latest: 00:00:09  drained its step" in output

    output, errors = end(plan, 0)
    assert "name: job" in output
    assert "24 tasks on cpu" in output
    assert "first-" not in errors
    assert list(tmp_path.iterdir()) == []

    output, _ = end(refused, 2)
    assert "/absent.jsonl" in output
    _, errors = end(wrong, 2)
    assert "refuses the token" in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_rendered_cluster_grows_by_the_types_that_are_asked_for(
    ports: dict[str, int], environment: dict[str, str]
) -> None:
    words = [sys.executable, "-c", PLACES, f"{own_address()}:{ports['port']}"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["H100 ['H100', 'H100']", "L40S ['L40S', 'L40S']", "3"]  # 8 GPUs a node; 1
