"""`make chaos` in short: a run of all real parts outlasts one fault of several kinds, and is as if nobody had disturbed
it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.orchestration.processes import REPOSITORY

SHORT = [
    "schedule.phases=[sft,contrastive_rl]",
    "schedule.cycles=1",
    "tasks.include=[level1/softmax,level1/gelu_tanh,level2/highway_gate]",
    "sft.successes=3",
    "sft.tries=4",
    "contrastive_rl.tasks_per_step=1",
    "contrastive_rl.rehearsal=0",
]
KINDS = ["evaluator killed", "learner rank killed", "driver killed while it wrote", "storage refuses", "clock jumps"]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_short_run_outlasts_a_fault_of_several_kinds() -> None:
    chaos = [sys.executable, "-m", "tests.chaos", f"--faults={len(KINDS)}", "--steps=5", "--seed=5", "--pause=2"]
    done = subprocess.run(
        [*chaos, *SHORT, "--kinds", *KINDS], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(KINDS)} faults of" in done.stdout
