"""Branches continue from the same policy, each with settings of its own, and finished runs are not repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestration.run.directory import RunDirectory

TINY = [
    "tasks.include=[level1/softmax,level1/triangular_matmul]",
    "policy.scratch.hidden_size=64",
    "policy.scratch.intermediate_size=128",
    "policy.scratch.heads=2",
    "policy.scratch.kv_heads=1",
    "sft.epochs=1",
    "sft.tries=1",
    "self_supervised.max_rounds=1",
    "self_supervised.samples=1",
    "contrastive_rl.steps=1",
    "contrastive_rl.tasks_per_step=2",
    "contrastive_rl.group_size=2",
    "contrastive_rl.kl=0",
    "contrastive_rl.negative_weight=1",  # which a branch overrides
    "assessment.samples=1",
    "rollout.max_tokens=16",
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_branches_share_their_start_and_nothing_else(tmp_path: Path) -> None:
    branches = ["--branch", "plain", "--branch", "other contrastive_rl.negative_weight=0.25"]
    command = [sys.executable, "-m", "benchmarks.branches", "--root", str(tmp_path), *branches, *TINY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    *rows, difference = [line for line in done.stdout.rpartition("───")[2].splitlines() if line.strip()]
    names = [line.split()[0] for line in rows]
    assert names == ["start", "plain", "other"]
    assert difference.startswith("other minus plain: right ")
    start, plain, other = (RunDirectory(str(tmp_path / "seed-0"), name) for name in names)
    for run in (plain, other):
        assert run.verdicts.read("1-sft") == start.verdicts.read("1-sft")
        assert run.samples.read("assess/1-self_supervised") == start.samples.read("assess/1-self_supervised")
        assert len(run.samples.read("1-contrastive_rl")) == 4
        state = run.read_state()
        assert state is not None
        assert state.finished
    weights = [run.read_config().contrastive_rl.negative_weight for run in (start, plain, other)]
    assert weights == [1.0, 1.0, 0.25]
    again = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert again.stdout == done.stdout
    assert len(again.stderr) < len(done.stderr)
