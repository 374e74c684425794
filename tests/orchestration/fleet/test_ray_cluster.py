"""A Ray that a run starts does not give way to whatever else runs on the machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import ray

from configs.load import ConfigError
from configs.schema import RayConfig
from orchestration.fleet.ray_cluster import connect

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


SLOW = Exception("The current node timed out during startup. This could happen because ...")


@pytest.mark.parametrize(
    ("failures", "error"), [([SLOW] * 2, None), ([SLOW] * 3, ConfigError), ([OSError("x")], OSError)]
)
def test_a_ray_that_a_busy_machine_starts_slowly_is_started_again(
    failures: list[Exception], error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, started = list(failures), []

    def init(**options: object) -> None:
        if left:
            raise left.pop(0)
        started.append(options)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)  # other tests have a Ray in this process
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_worker_niceness", "0")
    if error is None:
        assert connect(RayConfig(), 1) is False
        assert len(started) == 1
        return
    with pytest.raises(error):
        connect(RayConfig(), 1)
    assert not started
