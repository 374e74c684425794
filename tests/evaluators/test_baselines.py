"""A baseline is measured once for a task, its sizes and the versions; one that fails is absent, and says why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluators.baselines import BaselineResult, BaselineStore, baseline_source, existing_baselines
from evaluators.evaluator import Evaluator
from evaluators.records import Estimate, Outcome, Task

MODEL = """
import torch
import torch.nn as nn


class Model(nn.Module):
    %s
    def forward(self, x):
        return torch.tanh(x) * torch.sigmoid(x) + x


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []
"""
TASK = Task("test/gate", 1, "gate", MODEL % "")
REFUSING = Task(
    "test/refusing",
    1,
    "refusing",
    MODEL
    % """
    def __setattr__(self, name, value):
        if name == "compiled":
            raise AttributeError("not this one")
        super().__setattr__(name, value)
""",
)
VERSIONS = {"torch": "2"}
SPEEDUP = BaselineResult(Estimate(1.5, 1.4, 1.6, 20))


def candidate(task: Task, extra: str = "") -> str:
    return task.source.replace("Model(", "ModelNew(") + extra


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def comparing(store, limits) -> Iterator[Evaluator]:
    """An evaluator that measures a baseline beside eager."""
    with Evaluator(arch="cpu", limits=limits, store=store, baselines=("eager", "torch_compile")) as made:
        yield made


@pytest.mark.slow
def test_a_baseline_is_measured_once_and_then_read(comparing, store, limits) -> None:
    verdict = comparing.evaluate(TASK, candidate(TASK))
    assert verdict.outcome is Outcome.OK, verdict.message
    assert set(verdict.speedups) == {"eager", "torch_compile"}
    measured = comparing.baseline(TASK, "torch_compile")
    assert measured.speedup.value * verdict.speedups["torch_compile"].value == pytest.approx(verdict.speedup)
    assert verdict.speedups["torch_compile"].low < verdict.speedups["torch_compile"].high
    with Evaluator(arch="cpu", limits=limits, store=store) as another:
        start = time.perf_counter()
        assert another.baseline(TASK, "torch_compile") == measured
        assert time.perf_counter() - start < 0.5


def test_a_baseline_that_fails_is_absent_with_a_reason(comparing) -> None:
    verdict = comparing.evaluate(REFUSING, candidate(REFUSING))
    assert verdict.outcome is Outcome.OK, verdict.message
    assert set(verdict.speedups) == {"eager"}
    result = comparing.baseline(REFUSING, "torch_compile")
    assert result.speedup is None
    assert "not this one" in result.reason


def test_a_stored_baseline_belongs_to_its_task_sizes_and_versions(tmp_path) -> None:
    store = BaselineStore(tmp_path)
    store.put(TASK, "torch_compile", VERSIONS, SPEEDUP)
    assert BaselineStore(tmp_path).get(TASK, "torch_compile", VERSIONS) == SPEEDUP
    assert store.get(TASK.with_sizes(n=1), "torch_compile", VERSIONS) is None
    assert store.get(TASK, "torch_compile_reduce_overhead", VERSIONS) is None
    assert store.get(TASK, "torch_compile", {"torch": "3"}) is None
    store.put(REFUSING, "torch_compile", VERSIONS, BaselineResult(None, "why"))
    assert store.get(REFUSING, "torch_compile", VERSIONS) == BaselineResult(None, "why")


def test_every_baseline_but_eager_is_a_program() -> None:
    for name in existing_baselines("cpu"):
        if name != "eager":
            compile(baseline_source(TASK.with_sizes(), name), name, "exec")
    with pytest.raises(ValueError, match="eager"):
        baseline_source(TASK, "eager")
