"""`warpsmith run --dry-run` through its front door. Real runs are tested in tests/orchestration/test_run.py."""

from pathlib import Path


def test_dry_run_prints_the_plan_and_writes_nothing(warpsmith, tmp_path: Path) -> None:
    done = warpsmith("run", "local", "--dry-run", "contrastive_rl.steps=7")
    assert done.exit_code == 0, done.output
    assert "contrastive_rl" in done.stdout
    assert "24 tasks on cpu" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_the_memory_of_a_run_and_refuses_one_that_cannot_fit(warpsmith) -> None:
    done = warpsmith("run", "local", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "GiB each" in done.stdout
    sizes = ["policy.scratch.hidden_size=16384", "policy.scratch.layers=200", "policy.scratch.heads=128"]
    refused = warpsmith("run", "local", "--dry-run", *sizes)
    assert refused.exit_code == 2
    assert "learner" in refused.output


def test_auto_stands_for_the_architecture_of_the_machine(warpsmith) -> None:
    done = warpsmith("run", "local", "--dry-run", "evaluator.arch=auto")
    assert done.exit_code == 0, done.output
    assert "24 tasks on auto" not in done.stdout
    assert "24 tasks on " in done.stdout
