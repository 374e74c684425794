"""`warpsmith evolve`: bad input gives one line before anything starts, and the plan says what will run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestration.step.endpoint_server import Reply, serving

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


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "mine" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_Relu.py").write_text(TASK)
    (folder / "2_Relu.py").write_text(TASK)
    return folder.parent


def refused(done, says: str) -> None:
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert not Path("runs").exists(), "nothing was written"


def test_the_plan_names_the_endpoint_and_starts_nothing(warpsmith, tasks: Path) -> None:
    with serving(lambda *_: Reply()) as endpoint:
        done = warpsmith("evolve", str(tasks), "--endpoint", endpoint.url, "--model", "m", "--arch", "cpu", "--dry-run")
        assert endpoint.seen == []
    assert done.exit_code == 0, done.output
    assert "name: evolve-mine\n" in done.stdout
    assert "1-evolve" in done.stdout
    assert f"2 tasks on cpu; policy m; answers of {endpoint.url}, 0 learner rank(s)" in " ".join(done.stdout.split())
    assert not Path("runs").exists()


def test_an_endpoint_that_is_away_is_refused(warpsmith, tasks: Path) -> None:
    done = warpsmith("evolve", str(tasks), "--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "--arch", "cpu")
    refused(done, "--endpoint: http://127.0.0.1:9/v1 cannot be reached")


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "http://[/v1", "http://:x/v1"])
def test_what_is_no_address_is_refused(warpsmith, tasks: Path, url: str) -> None:
    done = warpsmith("evolve", str(tasks), "--endpoint", url, "--model", "m", "--arch", "cpu")
    refused(done, url.removeprefix("http://"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import absent_module\n", "import fails: ModuleNotFoundError"),
        ("x = 1\n", "Model"),
        ("class Model(:\n", "2_Relu.py"),
    ],
)
def test_a_task_whose_program_cannot_be_imported_is_refused(warpsmith, tasks: Path, text: str, says: str) -> None:
    (tasks / "level1" / "2_Relu.py").write_text(text + (TASK if "absent" in text else ""))
    with serving(lambda *_: Reply()) as endpoint:
        done = warpsmith("evolve", str(tasks), "--endpoint", endpoint.url, "--model", "m", "--arch", "cpu")
    refused(done, says)
    assert "level1/2" in done.stderr or "2_Relu.py" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--model: name the model"),
        (("--model", "m", "--budget-money", "1"), "evolve.budget.money needs"),
        (("--model", "m", "--feedback", "speed"), "evolve.feedback must be a list of profile or messages"),
        (("--model", "m", "evolve.round=3"), "did you mean evolve.rounds?"),
    ],
)
def test_options_that_do_not_fit_are_refused(warpsmith, tasks: Path, words: tuple[str, ...], says: str) -> None:
    refused(warpsmith("evolve", str(tasks), "--endpoint", "http://127.0.0.1:9/v1", "--arch", "cpu", *words), says)


def test_a_folder_without_tasks_is_refused(warpsmith, tmp_path: Path) -> None:
    refused(warpsmith("evolve", str(tmp_path), "--model", "m", "--arch", "cpu"), "holds no tasks")
    refused(warpsmith("evolve", "absent", "--model", "m", "--arch", "cpu"), "absent: no such file or folder")
