"""`warpsmith status` says where a run stands, and `warpsmith stop` ends the process that runs in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from configs.load import load_config
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState

HOLDS = """
import signal, sys, time
from pathlib import Path
from orchestration.run.directory import RunDirectory

ended_by = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: ended_by.append(number))
with RunDirectory(sys.argv[1], "demo").lock():
    print("ready", flush=True)
    while not ended_by:
        time.sleep(0.01)
print(signal.Signals(ended_by[0]).name)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path, "demo")
    made.write_config(load_config("local", ["name=demo", "contrastive_rl.steps=7"]))
    return made


@contextmanager
def held_in(root: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs in the folder `demo` below a root."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", HOLDS, root]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.fixture
def holding(run: RunDirectory, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with held_in(str(tmp_path)) as process:
        yield process


def test_a_run_that_has_committed_nothing_and_one_in_a_phase(warpsmith, run: RunDirectory) -> None:
    done = warpsmith("status", "demo")
    assert done.exit_code == 0, done.output
    assert done.stdout == "demo: stopped; `warpsmith run` continues it\nassessed: nothing\n"
    run.write_state(RunState(1, "contrastive_rl", 3, 40, extra={"assessed": ["base", "1-sft"]}))
    run.metrics.write("1-contrastive_rl", 2, {"success_rate": 0.5, "train/loss": -0.2, "entropy": 0.1})
    lines = warpsmith("status", "demo/").stdout.splitlines()
    assert lines[1].startswith("committed: 1-contrastive_rl, 3 of 7 steps, policy version 40, ")
    assert lines[2:] == ["assessed: base, 1-sft", "latest step: success_rate 0.5  train/loss -0.2"]
    run.storage.write("set_aside/ab-fast.json", b"{}")
    assert (
        "set aside: 1 program(s) that lost too many workers (see demo/set_aside)" in warpsmith("status", "demo").stdout
    )
    run.write_state(RunState(1, "contrastive_rl", 7, 44, finished=True))
    found = json.loads(warpsmith("status", "demo", "--json").stdout)
    assert found["set_aside"] == 1
    assert (found["state"], found["running"], found["step"], found["steps"]) == ("finished", False, 7, 7)
    assert 0 <= found["seconds_since_commit"] < 300


@pytest.mark.parametrize(("options", "by"), [([], "SIGTERM"), (["--now"], "SIGINT")])
def test_stop_asks_the_process_that_runs_there_and_waits_for_it(warpsmith, run, holding, options, by) -> None:
    assert run.holder() is not None
    assert f"demo: running as process {holding.pid} on " in warpsmith("status", "demo").stdout
    done = warpsmith("stop", "demo", *options)
    assert done.exit_code == 0, done.output
    assert done.stdout == "demo: stopped; `warpsmith run` continues it\n"
    assert holding.communicate(timeout=60)[0] == f"{by}\n"
    assert run.holder() is None
    again = warpsmith("stop", "demo")
    assert again.exit_code == 2
    assert "no process runs in it" in again.stderr


def test_a_process_that_stays_is_named(warpsmith, run, holding, monkeypatch) -> None:
    monkeypatch.setattr("orchestration.commands.status._END_SECONDS", 0.3)
    holding.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holding.pid, os.WSTOPPED | os.WNOWAIT)  # a busy machine takes a while to stop it
    done = warpsmith("stop", "demo", "--now")
    assert done.exit_code == 1, (done.output, Path(f"/proc/{holding.pid}/stat").read_text())
    assert f"process {holding.pid} has not ended within 0 s" in done.stderr
    holding.send_signal(signal.SIGCONT)


def test_a_process_of_another_machine_is_left_alone(warpsmith, run, holding, tmp_path: Path) -> None:
    (tmp_path / "demo" / "lock").write_text("1 on elsewhere")
    done = warpsmith("stop", "demo")
    assert done.exit_code == 2
    assert "process 1 on elsewhere runs in it" in done.stderr


def test_a_run_on_an_object_store_is_seen_and_stopped_by_its_lease(warpsmith, object_store: str) -> None:
    made = RunDirectory(object_store.format("status"), "demo")
    made.write_config(load_config("local", ["name=demo"]))
    made.write_state(RunState(1, "sft", 3, 3))
    place = object_store.format("status/demo")
    with held_in(object_store.format("status")) as process:
        lines = warpsmith("status", place).stdout.splitlines()
        assert lines[0].endswith(f": running as process {process.pid} on {os.uname().nodename}")
        assert lines[1].startswith("committed: 1-sft, 3 of ")
        assert json.loads(warpsmith("status", place, "--json").stdout)["running"] is True
        done = warpsmith("stop", place)
        assert done.exit_code == 0, done.output
        assert done.stdout.endswith(": stopped; `warpsmith run` continues it\n")
        assert process.communicate(timeout=60)[0] == "SIGTERM\n"
    assert json.loads(warpsmith("status", place, "--json").stdout)["running"] is False
    again = warpsmith("stop", place)
    assert again.exit_code == 2
    assert "no process runs in it" in again.stderr
    assert "password" not in "".join(lines) + done.stdout + again.stderr
    assert made.storage.files("lease", ".json") == []


def test_a_folder_that_is_no_run_is_refused(warpsmith) -> None:
    for command in ("status", "stop"):
        done = warpsmith(command, "nothing")
        assert done.exit_code == 2
        assert "nothing: not a run directory" in done.stderr
