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

connect(RayConfig(), 1)
print(ray.get(ray.remote(num_cpus=1)(lambda: os.nice(0)).remote(), timeout=120) - os.nice(0))
"""


@pytest.mark.parametrize(("wanted", "found"), [(None, 0), pytest.param("7", 7, marks=pytest.mark.slow)])
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
