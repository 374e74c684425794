"""Candidates of many measurements are built before them, in parallel, and found when they are measured."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from configs.schema import LimitsConfig
from evaluators.compile import ahead
from evaluators.compile.ahead import build_all, most_builders
from evaluators.evaluator import Evaluator
from evaluators.records import Candidate
from evaluators.tasks import find_task
from tests.folders import open_folder

BROKEN = """
import torch
from torch.utils.cpp_extension import load_inline

extension = load_inline(name="broken", cpp_sources="int one() { return 1 }", functions=["one"])


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return inputs[0]
"""


@pytest.mark.slow
def test_a_candidate_built_ahead_is_found_and_measured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, ahead.__name__)
    tasks = [find_task("level1/softmax", "cpu")]
    broken = Candidate.propose(tasks[0].id, BROKEN, "test")
    with (
        open_folder() as store,
        Evaluator("cpu", store=store, baselines=["eager", "torch_compile"]) as evaluator,
    ):
        jobs = evaluator.unbuilt_baselines(tasks)
        assert [(task.id, baseline.author) for task, baseline in jobs] == [
            (task.id, "baseline:torch_compile") for task in tasks
        ]

        build_all([*jobs, (tasks[0], broken)], "cpu", store, LimitsConfig(), 2)

        assert evaluator.unbuilt_baselines(tasks) == []
        built = [evaluator.builder.build(*job) for job in jobs]  # what was built ahead
        assert all(artifact.seconds > 0 and list(Path(artifact.path).rglob("*.so")) for artifact in built)
        assert evaluator.baseline(tasks[0], "torch_compile").speedup is not None
    messages = [record.getMessage() for record in caplog.records if record.name == ahead.__name__]
    assert len(messages) == 1
    assert messages[0].startswith("level1/softmax test: compile: ")


def test_there_is_at_most_one_builder_a_core() -> None:
    assert 1 <= most_builders() <= len(os.sched_getaffinity(0))
