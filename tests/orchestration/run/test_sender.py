"""What MLflow does not get at once it gets later: each metric once, in order, with the run's true status at the end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient

from orchestration.run import sender, spool
from orchestration.run.directory import RunDirectory
from orchestration.run.mlflow_runs import MlflowRuns, Point
from orchestration.run.spool import FOLDER, REFUSED, Spool
from orchestration.run.state import RunState
from orchestration.run.tracking import Tracker, has_rest, send_rest
from tests.orchestration.faulty_server import CREATE_RUN, LOG_BATCH, UPDATE_RUN, always, once

PHASE = "1-sft"
REPOSITORY = Path(__file__).resolve().parents[3]

DRIVER = """
import sys
from configs.schema import RunConfig, TrackingConfig
from orchestration.run import sender
from orchestration.run.directory import RunDirectory
from orchestration.run.tracking import Tracker

sender.FIRST_PAUSE, sender.LONGEST_PAUSE = 0.05, 0.2
uri, root = sys.argv[1:]
config = RunConfig(name="demo", tracking=TrackingConfig(uri=uri, experiment="served", system_metrics=False))
tracker = Tracker(config, RunDirectory(root, "demo"))
for step in range(10):
    tracker.log_metrics("1-sft", {"loss": step, "kl": step}, step)
