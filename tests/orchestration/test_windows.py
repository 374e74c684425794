"""A run in two windows, with the real Ray, vLLM and DeepSpeed: what follows a bundle is what would have followed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.same_run import compare_runs, read_steps
from orchestration.run.bundle_folder import read_manifest
from orchestration.run.directory import RunDirectory
from tests.orchestration.run.bundled import warpsmith
from tests.orchestration.small import POLICY

REPOSITORY = Path(__file__).resolve().parents[2]
EPOCHS = 40
SMALL = [
    "name=small",
    "tasks.include=[level1/softmax,level1/triangular_matmul,level2/highway_*]",
    "tasks.held_out.tasks=[level2/highway_gate]",
    *POLICY,
    "rollout.max_concurrent=1",  # requests that meet in a batch change each other's last bits
    f"sft.epochs={EPOCHS}",
    "sft.successes=2",
    "sft.batch_size=2",
    "sft.entropy_samples=0",  # forty epochs would sample for minutes
    "sft.learning_rate=0.01",
    "self_supervised.max_rounds=1",
    "self_supervised.samples=2",
    "contrastive_rl.steps=3",
    "contrastive_rl.tasks_per_step=2",
    "contrastive_rl.group_size=4",
    "contrastive_rl.rehearsal=2",
    "checkpoint_every=1",
    "assessment.samples=1",
    "tracking.enabled=false",
    "learner.lora.rank=4",
    "learner.threads=1",
]


def start(root: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "orchestration.commands.main", "run", *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process: subprocess.Popen[str], seconds: float) -> str:
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return output


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_goes_on_from_a_bundle_as_if_never_stopped(tmp_path: Path) -> None:
    """The first window is bundled while it goes on undisturbed; the second begins in an empty root."""
    undisturbed = RunDirectory(str(tmp_path / "first"), "small")
    folder = tmp_path / "bundle"
    process = start(tmp_path, "local", "root=first", *SMALL)
    deadline = time.monotonic() + 1200
    while (state := undisturbed.read_state()) is None or state.phase != "sft" or state.step < 2:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    done = warpsmith("bundle", str(tmp_path / "first" / "small"), "--output", str(folder), "--max-mib", "4")
    assert done.exit_code == 0, done.output
    finish(process, 1200)
    bundled = read_manifest(folder)["run"]
    assert bundled["phase"] == "sft"
    assert 2 <= bundled["step"] < EPOCHS - 2

    # Two measurements are never equal, so programs that the first window judged later keep their verdicts.
    second = start(tmp_path, "--from-bundle", "bundle", "root=second", "evaluator.verdicts_of=[first/small]")
    output = finish(second, 1200)
    assert "assessed base" not in output, "it was made once"
    logged = [int(step) for step in re.findall(r"1-sft +(\d+)/", output)]
    assert logged == list(range(bundled["step"] + 1, EPOCHS + 2)), "no step was made again"
    made = compare_runs(read_steps(tmp_path / "first" / "small"), read_steps(tmp_path / "second" / "small"))
    assert len(made) == (1 + EPOCHS) + 1 + 3 + 4  # steps of the three phases, and the assessments
    assert [one.differences for one in made if one.differences] == []
    losses = undisturbed.metrics.read("1-sft").to_pylist()
    assert len({row["value"] for row in losses if row["name"] == "train/loss"}) > EPOCHS // 2
    for stage in ("base", "sft", "self_supervised", "contrastive_rl"):
        assert stage in output
