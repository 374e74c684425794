"""Bad input to the real commands: one clear line on standard error, no traceback, and the exit code.

Exit code 2: what was given is wrong. 1: the same command may succeed later. Endpoints are real servers, and whole runs
have a real Ray; they end before any program is judged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.load import load_config
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState
from orchestration.step import endpoints
from orchestration.step.failed_requests import Backoff
from tests.orchestration.report.samples import write_step
from tests.orchestration.step.endpoint_server import Reply, chat, serving

AWAY = "http://127.0.0.1:9/v1"
TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(8)]
def get_init_inputs():
    return []
"""
SETTINGS = ["tracking.enabled=false", "evaluator.arch=cpu", "tasks.include=[level1/1]", "tasks.levels=[1]"]


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder with one task, in KernelBench's layout."""
    folder = tmp_path / "mine" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_relu.py").write_text(TASK)
    return folder.parent


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[Any, int], str]:
    """The one line that a command said, as it stands behind `error: `, but for what matplotlib says of its fonts."""

    def check(done: Any, code: int) -> str:
        assert done.exit_code == code, done.output
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        warned = (record for record in caplog.records if record.levelno >= logging.WARNING)
        logged = [record for record in warned if not record.name.startswith("matplotlib.")]
        lines = [*done.stderr.splitlines(), *(record.getMessage() for record in logged)]
        assert len(lines) == 1, lines
        assert "Traceback" not in done.output
        assert lines[0].startswith("error: ")
        return str(lines[0]).removeprefix("error: ")

    return check


# Endpoints

collect, evolve = "collect", "evolve"


def words_of(command: str, tasks: Path, url: str, seconds: float = 300.0) -> list[str]:
    """A command that asks the endpoint. It gives an answer so many seconds, and failing requests no patience."""
    asking = f"{{timeout: {seconds}, patience: 0.2, concurrency: 4}}"
    if command == evolve:
        words = ["evolve", str(tasks), "--endpoint", url, "--model", "m", "--arch", "cpu"]
        return [*words, *SETTINGS, f"rollout.endpoint.asking={asking}", "rollout.endpoint.asking.share=1.0"]
    teacher = f"{{url: '{url}', model: m, asking: {asking}}}"
    words = ["collect", "local", f"tasks.source={tasks}", f"sft.endpoints.large={teacher}", "sft.teachers=[large]"]
    return [*words, "sft.successes=4", *SETTINGS]


ADDRESS = {collect: "sft.endpoints.large.url: ", evolve: "rollout.endpoint.url: "}


@pytest.fixture
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BACKOFF", Backoff(0.05, 0.1))


@pytest.mark.parametrize("command", [collect, evolve])
def test_an_endpoint_that_is_away(warpsmith, tasks: Path, said, command: str) -> None:
    line = said(warpsmith(*words_of(command, tasks, AWAY)), 2)
    assert f"{AWAY} cannot be reached" in line
    assert "start it, or correct the address" in line
    assert not Path("runs").exists(), "nothing was written"


FAULTS = {
    "errors": (Reply('{"error": {"message": "the model is\\nnot loaded"}}', 500), 1, "does not answer"),
    "times out": (Reply(drip=0.5), 1, "gives no answer in time; see"),
    "hangs up": (Reply(sends=-1), 1, "cannot be reached"),
    "broken JSON": (Reply('{"choices": ['), 2, "gives no chat completion; check the address"),
    "empty text": (Reply(chat("")), 2, "the first 4 answers of http"),
}


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray", "_short_pauses")
@pytest.mark.parametrize("command", [collect, evolve])
def test_an_endpoint_that_answers_badly(warpsmith, tasks: Path, said, caplog: Any, command: str) -> None:
    for name, (reply, code, says) in FAULTS.items():
        caplog.clear()
        with serving(lambda *_, reply=reply: reply) as endpoint:
            words = words_of(command, tasks, endpoint.url, 1.0 if name == "times out" else 300.0)
            line = said(warpsmith(*words, f"name={name.replace(' ', '-')}"), code)
        assert line.startswith(ADDRESS[command]), line
        assert endpoint.url in line
        assert says in line, line
        assert ("the same command again goes on" in line) == (code == 1), line


# Tasks


@pytest.fixture(params=["imports what is not here", "ends at once", "is no Python", "has no Model"])
def broken(request: pytest.FixtureRequest, tasks: Path) -> tuple[Path, str]:
    """A folder with a second task whose program cannot be imported, and what is said of it."""
    text, says = {
        "imports what is not here": (f"import absent_module\n{TASK}", "No module named 'absent_module'"),
        "ends at once": (f"raise RuntimeError('first line\\nsecond line')\n{TASK}", "RuntimeError("),
        "is no Python": ("class Model(:\n", "2_broken.py"),
        "has no Model": ("x = 1\n", "Model"),
    }[request.param]
    (tasks / "level1" / "2_broken.py").write_text(text)
    return tasks, says


