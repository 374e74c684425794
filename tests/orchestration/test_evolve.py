"""`warpsmith evolve` and `warpsmith sweep` as users give them: real processes, a real endpoint, and real verdicts.

The model behind the endpoint writes a slow program unless its prompt shows one that is faster than the reference.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestration.report import build_report
from orchestration.run.directory import RunDirectory
from tests.orchestration.processes import HANG_SECONDS, PROGRAM, REPOSITORY, left_of, wait_for
from tests.orchestration.small import POLICY
from tests.orchestration.step.endpoint_server import Endpoint, Reply, answer, chat, serving

TASK = """
import torch
size = 65536
class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range(60):
            x = torch.{name}(x)
        return x
def get_inputs():
    return [torch.rand(size) - 0.5]
def get_init_inputs():
    return []
"""
PROGRAM_OF = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        for _ in range({calls}):
            x = torch.{name}(x)
        return x
# {number}
"""


def write_tasks(folder: Path) -> Path:
    """Two tasks whose reference does the same thing again and again."""
    (folder / "mine" / "level1").mkdir(parents=True)
    for number, name in enumerate(("relu", "abs"), start=1):
        (folder / "mine" / "level1" / f"{number}_{name}.py").write_text(TASK.format(name=name))
    return folder / "mine"


def model(number: int, request: dict[str, Any]) -> Reply:
    """Without exemplars every other program does not compile; the others do half of the work, or nearly none of it."""
    prompt = request["messages"][0]["content"]
    name = "relu" if "torch.relu" in prompt else "abs"
    if "Previous implementations" in prompt:
        return Reply(chat(answer(PROGRAM_OF.format(calls=1 + number % 3, name=name, number=number))))
    if number % 2:
        return Reply(chat(answer("class ModelNew(:")))
    return Reply(chat(answer(PROGRAM_OF.format(calls=30, name=name, number=number))))


