"""Submission: what travels, what is refused before anything is submitted, and real jobs on a real Ray head."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from cluster.submit import CHECKOUT, Job, app, connect, follow, submit, training_job

HEAD = """
import sys, ray
context = ray.init(address="local", num_cpus=2, include_dashboard=True, dashboard_port=0, object_store_memory=100 << 20,
                   log_to_driver=False)
print(context.dashboard_url, flush=True)
sys.stdin.read()
"""


def invoke(*arguments: str) -> Result:
    """In this process: a new one would spend its time on imports."""
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def outside(tmp_path: Path) -> str:
    """A good configuration that is no part of the checkout."""
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


def test_a_configuration_that_would_stay_behind_is_refused(outside: str) -> None:
    done = invoke(outside, "root=/shared")
    assert done.exit_code == 2
    assert outside in done.stderr


def test_a_configuration_of_the_checkout_is_named_as_the_job_finds_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = training_job(str(CHECKOUT / "configs" / "local.yaml"), ["root=s3://bucket/runs"])
    assert job.arguments == ("run", "configs/local.yaml", "root=s3://bucket/runs")
    assert job.metadata == {"warpsmith.run": "local"}


def test_overrides_reach_the_job_as_they_were_given() -> None:
    overrides = ["root=/shared", "tasks.include=[level1/softmax, level1/gelu_tanh]", "name=it's"]
    words = shlex.split(training_job("local", overrides, dry_run=True).entrypoint)
    assert words[words.index("local") + 1 :] == [*overrides, "--dry-run"]


def test_variables_travel_by_name_and_no_others_do(monkeypatch) -> None:
    monkeypatch.setenv("WARPSMITH_TEST_TOKEN", "value with blanks")
    monkeypatch.setenv("WARPSMITH_TEST_OTHER", "stays")
    job = training_job("local", ["root=/shared"], variables=["WARPSMITH_TEST_TOKEN"])
    assert job.runtime_env["env_vars"] == {"WARPSMITH_TEST_TOKEN": "value with blanks"}
    assert "value with blanks" not in job.entrypoint


def test_ray_accepts_the_file_for_hosts_on_premise() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((CHECKOUT / "cluster" / "local-cluster.yaml").read_text())
    validate_config(prepare_config(config))
    assert config["provider"]["type"] == "local"


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    """The dashboard of a Ray head of its own, in a process of its own: other tests may have a Ray in this one."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"  # as in an activated environment
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://{process.stdout.readline().strip()}"
    finally:
        process.stdin.close()
        process.wait(timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_jobs_run_warpsmith_from_the_checkout_and_end_with_its_exit_code(head: str, capfd, tmp_path: Path) -> None:
    client = connect(head)
    tasks = submit(client, Job(("tasks",)))
    absent = submit(client, Job(("report", str(tmp_path / "absent"))))
    done = invoke("local", f"root={tmp_path}", "name=job", "--dry-run", "--wait", "--address", head)
    assert done.exit_code == 0, done.output
    assert "1-contrastive_rl" in done.stdout
    assert "24 tasks on cpu" in done.stdout
    assert list(tmp_path.iterdir()) == []
    capfd.readouterr()
    assert follow(client, tasks) == 0
    assert capfd.readouterr().out.strip().splitlines()[-1] == "24 tasks"
    assert follow(client, absent) == 2
    assert "absent" in capfd.readouterr().out
