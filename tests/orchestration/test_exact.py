"""Resume is exact: a run that is killed after every commit, and within steps, is the undisturbed run to the last bit.

Everything is real: Ray, vLLM, DeepSpeed, evaluators, and SIGKILL. Two measurements are never equal, so the killed run
takes its verdicts from the undisturbed one (`evaluator.verdicts_of`). `make exact` kills after every commit; by itself,
the test kills after every fifth one, since each start takes half a minute. The killed runs measure nothing, so they run
side by side.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from benchmarks.same_run import compare_runs, read_steps
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState
from tests.orchestration.small import POLICY

REPOSITORY = Path(__file__).resolve().parents[2]
EPOCHS = 40
EVERY = int(os.environ.get("EXACT_EVERY", "5"))
SEED = 20250607
TASKS = [
    "tasks.include=[level1/softmax,level1/triangular_matmul,level2/diagonal_rank_one_matmul_relu,level2/highway_*]",
    "tasks.held_out.tasks=[level2/highway_gate]",
    *POLICY,
    "sft.successes=2",
    "sft.batch_size=2",
    "assessment.samples=1",
    "tracking.enabled=false",
    "ray.num_cpus=8",
]
TAUGHT = ["name=taught", "schedule.phases=[sft]", f"sft.epochs={EPOCHS}", "sft.entropy_samples=0",
          "sft.learning_rate=0.01"]  # fmt: skip
SETTINGS = {
    "ahead": [  # all three phases, all weights, and steps sampled ahead
        "sft.epochs=2",
        "sft.entropy_samples=2",
        "sft.learning_rate=0.001",
        "self_supervised.max_rounds=1",
        "self_supervised.samples=2",
        "contrastive_rl.steps=4",
        "contrastive_rl.max_staleness=1",
        "contrastive_rl.draw=variation",
        "checkpoint_every=1",
    ],
    "adapters": [  # adapters alone, tasks that may come twice, repair turns, and two steps between commits
        "learner.lora.rank=4",
        "sft.epochs=2",
        "sft.entropy_samples=0",
        "sft.learning_rate=0.001",
        "self_supervised.max_rounds=1",
        "self_supervised.samples=2",
        "contrastive_rl.steps=4",
        "contrastive_rl.draw=replace",
        "contrastive_rl.repair_turns=1",
        "checkpoint_every=2",
    ],
}
EVERY_COMMIT = {"ahead": 1, "adapters": 2}
"""Steps of contrastive RL between two commits."""
COMMON = [
    "name=small",
    "contrastive_rl.tasks_per_step=2",
    "contrastive_rl.group_size=4",
    "contrastive_rl.contrastive_share=0.5",
    "contrastive_rl.rehearsal=2",
]


def start(root: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "orchestration.commands.main", "run", "deterministic", f"root={root}", *TASKS]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        [*command, *words], cwd=root.parent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=900)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return output


def position(state: RunState | None) -> tuple[object, ...]:
    """How far a run has committed; another one after each commit."""
    if state is None:
        return ()
    done = (tuple(state.extra.get(name, ())) for name in ("completed", "assessed"))
    return state.cycle, state.phase, state.step, state.policy_version, *done


def kill(process: subprocess.Popen[str]) -> str:
    os.killpg(process.pid, signal.SIGKILL)
    return process.communicate(timeout=60)[0]


class Killed(NamedTuple):
    """Where a run stood at each kill, and the phases in which kills came at a random moment."""

    after: list[tuple[object, ...]]
    within: list[str]


def kill_again_and_again(root: Path, words: list[str], chance: random.Random) -> Killed:
    """Starts a run until it is finished. It is killed as soon as it has committed `EVERY` times more; the second
    time, and every third one after that, within the step after, at a random moment."""
    run, killed = RunDirectory(str(root), "small"), Killed([], [])
    while True:
        process = start(root, *words)
        before, commits = position(run.read_state()), 0
        seen = before
        while commits < EVERY and process.poll() is None:
            time.sleep(0.005)
            if position(state := run.read_state()) != seen:
                seen, commits = position(state), commits + 1
        state = run.read_state()
        assert state is not None, process.communicate()[0]
        if process.poll() is not None:
            assert process.returncode == 0, process.communicate()[0]
            assert state.finished
            return killed
        if before and len(killed.after) % 3 == 1:
            seconds, began, since = chance.uniform(0.1, 1.5), position(state), time.monotonic()
            while time.monotonic() < since + seconds and position(run.read_state()) == began:
                time.sleep(0.005)
            if process.poll() is None and position(run.read_state()) == began:
                killed.within.append(f"{seconds:.2f} s after {began[1:4]}")
        kill(process)
        killed.after.append(position(run.read_state()))
        assert len(killed.after) < 60


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that writes programs: without any, rewards are alike and nothing is learnt."""
    root = tmp_path_factory.mktemp("taught") / "runs"
    finish(start(root, *TAUGHT))
    state = RunDirectory(str(root), "taught").read_state()
    assert state is not None
    return root / "taught" / str(state.checkpoint) / "policy"