@pytest.mark.parametrize("command", ["collect", "run", "run --dry-run", "evolve"])
def test_a_task_whose_program_does_not_import(warpsmith, said, broken: tuple[Path, str], command: str) -> None:
    tasks, says = broken
    settings = [f"tasks.source={tasks}", "tasks.levels=[1]", "tracking.enabled=false", "sft.teachers=[bundled]"]
    if command == "evolve":
        words = ["evolve", str(tasks), "--model", "m", "--arch", "cpu"]
    else:
        name, *options = command.split()
        words = [name, "local", *settings, *options]
    line = said(warpsmith(*words), 2)
    assert says in line
    assert "level1/2" in line or "2_broken.py" in line
    assert not Path("runs").exists(), "nothing was written"


def test_a_program_is_judged_by_no_task_that_does_not_import(warpsmith, said, broken: tuple[Path, str]) -> None:
    tasks, says = broken
    Path("mine.py").write_text(TASK.replace("class Model", "class ModelNew"))
    place = str(tasks / "level1" / "2_broken.py")
    line = said(warpsmith("evaluate", place, "mine.py", "--arch", "cpu"), 2)
    assert says in line


# Run directories


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "runs", "demo")
    run.write_config(load_config("local", ["name=demo", f"root={tmp_path / 'runs'}", "tracking.enabled=false"]))
    write_step(run, "assess/base", 0, {"t1": [None, 1.2]})
    run.write_state(RunState(phase="sft", step=1, finished=True))
    return run


def later_config(folder: Path) -> None:
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(f"{text}learning_to_learn: true\n")


def later_state(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "planet": "Mars"}))


def cut_state(folder: Path) -> None:
    (folder / "state.json").write_text((folder / "state.json").read_text()[:40])


def other_columns(folder: Path) -> None:
    (path,) = folder.glob("samples/*/*/samples.parquet")
    table = pq.read_table(path)
    index = table.schema.get_field_index("response")
    pq.write_table(table.set_column(index, "response", pa.array([[1]] * len(table))), path)


def cut_rows(folder: Path) -> None:
    (path,) = folder.glob("samples/*/*/samples.parquet")
    path.write_bytes(path.read_bytes()[:-40])


def other_kernel(folder: Path) -> None:
    (folder / "kernels" / "t1").mkdir(parents=True, exist_ok=True)
    (folder / "kernels" / "t1" / "cpu.json").write_text('{"task_id": "t1", "arch": "cpu"}')


VERSIONS = {
    later_config: ("config.yaml", "unknown key learning_to_learn"),
    later_state: ("state.json", "another version wrote it"),
    cut_state: ("state.json", "not a run's state"),
    other_columns: ("samples.parquet", "another version wrote it"),
    cut_rows: ("samples.parquet", "it is damaged"),
    other_kernel: ("cpu.json", "another version wrote it"),
}


@pytest.mark.parametrize("change", VERSIONS, ids=lambda change: change.__name__)
def test_a_run_of_another_version_is_not_reported(warpsmith, said, run: RunDirectory, change: Any) -> None:
    folder = Path(str(run))
    change(folder)
    place, says = VERSIONS[change]
    for command in (["report", str(run)], ["compare", str(run), str(run)]):
        line = said(warpsmith(*command), 2)
        assert place in line
        assert says in line


@pytest.mark.parametrize("change", [later_config, later_state, cut_state], ids=lambda change: change.__name__)
def test_a_run_of_another_version_has_no_standing_and_does_not_go_on(
    warpsmith, said, run: RunDirectory, change: Any
) -> None:
    folder = Path(str(run))
    change(folder)
    place, says = VERSIONS[change]
    commands = [["status", str(run)], ["track", str(run)], ["bundle", str(run), "--output", "bundled"]]
    resumed = ["run", "local", "name=demo", f"root={folder.parent}", "tracking.enabled=false"]
    collected = ["collect", "local", "name=demo", f"root={folder.parent}", "tracking.enabled=false"]
    for command in (*commands, resumed, collected):
        line = said(warpsmith(*command), 2)
        assert place in line
        assert says in line


def test_what_is_no_run_directory(warpsmith, said, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in ("report", "status", "track"):
        assert "not a run directory" in said(warpsmith(command, "empty"), 2)
