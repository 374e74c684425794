"""Ray's own autoscaler starts nodes that runs ask for, keeps them, and takes them away: without any actor on them."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys

import pytest

from cluster.job import CHECKOUT
from cluster.render import FORMATS
from configs.load import load_config
from tests.cluster.pretended import own_address, pretended_cluster

IDLE_SECONDS = 3
SCRIPT = """
import json, os, sys, time
from collections import Counter
import ray
from actors.capacity_holder import TYPE_LABEL, Room, find_holder
from orchestration.fleet import capacity_requests
from orchestration.fleet.capacity import Capacity

address, idle = sys.argv[1], float(sys.argv[2])
ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": os.getcwd()}})
find_holder(pause=1.0, silence=8.0, linger=2.0)
capacity_requests._SECONDS = 0.5
H100, L40S = (Room(1, 1, kind) for kind in ("H100", "L40S"))
seen = {}


def kinds():
    labels = [each["Labels"].get(TYPE_LABEL) for each in ray.nodes() if each["Alive"]]
    return dict(Counter(filter(None, labels)))


def wait_for(name, what):
    deadline = time.monotonic() + 90
    while not what() and time.monotonic() < deadline:
        time.sleep(0.2)
    seen[name] = kinds()


needs = {"first": {L40S: 3}, "second": {H100: 1}}
first, second = (capacity_requests.CapacityRequests(run, lambda run=run: dict(needs[run])) for run in needs)
first.start()
second.start()
wait_for("asked", lambda: kinds() == {"L40S": 3, "H100": 1})
time.sleep(3 * idle)
seen["kept"] = kinds()
needs["first"] = {L40S: 1}
wait_for("less", lambda: kinds().get("L40S") == 1)
needs["second"] = {H100: 1, Room(1, 64, "H100"): 1}
deadline = time.monotonic() + 60
while not (refused := Capacity.look().refuses_request) and time.monotonic() < deadline:
    time.sleep(0.2)
needs["second"] = {H100: 1}
first.close()
wait_for("closed", lambda: kinds() == {"H100": 1})
second._closing.set()  # as if it were killed: it lets nothing go
wait_for("killed", lambda: not kinds())
print(json.dumps({**seen, "refused": refused}))
"""


@pytest.mark.slow
def test_nodes_come_before_actors_stay_while_they_are_asked_for_and_go_with_the_run() -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTHONPATH")}
    environment = {**kept, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    gpus = "cluster.gpu_nodes=[H100x8:0-4@gpu=h100,L40Sx1:0-8@gpu=l40s]"
    words = ["root=s3://bucket/runs", "cluster.image=none", "cluster.memory_gib=2", "cluster.idle_seconds=10", gpus]
    manifest = FORMATS["raycluster"](load_config("local", words))
    assert "idleTimeoutSeconds: 10" in manifest
    manifest = manifest.replace("idleTimeoutSeconds: 10", f"idleTimeoutSeconds: {IDLE_SECONDS}")
    with pretended_cluster(manifest, environment) as ports:
        command = [sys.executable, "-c", SCRIPT, f"{own_address()}:{ports['port']}", str(IDLE_SECONDS)]
        done = subprocess.run(
            command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "asked": {"L40S": 3, "H100": 1},
        "kept": {"L40S": 3, "H100": 1},
        "less": {"L40S": 1, "H100": 1},
        "closed": {"H100": 1},
        "killed": {},
        "refused": True,
    }
