"""Submission to a real Ray head that the commands did not start: a whole run, its kill and its resume, and a stop."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.job import CHECKOUT
from orchestration.run.directory import RunDirectory
from tests.cluster.breaking_proxy import BreakingProxy
from tests.orchestration.processes import HANG_SECONDS, pids_of, wait_for
from tests.orchestration.small import POLICY
from tests.ports import free_ports

PORTS = ("port", "dashboard-port", "dashboard-agent-listen-port", "ray-client-server-port")
COMMAND = (sys.executable, "-m", "orchestration.commands.main")
SMALL = [
    "name=first",
    "tasks.include=[level1/softmax,level1/gelu_tanh]",
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
def port(environment: dict[str, str]) -> Iterator[int]:
    """The port of the dashboard of a separate Ray head, made by `ray start`. Other Ray processes on this machine do not
    disturb it.

    It has its own folder, so that no `ray.init()` elsewhere on the machine joins it. The folder's path is short: paths
    of sockets in it may have at most 107 bytes.
    """
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--temp-dir={folder}"]
        command += ["--num-cpus=16", f"--object-store-memory={100 << 20}", "--disable-usage-stats"]
        command += [f"--{name}={port}" for name, port in ports.items()]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            wait_for_dashboard(ports["dashboard-port"], process)
            yield ports["dashboard-port"]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def wait_for_dashboard(port: int, process: subprocess.Popen[str], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.2)
    pytest.fail(f"no dashboard on port {port} within {seconds} s")


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
        wait_for(first, run, "contrastive_rl", 1)
        assert proxy.cut() > 0, "it has not connected again"
        (driver,) = pids_of(marked, f"orchestration.commands.main\0run\0local\0root={tmp_path}")[-1:]
        os.kill(driver, signal.SIGKILL)
        output, errors = end(first, 128 + signal.SIGKILL)
    assert "job first: started" in errors
    assert "first: the connection is lost; trying again" in errors
    assert "job first: FAILED" in errors
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
