"""A run on tasks that have KernelBench's numbers."""

from __future__ import annotations

from pathlib import Path

from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from tests.orchestration.report.full_run import BASELINES, FullRun

REFERENCE = "class Model: ..."
TASKS = ("level1/1", "level1/2", "level1/10", "level2/3", "level1/softmax")


def write_numbered_run(root: Path, name: str = "mine") -> RunDirectory:
    """Two stages, the last one with two samples a task. One of the tasks is a bundled one, which has no number."""
    config = RunConfig(name=name, root=str(root))
    config.evaluator.baselines = BASELINES
    full = FullRun(RunDirectory(root, name), config, references=dict.fromkeys(TASKS, REFERENCE))
    full.run.write_config(config)
    full.assess("base", {"level1/1": [1.1, 4.0], "level1/2": [None, None], "level1/10": [None, 80.0]})
    full.assess(
        "1-contrastive_rl",
        {
            "level1/1": [1.6, 3.0],
            "level1/2": [None, None],
            "level1/10": [0.9, 80.0],
            "level2/3": [2.5, 1.2],
            "level1/softmax": [1.5, None],
        },
    )
    return full.run