class Pair(NamedTuple):
    """A run that nothing disturbed, the same one killed again and again, and its kills."""

    undisturbed: RunDirectory
    killed: RunDirectory
    kills: Killed


@pytest.fixture(scope="module")
def pairs(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Pair]:
    """By kind of settings."""
    folder = tmp_path_factory.mktemp("work")
    words = {kind: [f"policy.model={taught}", *COMMON, *settings] for kind, settings in SETTINGS.items()}
    roots = {kind: (folder / kind / "undisturbed", folder / kind / "killed") for kind in SETTINGS}
    for kind, (root, _) in roots.items():
        (folder / kind).mkdir()
        finish(start(root, *words[kind]))

    def disturb(kind: str) -> Pair:
        root, killed = roots[kind]
        recorded = f"evaluator.verdicts_of=[{root / 'small'}]"
        kills = kill_again_and_again(killed, [*words[kind], recorded], random.Random(SEED))
        return Pair(RunDirectory(str(root), "small"), RunDirectory(str(killed), "small"), kills)

    with ThreadPoolExecutor(len(SETTINGS)) as pool:
        return dict(zip(SETTINGS, pool.map(disturb, SETTINGS), strict=True))


def assert_same(first: Any, second: Any, where: str) -> None:
    """Compares what torch has loaded, to the last bit."""
    assert type(first) is type(second), where
    if isinstance(first, torch.Tensor):
        assert first.dtype == second.dtype, where
        assert torch.equal(first, second), where
    elif isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_same(first[key], second[key], f"{where}/{key}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), where
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_same(one, other, f"{where}/{index}")
    elif not hasattr(first, "__dict__"):
        assert first == second, where


def assert_same_snapshots(first: RunDirectory, second: RunDirectory) -> None:
    """Compares the last states: weights, moments, random states, reference, buffer, memories of phases."""
    states = [run.read_state() for run in (first, second)]
    one, other = (state for state in states if state is not None)
    assert position(one) == position(other)
    memories = [{key: value for key, value in state.extra.items() if key[0].isdigit()} for state in (one, other)]
    for memory in (phase for kept in memories for phase in kept.values()):
        memory.pop("seconds", None)
    assert json.dumps(memories[0], sort_keys=True) == json.dumps(memories[1], sort_keys=True)
    buffers: list[pa.Table] = [run.buffers.read(str(state.buffer)) for run, state in ((first, one), (second, other))]
    assert buffers[0].equals(buffers[1], check_metadata=True)
    folders = [run.checkpoints.fetch(str(state.checkpoint)) for run, state in ((first, one), (second, other))]
    names = [sorted(path.relative_to(folder) for path in folder.rglob("*.*")) for folder in folders]
    assert names[0] == names[1]
    assert any(name.name.endswith("optim_states.pt") for name in names[0])
    for name in names[0]:
        if name.suffix == ".pt":
            assert_same(*(torch.load(folder / name, weights_only=False) for folder in folders), str(name))
        elif name.suffix == ".safetensors":
            assert_same(*(load_file(folder / name) for folder in folders), str(name))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", [*SETTINGS])
def test_a_run_that_is_killed_after_every_commit_is_the_undisturbed_one(
    pairs: Mapping[str, Pair], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, killed = pairs[kind]
    with capsys.disabled():
        print(f"\n{kind}: killed {len(killed.after)} times, seed {SEED}; within steps {', '.join(killed.within)}")
    made = compare_runs(*(read_steps(Path(str(run))) for run in (first, second)))
    assert [(one.phase, one.step, one.differences[:3]) for one in made if one.differences] == []
    assert_same_snapshots(first, second)
    last = first.read_state()
    assert last is not None
    commits = len(last.extra["completed"]) + len(last.extra["assessed"]) + 4 // EVERY_COMMIT[kind]
    assert len(killed.after) >= commits // EVERY
    assert killed.within
    losses = {row["value"] for row in first.metrics.read("1-contrastive_rl").to_pylist() if row["name"] == "train/loss"}
    assert len(losses) > 2, "the policy learns of different rewards"
    samples = first.samples.read("1-contrastive_rl").to_pylist()
    behind = 3 if kind == "ahead" else 2  # of four steps the third, sampled one step ahead or not
    assert {row["policy_version"] for row in samples if row["step"] == 2} == {last.policy_version - behind}
