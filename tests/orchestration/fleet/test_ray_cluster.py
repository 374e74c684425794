"""A Ray that a run starts does not give way to whatever else runs on the machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SCRIPT = """
import os, ray
from configs.schema import RayConfig
from orchestration.fleet.ray_cluster import connect

own = {name: os.environ.get(name) for name in ("PYTHONPATH", "OMP_WAIT_POLICY")}
connect(RayConfig(), 1)
assert own == {name: os.environ.get(name) for name in own}, "the driver's environment stays as it is"
there = ray.remote(num_cpus=1)(lambda: (os.nice(0), os.environ["OMP_WAIT_POLICY"]))
niceness, policy = ray.get(there.remote(), timeout=120)
assert policy == "PASSIVE", "threads that spin would take other roles' cores"
print(niceness - os.nice(0))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "found"), [(None, 0), ("7", 7)])
def test_workers_have_the_niceness_of_the_run_unless_told_otherwise(wanted: str | None, found: int) -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("RAY_worker_niceness", "RAY_ADDRESS")
    }
    if wanted:
        environment["RAY_worker_niceness"] = wanted
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) == found


# Ray's own node starts, but does not seem to within the 30 s for which Ray waits: the first `failures` times.
_SLOWLY = """
import sys, time, types
import psutil, ray
import ray._private.node as node, ray._private.services as services
from configs.load import ConfigError
from configs.schema import RayConfig
from orchestration.fleet.ray_cluster import connect

class Clock(types.ModuleType):
    late = 0.0
    def __getattr__(self, name):
        return getattr(time, name)
    def monotonic(self):
        return time.monotonic() + self.late

clock, left, find = Clock("time"), [None] * int(sys.argv[1]), services.get_node

def find_late(*where):
    if not left:
        return find(*where)
    time.sleep(3)  # its processes are there by now
    left.pop()
    clock.late += 31
    raise RuntimeError("not there yet")

node.time, services.get_node = clock, find_late
try:
    connect(RayConfig(), 1)
except ConfigError as error:
    print("refused:", error)
else:
    print("answer:", ray.get(ray.remote(lambda: 42).remote(), timeout=120))
time.sleep(1)
print("raylets:", sum(child.name() == "raylet" for child in psutil.Process().children(recursive=True)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("failures", "says"), [(1, ["answer: 42", "raylets: 1"]), (3, ["refused: Ray", "raylets: 0"])])
def test_a_ray_that_a_busy_machine_starts_slowly_is_started_again_and_leaves_nothing(
    failures: int, says: list[str]
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    command = [sys.executable, "-c", _SLOWLY, str(failures)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("answer", "refused", "raylets"))]
    assert all(line.startswith(word) for line, word in zip(lines, says, strict=True)), done.stdout
