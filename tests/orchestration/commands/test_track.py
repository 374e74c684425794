"""`warpsmith track` sends MLflow what a run could not send, and says what is left."""

from __future__ import annotations

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from configs.load import load_config
from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from orchestration.run.spool import Spool
from orchestration.run.state import RunState
from orchestration.run.tracking import Tracker
from tests.orchestration.faulty_server import FaultyServer


@pytest.fixture
def left(server: FaultyServer, config: RunConfig, run: RunDirectory) -> Tracker:
    """A run that ended while the server was away."""
    server.stop()
    run.write_config(config)
    with Tracker(config, run) as tracker:
        tracker.log_metrics("1-sft", {"loss": 2.0}, 0)
    return tracker


def runs_of(client: MlflowClient, tracker: Tracker) -> list[Run]:
    experiment = client.get_experiment_by_name("served")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id], f"tags.`warpsmith.key` = '{tracker.ids['key']}'"))


def test_what_is_left_is_sent_when_the_server_answers(
    warpsmith, left: Tracker, server: FaultyServer, client: MlflowClient, run: RunDirectory
) -> None:
    refused = warpsmith("track", str(run))
    assert refused.exit_code == 1
    assert "3 records wait for MLflow" in refused.stderr
    server.start()
    done = warpsmith("track", f"{run}/")
    assert done.exit_code == 0, done.output
    assert "MLflow has everything; 3 records had waited" in done.stdout
    (found,) = (one for one in runs_of(client, left) if one.info.run_name == "1-sft")
    assert found.data.metrics == {"loss": 2.0}
    assert found.info.status == "FINISHED"


def test_the_same_command_sends_what_a_finished_run_left(
    warpsmith, server: FaultyServer, client: MlflowClient, run: RunDirectory
) -> None:
    words = [
        f"root={run.local_folder.parent}", "name=demo", "tasks.include=[level1/softmax]", "evaluator.arch=cpu",
        f"tracking.uri={server.uri}", "tracking.experiment=served",
    ]  # fmt: skip
    config = load_config("local", words)
    server.stop()
    tracker = Tracker(config, run)
    run.write_config(config)
    run.write_state(RunState(finished=True, tracking=tracker.ids))
    tracker.close()
    server.start()
    done = warpsmith("run", "local", *words)
    assert done.exit_code == 0, done.output
    assert len(Spool(run.storage)) == 0
    (found,) = runs_of(client, tracker)
    assert found.info.status == "FINISHED"


def test_a_run_that_is_going_on_is_left_alone(warpsmith, config: RunConfig, run: RunDirectory) -> None:
    run.write_config(config)
    with run.lock():
        refused = warpsmith("track", str(run))
    assert refused.exit_code == 2
    assert "is running in it" in refused.stderr


def test_a_run_that_was_never_tracked_has_nothing_to_send(warpsmith, config: RunConfig, run: RunDirectory) -> None:
    run.write_config(config)
    done = warpsmith("track", str(run))
    assert done.exit_code == 0
    assert "0 records had waited" in done.stdout
