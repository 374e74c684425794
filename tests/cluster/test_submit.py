"""Submission: what is uploaded, what is refused before that, and real jobs on a real Ray head."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from cluster.submit import CHECKOUT, app, training_job
from tests.ports import free_ports

PORTS = ("port", "dashboard-port", "dashboard-agent-listen-port", "ray-client-server-port")
FOLLOW = """
import sys
from cluster.submit import Job, connect, follow, submit
client = connect(sys.argv[1])
sys.exit(follow(client, submit(client, Job(tuple(sys.argv[2:])))))
"""


def invoke(*arguments: str) -> Result:
    """Runs the command in this process: a new process would spend seconds on imports."""
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def outside(tmp_path: Path) -> str:
    """A valid configuration outside the checkout."""
    path = tmp_path / "mine.yaml"
    path.write_text("seed: 1\n")
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere.yaml", "root=/shared"], "nowhere.yaml"),
        (["local", "root=/shared", "learner.zero_stage=4"], "learner.zero_stage must be 0, 1, 2 or 3, got 4"),
        (["local"], "root=runs"),
        (["local", "root=/shared", "--env", "WARPSMITH_NO_SUCH_VARIABLE"], "WARPSMITH_NO_SUCH_VARIABLE"),
        (["local", "root=/shared", "--env", "PYTHONPATH"], "PYTHONPATH"),
        (["local", "root=/shared", "--address", "ray://head:10001"], "ray://head:10001"),
        (["local", "root=/shared", "--address", "http://127.0.0.1:9"], "http://127.0.0.1:9"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2(arguments: list[str], expected: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert expected in done.stderr
    assert done.stdout == ""


def test_a_configuration_outside_the_checkout_is_refused(outside: str) -> None:
    done = invoke(outside, "root=/shared")
    assert done.exit_code == 2
    assert outside in done.stderr


def test_a_configuration_of_the_checkout_is_named_by_its_path_in_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = training_job(str(CHECKOUT / "configs" / "local.yaml"), ["root=s3://bucket/runs"])
    assert job.arguments == ("run", "configs/local.yaml", "root=s3://bucket/runs")
    assert job.metadata == {"warpsmith.run": "local"}


def test_overrides_reach_the_job_as_they_were_given() -> None:
    overrides = ["root=/shared", "tasks.include=[level1/softmax, level1/gelu_tanh]", "name=it's"]
    words = shlex.split(training_job("local", overrides, dry_run=True).entrypoint)
    assert words[words.index("local") + 1 :] == [*overrides, "--dry-run"]


def test_only_the_named_variables_reach_the_job(monkeypatch) -> None:
    monkeypatch.setenv("WARPSMITH_TEST_TOKEN", "a secret value")
    monkeypatch.setenv("WARPSMITH_TEST_OTHER", "stays")
    job = training_job("local", ["root=/shared"], variables=["WARPSMITH_TEST_TOKEN"])
    assert job.runtime_env["env_vars"].keys() == {"WARPSMITH_TEST_TOKEN", "RAY_JOB_STOP_WAIT_TIME_S"}
    assert job.runtime_env["env_vars"]["WARPSMITH_TEST_TOKEN"] == "a secret value"
    assert "a secret value" not in job.entrypoint


def test_a_stopped_job_has_time_to_drain() -> None:
    job = training_job("local", ["root=/shared", "drain_seconds=100.5"])
    assert job.runtime_env["env_vars"] == {"RAY_JOB_STOP_WAIT_TIME_S": "161"}


def test_ray_accepts_the_cluster_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((CHECKOUT / "cluster" / "local-cluster.yaml").read_text())
    validate_config(prepare_config(config))
    assert config["provider"]["type"] == "local"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The environment variables of a user who has activated the environment and has the cluster's token."""
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return {**kept, "PATH": path, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}


@pytest.fixture(scope="module")
def head(environment: dict[str, str]) -> Iterator[str]:
    """The dashboard of a separate Ray head, made by `ray start`. Other Ray processes on this machine do not disturb it.

    It has its own folder, so that no `ray.init()` elsewhere on the machine joins it. The folder's path is short: paths
    of sockets in it may have at most 107 bytes.
    """
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--temp-dir={folder}"]
        command += ["--num-cpus=2", f"--object-store-memory={100 << 20}", "--disable-usage-stats"]
        command += [f"--{name}={port}" for name, port in ports.items()]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            wait_for_dashboard(ports["dashboard-port"], process)
            yield f"http://127.0.0.1:{ports['dashboard-port']}"
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


@pytest.mark.slow
def test_jobs_run_warpsmith_from_the_checkout_and_end_with_its_exit_code(
    head: str, environment: dict[str, str], tmp_path: Path
) -> None:
    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, *arguments]
        return subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    refused = invoke("local", f"root={tmp_path}", "--address", head)
    assert refused.exit_code == 2
    assert "RAY_AUTH_MODE=token" in refused.stderr

    front_door = ["-m", "cluster.submit", "local", f"root={tmp_path}", "name=job", "--dry-run", "--wait"]
    plan = start(*front_door, "--address", head)
    tasks = start("-c", FOLLOW, head, "tasks")
    absent = start("-c", FOLLOW, head, "report", str(tmp_path / "absent"))

    output, errors = plan.communicate(timeout=200)
    assert plan.returncode == 0, errors
    assert "name: job" in output
    assert "24 tasks on cpu" in output
    assert list(tmp_path.iterdir()) == []

    output, errors = tasks.communicate(timeout=200)
    assert tasks.returncode == 0, errors
    assert output.strip().splitlines()[-1] == "24 tasks"

    output, errors = absent.communicate(timeout=200)
    assert absent.returncode == 2, errors
    assert "absent" in output
