"""A baseline is measured once for a task, its sizes and the versions. If it fails, it is absent, with a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.evaluator import Evaluator
from evaluators.records import Estimate, Outcome, Task
from evaluators.stored.baselines import BaselineResult, BaselineStore, baseline_source, existing_baselines
from tests.evaluators.conftest import LIMITS

pytestmark = pytest.mark.measures

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
# Constructing it takes longer than the measuring slot allows, but not longer than a builder does.
HANGING = Task(
    "test/hanging",
    1,
    "hanging",
    MODEL
    % f"""
    def __setattr__(self, name, value):
        if name == "compiled":
            import time
            time.sleep({2 * LIMITS.start_seconds})
            raise AttributeError("at last")
        super().__setattr__(name, value)
""",
)
VERSIONS = {"torch": "2"}
SPEEDUP = BaselineResult(Estimate(1.5, 1.4, 1.6, 20), eager_seconds=2.5e-4)


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
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
    assert set(verdict.speedups) == {"eager", "torch_compile"}
    measured = comparing.baseline(TASK, "torch_compile")
    assert 0 < measured.eager_seconds < 1
    assert measured.speedup.value * verdict.speedups["torch_compile"].value == pytest.approx(verdict.speedup)
    assert verdict.speedups["torch_compile"].low < verdict.speedups["torch_compile"].high
    with Evaluator(arch="cpu", limits=limits, store=store) as another:
        assert another.baseline(TASK, "torch_compile") == measured, "to the last digit of its seconds"


@pytest.mark.slow
def test_a_baseline_that_fails_is_absent_with_a_reason(comparing) -> None:
    verdict = comparing.evaluate(REFUSING, candidate(REFUSING))
    assert verdict.outcome is Outcome.OK, verdict.message or verdict.guard
    assert set(verdict.speedups) == {"eager"}
    result = comparing.baseline(REFUSING, "torch_compile")
    assert result.speedup is None
    assert "not this one" in result.reason


@pytest.mark.slow
def test_a_baseline_that_ran_out_of_time_is_absent_and_not_stored(comparing, store, limits) -> None:
    result = comparing.baseline(HANGING, "torch_compile")
    assert result.speedup is None
    assert result.reason == f"no answer within {limits.start_seconds} s"
    stored = BaselineStore(store)
    assert stored.get(HANGING, "torch_compile", comparing.device.versions()) is None
    assert comparing.baseline(REFUSING, "torch_compile").speedup is None
    assert stored.get(REFUSING, "torch_compile", comparing.device.versions()) is not None


def test_without_measuring_speedups_are_over_what_the_store_has(tmp_path, limits) -> None:
    names = ("eager", "torch_compile")
    with Evaluator(arch="cpu", limits=limits, store=tmp_path, baselines=names, measures_baselines=False) as evaluator:
        BaselineStore(tmp_path).put(TASK, "torch_compile", evaluator.device.versions(), SPEEDUP)
        known, unknown = (evaluator.evaluate(task, candidate(task)) for task in (TASK, REFUSING))
    assert known.speedups["torch_compile"].value == pytest.approx(known.speedup / 1.5)
    assert unknown.outcome is Outcome.OK, unknown.message or unknown.guard
    assert set(unknown.speedups) == {"eager"}
    assert len(list((tmp_path / "baselines").iterdir())) == 1, "nothing was measured"


def test_the_seconds_of_eager_are_stored_and_read_back(tmp_path) -> None:
    BaselineStore(tmp_path).put(TASK, "torch_compile", VERSIONS, SPEEDUP)
    assert BaselineStore(tmp_path).get(TASK, "torch_compile", VERSIONS).eager_seconds == 2.5e-4
    [path] = (tmp_path / "baselines").iterdir()
    entry = json.loads(path.read_text())
    del entry["eager_seconds"]  # a store that is older than this field does not have it
    path.write_text(json.dumps(entry))
    assert BaselineStore(tmp_path).get(TASK, "torch_compile", VERSIONS) == replace(SPEEDUP, eager_seconds=None)


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
    for name in existing_baselines("H200"):
        if name != "eager":
            program: dict[str, Any] = {}
            exec(compile(baseline_source(TASK, name), name, "exec"), program)
            assert issubclass(program["ModelNew"], program["Model"])
    with pytest.raises(ValueError, match="eager"):
        baseline_source(TASK, "eager")
    with pytest.raises(ValueError, match="fastest"):
        baseline_source(TASK, "fastest")


def test_a_gpu_has_the_papers_five_and_a_cpu_those_that_exist_there() -> None:
    assert set(existing_baselines("H200")) - set(existing_baselines("cpu")) == {"cuda_graph", "cudnn"}
    assert len(existing_baselines("H200")) == 5


def test_a_baselines_program_has_the_tasks_sizes() -> None:
    sized = Task("test/sized", 1, "sized", "n = 8\n" + TASK.source)
    assert "n = 8\n" in baseline_source(sized, "cudnn")
    assert "n = 4\n" in baseline_source(sized.with_sizes(n=4), "cudnn")


def test_a_baseline_that_does_not_exist_on_an_architecture_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="cudnn"):
        Evaluator(arch="cpu", store=tmp_path, baselines=("eager", "cudnn"))


def test_a_store_that_was_interrupted_while_it_wrote_measures_again(tmp_path) -> None:
    store = BaselineStore(tmp_path)
    store.put(TASK, "torch_compile", VERSIONS, SPEEDUP)
    [path] = store.folder.iterdir()
    path.rename(path.with_suffix(".partial"))  # a killed writer leaves it like this
    assert store.get(TASK, "torch_compile", VERSIONS) is None
    store.put(TASK, "torch_compile", VERSIONS, SPEEDUP)
    assert store.get(TASK, "torch_compile", VERSIONS) == SPEEDUP
