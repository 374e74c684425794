"""A small run that the tests of bundles share: committed in the middle of contrastive RL, with one step beyond."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import Result
from typer.testing import CliRunner

from configs.schema import PolicyConfig, RunConfig, ScratchConfig, TasksConfig
from evaluators.guard.cases import HackCase, HackCases, Status
from evaluators.records import Candidate, Correctness, Estimate, Outcome, Timing, Verdict
from learners.policy import make_policy
from learners.records import Rollout
from orchestration.commands.main import app
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState
from orchestration.step.constants import NEAREST_LESSONS, REFERENCES
from prompts.buffer import ExemplarBuffer

TASKS = ("level1/gelu_tanh", "level1/softmax")
STEPS = [
    ("assess/base", 0), ("1-sft", 0), ("1-sft", 1), ("assess/1-sft", 0),
    ("1-contrastive_rl", 0), ("1-contrastive_rl", 1), ("1-contrastive_rl", 2),
]  # fmt: skip
COMMITTED = STEPS[:-1]


@dataclass
class SmallRun:
    """The run, its policy, and the folder that its bundles are written to."""

    run: RunDirectory
    policy: Path
    folder: Path

    @property
    def path(self) -> Path:
        assert self.run.local_path is not None
        return self.run.local_path

    def bundle(self, *options: str) -> Result:
        """`warpsmith bundle` of it."""
        return warpsmith("bundle", str(self.path), "--output", str(self.folder), *options)

    def commit(self, **changes: Any) -> RunState:
        """Changes its committed state."""
        state = RunState(**{**vars(self.run.read_state() or RunState()), **changes})
        self.run.write_state(state)
        return state


def judge_constants(small: SmallRun) -> None:
    """Stores and commits rows of the constant policies, as the end of a run does."""
    extra = (small.run.read_state() or RunState()).extra
    buffer = ExemplarBuffer(small.run.read_config().buffer, "cpu", 0)
    for number, policy in enumerate((NEAREST_LESSONS, REFERENCES), start=len(STEPS)):
        write_step(small.run, policy, 0, number, buffer)
    small.commit(extra={**extra, "assessed": [*extra["assessed"], NEAREST_LESSONS, REFERENCES]})


def copy_of(made: SmallRun, root: Path) -> SmallRun:
    """A copy of a run and of its bundle, if there is one, that a test may change. To make a run takes a second."""
    run = RunDirectory(str(root), made.run.name)
    shutil.copytree(made.path, root / made.run.name)
    copy = SmallRun(run, made.policy, root.parent / "bundle")
    if made.folder.is_dir() and not copy.folder.exists():
        shutil.copytree(made.folder, copy.folder)
    return copy


def warpsmith(*arguments: str) -> Result:
    """The command in this process: a new one would spend seconds on imports."""
    return CliRunner().invoke(app, list(arguments))


def small_policy(folder: Path, seed: int = 3) -> Path:
    """A random policy of about 50,000 parameters with a tokenizer of few words."""
    scratch = ScratchConfig(vocab_size=320, hidden_size=32, intermediate_size=64, layers=2, heads=4, kv_heads=2)
    make_policy(folder, ["class ModelNew(nn.Module):\n    return torch.relu(x)\n"], scratch, max_length=128, seed=seed)
    return folder


def begin_run(root: Path, policy: Path, name: str = "demo") -> SmallRun:
    """Writes the run with a checkpoint of noise, 40 samples a step, and a store of its own."""
    config = RunConfig(
        name=name,
        root=str(root),
        tasks=TasksConfig(include=list(TASKS)),
        policy=PolicyConfig(model=str(policy), max_length=4096),
    )
    run = RunDirectory(config.root, name)
    run.identity()
    run.write_marks({})
    run.write_held_out([TASKS[1]])
    buffer = ExemplarBuffer(config.buffer, "cpu", 0)
    for number, (phase, step) in enumerate(STEPS):
        write_step(run, phase, step, number, buffer)
    local = run.checkpoints.new_folder("step-000004")
    noise = np.random.default_rng(0).normal(0.0, 0.02, 50_000).astype(np.float32).tobytes()
    for path, content in {
        "deepspeed/weights.pt": noise,
        "latest": b"deepspeed",
        "policy/model.safetensors": noise,
    }.items():
        (local / path).parent.mkdir(parents=True, exist_ok=True)
        (local / path).write_bytes(content)
    extra = {"assessed": ["base", "1-sft"], "completed": ["1-sft"], "1-sft": {"lessons": [{"source": "x" * 1000}]}}
    state = RunState(
        1, "contrastive_rl", 2, 4, run.checkpoints.publish(local, "step-000004"),
        run.buffers.write(buffer.to_table(), 4), extra=extra,
    )  # fmt: skip
    store = run.store_of(config)
    (store / "baselines").mkdir(parents=True)
    (store / "baselines" / "abc.json").write_text('{"task": "level1/softmax"}')
    case = HackCase("", TASKS[0], "cpu", Status.CONFIRMED, ("clocks",), "it cheats", "x = 'hack'", "demo", "2026-01-01")
    HackCases(store / "hacks.parquet").add([case])
    run.write_state(state)
    run.write_config(config)
    return SmallRun(run, policy, root.parent / "bundle")


def write_step(run: RunDirectory, phase: str, step: int, number: int, buffer: ExemplarBuffer) -> None:
    """A step of 40 samples with texts, and as many programs and verdicts."""
    random = np.random.default_rng(number)
    rollouts, candidates, verdicts = [], [], []
    for index in range(40):
        task, speedup = TASKS[index % 2], float(random.uniform(0.5, 2.0))
        candidate = Candidate.propose(task, f"n = {number}, {index}", f"policy:{number}")
        estimate = Estimate(speedup, speedup - 0.1, speedup + 0.1, 30)
        verdict = Verdict(
            candidate.digest, task, "cpu", Outcome.OK, correctness=Correctness(8, float(random.random()), 1e-4),
            speedups={"eager": estimate}, timing=Timing(estimate, estimate, 30, "interval", 0.0),
            evaluator={"preset": "fast", "task_digest": "t"}, cost={"time": float(random.random())},
        )  # fmt: skip
        buffer.add(candidate, verdict, number)
        ids = tuple(random.integers(0, 50_000, 60).tolist())
        logprobs = tuple(-random.random(60))
        rollouts.append(
            Rollout(
                task, task, f"prompt {random.bytes(40).hex()}", f"response {index}", ids, ids, logprobs, number,
                candidate_digest=candidate.digest, outcome="ok", reward=speedup, advantage=speedup - 1, copy_of="",
            )
        )  # fmt: skip
        candidates.append(candidate)
        verdicts.append(verdict)
        run.kernels.save(task, "cpu", candidate, verdict)
    run.samples.write(phase, step, rollouts)
    run.candidates.write(phase, step, candidates)
    run.verdicts.write(phase, step, verdicts)
    run.metrics.write(phase, step, {"train/loss": float(random.random())})
