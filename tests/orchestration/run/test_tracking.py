"""MLflow shows a run as one parent run and one nested run per phase, also after restarts."""

from __future__ import annotations

import time

import pytest
from mlflow import MlflowClient

from configs.schema import RunConfig, TrackingConfig
from learners.room import DiskFull
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import LeaseLost
from orchestration.run.spool import Spool
from orchestration.run.tracking import Tracker


def runs_of(client: MlflowClient, tracker: Tracker) -> list:
    return client.search_runs([tracker.ids["experiment"]], f"tags.`warpsmith.key` = '{tracker.ids['key']}'")


def test_a_run_has_one_parent_and_one_nested_run_per_phase(config, client, run):
    with Tracker(config, run) as tracker:
        tracker.log_metrics("1-sft", {"loss": 2.0, "odd(name)": 1.0, "nan": float("nan")}, step=1)
        tracker.log_metrics("1-sft", {"loss": 1.0}, step=2)
        tracker.log_metrics("1-sft", {"loss": float("nan")}, step=3)
        tracker.end_phase("1-sft")
        tracker.log_metrics("1-contrastive_rl", {"kl": 0.1}, step=1)
        tracker.log_metrics(None, {"success": 0.5}, step=0)
    runs = {run.info.run_name: run for run in runs_of(client, tracker)}
    assert set(runs) == {"demo", "1-sft", "1-contrastive_rl"}
    parent = runs["demo"]
    assert all(run.info.status == "FINISHED" for run in runs.values())
    assert runs["1-sft"].data.tags["mlflow.parentRunId"] == parent.info.run_id == tracker.ids["parent"]
    history = client.get_metric_history(runs["1-sft"].info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(1, 2.0), (2, 1.0)]
    assert runs["1-sft"].data.metrics == {"loss": 1.0, "odd_name_": 1.0}
    assert parent.data.metrics["success"] == 0.5
    assert parent.data.params["learner.zero_stage"] == "1"
    assert len(parent.data.params) > 100, "more than MLflow takes in one call"


def test_a_restart_continues_the_same_runs_and_tags_changed_parameters(config, client, run):
    with Tracker(config, run) as first:
        first.log_metrics("1-sft", {"loss": 2.0}, step=1)
    config.contrastive_rl.steps = 7
    with Tracker(config, run, first.ids) as second:
        second.log_metrics("1-sft", {"loss": 1.0}, step=2)
    assert second.ids == first.ids
    assert len(runs_of(client, second)) == 2
    assert len(client.get_metric_history(second.ids["phases"]["1-sft"], "loss")) == 2
    parent = client.get_run(second.ids["parent"])
    assert parent.data.tags["resumed.contrastive_rl.steps"] == "7"
    assert parent.data.params["contrastive_rl.steps"] == "100"


def test_runs_made_after_the_last_commit_are_found_again_on_another_machine(config, client, run, tmp_path):
    tracker = Tracker(config, run)
    committed = tracker.ids | {"parent": None, "phases": {}}
    tracker.log_metrics("1-sft", {"loss": 2.0}, step=1)
    tracker.close("KILLED")
    with Tracker(config, RunDirectory(str(tmp_path), "elsewhere"), committed) as second:
        second.log_metrics("1-sft", {"loss": 1.0}, step=2)
    assert second.ids == tracker.ids
    assert len(runs_of(client, second)) == 2


def test_a_run_that_the_store_no_longer_has_starts_anew(config, client, run):
    with Tracker(config, run, {"key": "k", "parent": "0" * 32, "phases": {"1-sft": "1" * 32}}) as tracker:
        tracker.log_metrics("1-sft", {"loss": 1.0}, step=2)
    runs = {run.info.run_name: run for run in runs_of(client, tracker)}
    assert set(runs) == {"demo", "1-sft"}
    assert runs["demo"].data.tags["warpsmith.continues"] == "0" * 32


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, "KILLED"), (ValueError, "FAILED")])
def test_an_exception_sets_the_status_of_all_open_runs(error, status, config, client, run):
    tracker = Tracker(config, run)
    tracker.log_metrics("1-sft", {"loss": 2.0}, step=1)
    with pytest.raises(error), tracker:
        raise error
    assert [run.info.status for run in runs_of(client, tracker)] == [status, status]


def test_a_run_that_another_process_has_taken_over_stays_running(config, client, run):
    tracker = Tracker(config, run)
    tracker.log_metrics("1-sft", {"loss": 2.0}, step=1)
    deadline = time.monotonic() + 60
    while run.storage.files("tracking/spool") and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(LeaseLost), tracker:
        raise LeaseLost
    tracker.log_metrics("1-sft", {"loss": 3.0}, step=2)
    assert [run.info.status for run in runs_of(client, tracker)] == ["RUNNING", "RUNNING"]
    assert run.storage.files("tracking/spool") == []


def test_a_run_that_was_stopped_is_not_finished(config, client, run):
    with Tracker(config, run) as tracker:
        tracker.log_metrics("1-sft", {"loss": 2.0}, step=1)
        tracker.was_stopped = True
    assert [run.info.status for run in runs_of(client, tracker)] == ["KILLED", "KILLED"]


def test_report_config_and_best_programs_are_artifacts(config, client, run):
    run.write_config(config)
    run.write_report("<html></html>")
    run.storage.write("kernels/t1/cpu.py", b"class ModelNew: pass")
    with Tracker(config, run) as tracker:
        tracker.log_run_directory()
    names = {info.path for info in client.list_artifacts(tracker.ids["parent"])}
    assert names == {"config.yaml", "report", "kernels"}
    assert [info.path for info in client.list_artifacts(tracker.ids["parent"], "kernels/t1")] == ["kernels/t1/cpu.py"]


def test_system_metrics_are_on_the_parent_run(config, client, run, monkeypatch):
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.2")
    config.tracking.system_metrics = True
    with Tracker(config, run) as tracker:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(0.2)
            parent = tracker.ids["parent"]
            if parent and "system/cpu_utilization_percentage" in client.get_run(parent).data.metrics:
                break
    assert "system/cpu_utilization_percentage" in client.get_run(tracker.ids["parent"]).data.metrics


def test_a_full_disk_under_the_records_ends_the_run_at_a_metric_and_nowhere_else(config, client, run, monkeypatch):
    tracker = Tracker(config, run)

    def full(*_):
        raise DiskFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(Spool, "add", full)
        tracker._log_system_metrics({"system/memory": 1.0})  # from a thread of its own
        with pytest.raises(DiskFull):
            tracker.log_metrics("1-sft", {"loss": 1.0}, 1)
    tracker.close("FAILED")
    assert [run.info.status for run in runs_of(client, tracker)] == ["FAILED"]


def test_a_disabled_tracker_does_nothing(tmp_path, run):
    config = RunConfig(name="demo", root=str(tmp_path), tracking=TrackingConfig(enabled=False))
    with Tracker(config, run) as tracker:
        tracker.log_metrics("1-sft", {"loss": 1.0}, 1)
        tracker.log_run_directory()
    assert tracker.ids == {}
    assert list(tmp_path.iterdir()) == []
