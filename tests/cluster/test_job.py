"""The job of a run: what is refused before anything is submitted, and what travels."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cluster.job import CHECKOUT, training_job
from configs.code_version import CODE_VARIABLE
from configs.load import load_config
from orchestration.commands.main import app

CODE = "of this checkout"


@pytest.fixture(autouse=True)
def known_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CODE_VARIABLE, CODE)


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
    done = CliRunner().invoke(app, ["submit", *arguments])
    assert done.exit_code == 2, done.output
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert expected in done.stderr
    assert done.stdout == ""


def test_a_configuration_outside_the_checkout_is_refused(outside: str) -> None:
    done = CliRunner().invoke(app, ["submit", outside, "root=/shared"])
    assert done.exit_code == 2
    assert outside in done.stderr


def test_a_configuration_of_the_checkout_is_named_by_its_path_in_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = training_job(str(CHECKOUT / "configs" / "local.yaml"), ["root=s3://key:secret@bucket/runs?region=x"])
    assert job.arguments == ("run", "configs/local.yaml", "root=s3://key:secret@bucket/runs?region=x")
    assert job.run == "local"
    assert job.metadata["warpsmith.directory"] == "s3://bucket/runs/local"


def test_overrides_reach_the_job_as_they_were_given() -> None:
    overrides = ["root=/shared", "tasks.include=[level1/softmax, level1/gelu_tanh]", "name=it's"]
    words = shlex.split(training_job("local", overrides, dry_run=True).entrypoint)
    assert words[words.index("local") + 1 :] == [*overrides, "--dry-run"]


def test_a_dry_run_is_no_attempt_at_the_run() -> None:
    assert training_job("local", ["root=/shared"], dry_run=True).run == ""


def test_only_the_named_variables_reach_the_job(monkeypatch) -> None:
    monkeypatch.setenv("WARPSMITH_TEST_TOKEN", "a secret value")
    monkeypatch.setenv("WARPSMITH_TEST_OTHER", "stays")
    job = training_job("local", ["root=/shared"], variables=["WARPSMITH_TEST_TOKEN"])
    assert job.environment.keys() == {CODE_VARIABLE, "WARPSMITH_TEST_TOKEN", "RAY_JOB_STOP_WAIT_TIME_S"}
    assert job.environment["WARPSMITH_TEST_TOKEN"] == "a secret value"
    assert "a secret value" not in job.entrypoint + str(job.metadata)


def test_a_stopped_job_has_time_to_drain() -> None:
    job = training_job("local", ["root=/shared", "drain_seconds=100.5"])
    assert job.environment == {CODE_VARIABLE: CODE, "RAY_JOB_STOP_WAIT_TIME_S": "161"}


def test_a_job_is_told_the_version_of_the_code_if_that_travels_with_it() -> None:
    assert training_job("local", ["root=/shared"]).environment[CODE_VARIABLE] == CODE
    assert CODE_VARIABLE not in training_job("local", ["root=/shared"], installed=True).environment


def test_of_an_installed_warpsmith_the_whole_configuration_travels_alone(outside: str) -> None:
    job = training_job(outside, ["root=/shared", "learner.ranks=2"], installed=True)
    with job.runtime_env() as environment:
        folder = Path(environment["working_dir"])
        assert [path.name for path in folder.iterdir()] == ["run.yaml"]
        assert load_config(folder / "run.yaml") == load_config(outside, ["root=/shared", "learner.ranks=2"])
    assert not folder.exists()
    assert job.arguments == ("run", "run.yaml")
    assert job.run == "mine"


def test_ray_accepts_the_cluster_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((CHECKOUT / "cluster" / "local-cluster.yaml").read_text())
    validate_config(prepare_config(config))
    assert config["provider"]["type"] == "local"