print("recorded", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def recorded(server, tmp_path):
    """A driver's process that has recorded ten steps and waits, while the server answers nothing."""
    server.fault = always("", "500")
    command = [sys.executable, "-c", DRIVER, server.uri, str(tmp_path)]
    driver = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "recorded\n"
    yield driver
    driver.kill()
    driver.communicate()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def server_process(database: str, port: int) -> Iterator[None]:
    """`mlflow server`, as users start it, killed in the end."""
    options = ["--backend-store-uri", database, "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                    break
            except OSError:
                assert process.poll() is None
                time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def log(tracker: Tracker, steps: range) -> None:
    for step in steps:
        tracker.log_metrics(PHASE, {"loss": float(step), "kl": float(step)}, step)


def history(client: MlflowClient, run_id: str, name: str = "loss") -> list[int]:
    """The steps of a metric in the order of their times, whose values must be the steps."""
    points = sorted(client.get_metric_history(run_id, name), key=lambda point: point.timestamp)
    assert [point.value for point in points] == [point.step for point in points]
    return [point.step for point in points]


def statuses(client: MlflowClient, run: RunDirectory) -> dict[str, str]:
    """The status of every MLflow run that there is for a training run, by name."""
    ids = sender.known_runs(run)["ids"]
    runs = client.search_runs([ids["experiment"]], f"tags.`warpsmith.key` = '{ids['key']}'")
    found = {one.info.run_name: one.info.status for one in runs}
    assert len(found) == len(runs)
    return found


def phase_run(run: RunDirectory) -> str:
    return str(sender.known_runs(run)["ids"]["phases"][PHASE])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("part", "fault"),
    [(LOG_BATCH, "500"), (LOG_BATCH, "drop"), (LOG_BATCH, "hang"), (CREATE_RUN, "drop"), (UPDATE_RUN, "drop")],
)
def test_a_failed_call_loses_and_doubles_nothing(part, fault, server, config, client, run, monkeypatch):
    monkeypatch.setattr(sender, "LAST_ATTEMPTS", 20)  # the server of a busy machine is late at times, too
    server.fault = once(part, fault)
    with Tracker(config, run) as tracker:
        log(tracker, range(5))
        assert server.failed.wait(60)
        log(tracker, range(5, 10))
    assert history(client, phase_run(run)) == list(range(10))
    assert statuses(client, run) == {"demo": "FINISHED", PHASE: "FINISHED"}
    assert not has_rest(run)


@pytest.mark.usefixtures("impatient")
def test_a_run_goes_on_while_the_server_hangs(server, config, run):
    server.fault = always("", "hang")
    tracker = Tracker(config, run)
    assert server.failed.wait(60)
    waited = time.monotonic()
    log(tracker, range(20))
    assert time.monotonic() - waited < 5, "twenty calls that wait take twenty seconds"
    closing = time.monotonic()
    tracker.close(timeout=0.5)
    assert time.monotonic() - closing < 5
    assert len(Spool(run.storage)) == 22


def test_what_waits_at_the_end_is_told_and_sent_by_the_next_process(server, config, client, run, caplog):
    config.tracking.uri = server.uri.replace("//", "//user:secret@")
    server.stop()
    with caplog.at_level(logging.WARNING, "orchestration"):
        tracker = Tracker(config, run)
        log(tracker, range(3))
        tracker.end_phase(PHASE)
        tracker.close("FAILED")
    during, *_, after = (record.getMessage() for record in caplog.records)  # on a busy machine it says more between
    assert "The run goes on" in during
    assert "6 records wait" in after
    assert "warpsmith track" in after
    assert "secret" not in caplog.text
    ended = time.time() * 1000
    assert has_rest(run)
    server.start()
    assert send_rest(config, run) == (6, 0)
    assert history(client, phase_run(run)) == [0, 1, 2]
    assert statuses(client, run) == {"demo": "FAILED", PHASE: "FINISHED"}
    parent = client.get_run(sender.known_runs(run)["ids"]["parent"])
    assert parent.info.start_time < parent.info.end_time < ended, "times are those of the record"
    assert len(parent.data.params) > 100
    assert not has_rest(run)


def test_a_resume_sends_what_was_left_before_its_own(server, config, client, run):
    server.stop()
    first = Tracker(config, run)
    log(first, range(5))
    first.close("KILLED", timeout=0)
    second = Tracker(config, run, first.ids)
    log(second, range(5, 8))
    server.start()
    log(second, range(8, 10))
    second.close()
    assert history(client, phase_run(run)) == list(range(10))
    assert statuses(client, run) == {"demo": "FINISHED", PHASE: "FINISHED"}


def test_a_driver_killed_before_the_answer_doubles_nothing_when_resumed(recorded, server, config, client, run):
    made: list[str] = []

    def killing(path: str) -> str:
        """The driver is killed when MLflow has its first metrics: the batches before the phase's run are parameters."""
        made.extend([path] if CREATE_RUN in path else [])
        return str(recorded.pid) if LOG_BATCH in path and len(made) == 2 else ""

    server.fault = killing
    assert recorded.wait(30) == -9
    server.fault = always("", "")
    assert statuses(client, run)["demo"] == "RUNNING"
    assert 0 < len(Spool(run.storage)) <= 10
    with Tracker(config, run) as tracker:
        log(tracker, range(10, 12))
    assert history(client, phase_run(run)) == list(range(12))
    assert history(client, phase_run(run), "kl") == list(range(12))
    assert statuses(client, run) == {"demo": "FINISHED", PHASE: "FINISHED"}


@pytest.mark.slow
def test_a_server_process_that_is_killed_and_started_again_gets_everything(config, client, run, free_port, monkeypatch):
    monkeypatch.setattr(sender, "LONGEST_PAUSE", 0.2)
    config.tracking.uri, config.tracking.experiment = f"http://127.0.0.1:{free_port}", "served"
    with Tracker(config, run) as tracker:
        log(tracker, range(3))  # nobody listens yet
        with server_process(client.tracking_uri, free_port):
            while len(Spool(run.storage)) > 0:
                time.sleep(0.1)
        log(tracker, range(3, 6))
        with server_process(client.tracking_uri, free_port):
            log(tracker, range(6, 9))
            tracker.close()
    assert history(client, phase_run(run)) == list(range(9))
    assert statuses(client, run) == {"demo": "FINISHED", PHASE: "FINISHED"}


@pytest.mark.parametrize(("finished", "status"), [(False, "KILLED"), (True, "FINISHED")])
def test_a_killed_driver_that_nobody_resumes_does_not_run_for_ever(finished, status, config, client, run):
    killed = Tracker(config, run)
    log(killed, range(2))
    killed._sender.close(20)  # as after a kill, nothing tells the end
    run.write_state(RunState(tracking=killed.ids, finished=finished))
    assert statuses(client, run) == {"demo": "RUNNING", PHASE: "RUNNING"}
    assert has_rest(run)
    assert send_rest(config, run) == (0, 0)
    assert statuses(client, run) == {"demo": status, PHASE: status}
    committed = run.storage.modified("state.json")[0] // 1_000_000
    assert client.get_run(killed.ids["parent"]).info.end_time == committed
    assert not has_rest(run)


def test_a_phase_whose_end_was_not_told_ends_with_the_next_process(config, client, run):
    killed = Tracker(config, run)
    log(killed, range(2))
    killed._sender.close(20)
    second = Tracker(config, run, killed.ids, completed=[PHASE])
    second.close("FAILED")
    assert statuses(client, run) == {"demo": "FAILED", PHASE: "FINISHED"}


def test_what_mlflow_refuses_is_set_aside_and_the_rest_goes_on(server, config, client, run, caplog):
    server.stop()
    with Tracker(config, run) as tracker:
        log(tracker, range(3))
        tracker.log_metrics(PHASE, {"../loss": 3.0}, 3)
        log(tracker, range(4, 6))
        server.start()
    assert history(client, phase_run(run)) == [0, 1, 2, 4, 5]
    assert statuses(client, run) == {"demo": "FINISHED", PHASE: "FINISHED"}
    (path,) = run.storage.files(REFUSED)
    assert b"../loss" in run.storage.read(path)
    assert path in caplog.text


def test_a_deleted_run_gets_everything_once_it_is_restored(server, config, client, run, caplog):
    with Tracker(config, run) as tracker:
        log(tracker, range(2))
    client.delete_run(tracker.ids["parent"])
    with Tracker(config, run, tracker.ids) as second:
        log(second, range(2, 4))
    assert "mlflow runs restore" in caplog.text
    client.restore_run(tracker.ids["parent"])
    assert send_rest(config, run)[1] == 0
    assert history(client, phase_run(run)) == [0, 1, 2, 3]
    assert statuses(client, run) == {"demo": "FINISHED", PHASE: "FINISHED"}


def test_a_store_of_artifacts_that_fails_keeps_no_run_from_its_status(server, config, client, run):
    run.write_report("<html></html>")
    server.fault = always("mlflow-artifacts", "500")
    with Tracker(config, run) as tracker:
        tracker.log_run_directory()
        log(tracker, range(2))
    assert statuses(client, run) == {"demo": "FINISHED", PHASE: "FINISHED"}
    assert Spool(run.storage).kinds() == ["artifacts"]
    server.fault = always("", "")
    assert send_rest(config, run)[1] == 0
    served = MlflowClient(server.uri)
    assert [info.path for info in served.list_artifacts(tracker.ids["parent"])] == ["report"]


def test_a_full_spool_costs_metrics_and_never_the_status(server, config, client, run, caplog, monkeypatch):
    monkeypatch.setattr(Spool.__init__, "__defaults__", (4, spool.MAX_BYTES))
    server.stop()
    with Tracker(config, run) as tracker:
        log(tracker, range(10))
        tracker.end_phase(PHASE)
        assert len(list(run.storage.files(FOLDER))) == 5
        server.start()
    assert "some metrics will be missing in MLflow" in caplog.text
    assert history(client, phase_run(run)) == [0, 1, 2]
    assert statuses(client, run) == {"demo": "FINISHED", PHASE: "FINISHED"}


def test_system_metrics_are_sampled_on_while_the_server_fails(server, config, client, run, monkeypatch):
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    config.tracking.system_metrics = True
    server.fault = always("", "500")
    with Tracker(config, run) as tracker:
        while len(Spool(run.storage)) < 5:
            time.sleep(0.05)
        server.fault = always("", "")
    points = client.get_metric_history(tracker.ids["parent"], "system/cpu_utilization_percentage")
    assert len(points) >= 4
    assert [point.timestamp for point in points] == sorted({point.timestamp for point in points})


def test_a_disk_that_is_full_does_not_end_the_run(config, client, run, caplog, monkeypatch):
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with Tracker(config, run) as tracker:
        with monkeypatch.context() as patch:
            patch.setattr("orchestration.run.storage.os.replace", full)
            log(tracker, range(3))
        log(tracker, range(3, 5))
    assert caplog.text.count("some metrics will be missing in MLflow") == 1
    assert "No space left on device" in caplog.text
    assert history(client, phase_run(run)) == [3, 4]


@pytest.mark.parametrize("store", ["database", "files"])
def test_points_in_doubt_are_logged_once_in_every_store(store, config, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    if store == "files":
        config.tracking.uri = (tmp_path / "mlruns").as_uri()
    runs = MlflowRuns(config)
    earlier = [Point("loss", 7.0, 7, 1000), Point("kl", 0.0, 0, 1000)]  # a resume goes back to an earlier step
    repeated = [Point("loss", 3.0, 3, 2000), Point("loss", 4.0, 4, 2001)]
    runs.log_metrics(PHASE, earlier, in_doubt=False)
    runs.log_metrics(PHASE, repeated, in_doubt=False)
    runs.log_metrics(PHASE, [*repeated, Point("kl", 4.0, 4, 2001), Point("loss", 5.0, 5, 2002)], in_doubt=True)
    client = MlflowClient(runs.uri)
    assert history(client, runs.ids["phases"][PHASE]) == [7, 3, 4, 5]
    assert history(client, runs.ids["phases"][PHASE], "kl") == [0, 4]