@contextmanager
def command(root: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PATH": f"{os.environ['PATH']}{os.pathsep}{root}"}
    environment.pop("RAY_ADDRESS", None)
    process = subprocess.Popen(
        [sys.executable, *PROGRAM, *words], cwd=root, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)


class Evolved(NamedTuple):
    """`kept`: answers that the run had on its disk when it was killed. `asked`: requests of the run that went on."""

    run: RunDirectory
    endpoint: Endpoint
    killed: dict[str, Any]
    kept: int
    asked: int
    output: str


def kill_and_finish(root: Path) -> Evolved:
    """A run of `warpsmith evolve` that is killed after its second round and started again by the same command."""
    tasks, run = write_tasks(root), RunDirectory(str(root / "runs"), "evolve-mine")
    with serving(model) as endpoint:
        words = [
            "evolve", str(tasks), "--endpoint", endpoint.url, "--model", "m", "--arch", "cpu", "--rounds", "4",
            "--samples", "2", "evolve.contrastive_share=1.0",
        ]  # fmt: skip
        with command(root, *words) as first:
            wait_for(first, run, "evolve", 2)
            os.killpg(first.pid, signal.SIGKILL)
            first.communicate(timeout=60)
        killed, before = json.loads((root / "runs" / "evolve-mine" / "state.json").read_text()), len(endpoint.seen)
        kept = run.answers().count
        with command(root, *words) as second:
            output, _ = second.communicate(timeout=HANG_SECONDS)
            assert second.returncode == 0, output
    assert left_of(root) == []
    return Evolved(run, endpoint, killed, kept, len(endpoint.seen) - before, output)


IN_BACKGROUND = {"evolved": kill_and_finish}


@pytest.fixture(scope="session")
def evolved(in_background) -> Evolved:
    found: Evolved = in_background("evolved")
    return found


@pytest.mark.slow
def test_a_killed_run_goes_on_and_pays_for_no_answer_twice(evolved: Evolved) -> None:
    state = evolved.run.read_state()
    assert state is not None
    assert state.finished
    assert 2 <= evolved.killed["step"] < 4
    assert state.checkpoint is None, "nothing was learnt"
    rows = evolved.run.samples.read().to_pylist()
    assert len(rows) == 4 * 2 * 2
    assert evolved.kept >= evolved.killed["step"] * 2 * 2
    assert evolved.asked == len(rows) - evolved.kept, "only what the disk did not have is asked for"


@pytest.mark.slow
def test_later_rounds_show_what_was_found_and_find_better(evolved: Evolved) -> None:
    rows = evolved.run.samples.read().to_pylist()
    assert not [row for row in rows if row["step"] == 0 and "Previous implementations" in row["prompt"]]
    assert all("Previous implementations" in row["prompt"] for row in rows if row["step"] == 3)
    measured = [row["prompt"] for row in rows if row["step"] == 3]
    assert all("What was measured of it:\n- A call takes" in prompt for prompt in measured)
    (group,) = build_report(evolved.run).groups
    best = [point.best.value for point in group.rounds]
    assert [point.samples for point in group.rounds] == [2, 4, 6, 8]
    assert best == sorted(best)
    assert best[-1] > 1.3 * best[0]


@pytest.mark.slow
def test_the_end_names_the_best_program_of_each_task_and_its_file(evolved: Evolved) -> None:
    lines = evolved.output.splitlines()
    (spent,) = [line for line in lines if "programs judged" in line]
    judged = len(set(evolved.run.verdicts.read(columns=["candidate"])["candidate"].to_pylist()))
    assert spent == f"{judged} programs judged, {16 * 140} tokens"
    for task in ("level1/1", "level1/2"):
        (line,) = [line for line in lines if line.startswith(f"{task} ") and line.endswith(".py")]
        source = Path(line.split()[-1]).read_text()
        assert "range(30)" not in source


@pytest.mark.slow
def test_vanilla_and_evolve_of_a_sweep_with_own_engines_have_no_learner_and_give_a_table(tmp_path: Path) -> None:
    """A policy that was never trained is right now and then at best; the table says so."""
    (tmp_path / "base.yaml").write_text(
        "tasks: {include: [level1/softmax, level1/triangular_matmul], held_out: {tasks: [level1/triangular_matmul]}}\n"
        "tracking: {enabled: false}\nrollout: {max_concurrent: 16}\n"
    )
    for name in ("vanilla", "evolve"):
        (tmp_path / f"{name}.yaml").write_text(
            f"base: base.yaml\nschedule: {{phases: [{name}]}}\n{name}: {{rounds: 2, samples: 2}}\n"
            "policy: {max_length: 1024}\n"
        )
    (tmp_path / "study.yml").write_text(
        f"root: {tmp_path}/runs\narms: [vanilla, evolve]\nseeds: [0]\nsettings: {json.dumps(POLICY)}\n"
    )
    with command(tmp_path, "sweep", "study.yml") as process:
        output, _ = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0, output
    for name in ("vanilla-s0", "evolve-s0"):
        run = RunDirectory(str(tmp_path / "runs"), name)
        assert run.read_state().finished  # type: ignore[union-attr]
        assert len(run.samples.read().to_pylist()) == 2 * 2 * 2
        roles = {row["name"] for row in run.metrics.read().to_pylist() if row["name"].startswith("utilisation/")}
        assert roles == {"utilisation/engines", "utilisation/builders", "utilisation/evaluators"}
    with command(tmp_path, "sweep", "study.yml", "--table") as process:
        table, _ = process.communicate(timeout=HANG_SECONDS)
    assert "Training tasks" in table
    assert "Held-out tasks" in table
    rows = [line.split()[0] for line in table.splitlines() if line.strip()]
    assert rows.count("vanilla") == rows.count("evolve") == 2
    assert output.endswith(table)
    with command(tmp_path, "sweep", "study.yml") as process:
        again, _ = process.communicate(timeout=HANG_SECONDS)
    assert again.count("finished before") == 2
    assert again.endswith(table)


@pytest.mark.slow
def test_arms_that_branch_off_one_run_share_its_policy_and_its_rows(tmp_path: Path) -> None:
    """The second arm differs in its strategy, and in a phase of its own, which it ends."""
    (tmp_path / "taught.yaml").write_text(
        "tasks: {include: [level1/softmax, level1/triangular_matmul], held_out: {tasks: [level1/triangular_matmul]}}\n"
        "schedule: {phases: [sft]}\nsft: {epochs: 2, successes: 1}\nassessment: {samples: 1}\n"
        "tracking: {enabled: false}\nrollout: {max_concurrent: 16}\npolicy: {max_length: 1024}\n"
    )
    (tmp_path / "further.yaml").write_text(
        "base: taught.yaml\nschedule: {phases: [sft, contrastive_rl]}\nbuffer: {strategy: random}\n"
        "contrastive_rl: {steps: 1, tasks_per_step: 1, group_size: 2}\n"
    )
    (tmp_path / "study.yml").write_text(
        f"root: {tmp_path}/runs\narms: [taught, further]\nseeds: [3]\nbranches: {{further: taught}}\n"
        f"settings: {json.dumps(POLICY)}\n"
    )
    with command(tmp_path, "sweep", "study.yml") as process:
        output, _ = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0, output
    taught, further = (RunDirectory(str(tmp_path / "runs"), f"{name}-s3") for name in ("taught", "further"))
    state = further.read_state()
    assert state is not None
    assert state.finished
    assert state.extra["branch"]["run"] == "taught-s3"
    assert state.extra["completed"] == ["1-sft", "1-contrastive_rl"]
    shared, mine = taught.samples.read().to_pylist(), further.samples.read().to_pylist()
    assert [row for row in mine if "contrastive_rl" not in row["phase"]] == shared
    assert {row["phase"] for row in mine} - {row["phase"] for row in shared} == {
        "1-contrastive_rl",
        "assess/1-contrastive_rl",
    }
    with command(tmp_path, "sweep", "study.yml") as process:
        again, _ = process.communicate(timeout=HANG_SECONDS)
    assert again.count("finished before") == 2
