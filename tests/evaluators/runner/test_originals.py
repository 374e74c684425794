"""Replaced functions are reported by name; changes that a program may make are not."""

from __future__ import annotations

import gc
import time

import pytest
import torch

from evaluators.runner.cpu import CpuRunner
from evaluators.runner.originals import Originals


@pytest.fixture
def device() -> CpuRunner:
    return CpuRunner(1)


def test_nothing_is_replaced_at_first(device) -> None:
    assert Originals((device,)).replaced() == []


def test_replaced_functions_of_modules_classes_and_objects_are_named(device, monkeypatch: pytest.MonkeyPatch) -> None:
    originals = Originals((device,))
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *_: None)
    monkeypatch.setattr(CpuRunner, "finish", lambda *_: None)
    monkeypatch.setattr("evaluators.runner.cpu.perf_counter", lambda: 0.0)
    device.timed = lambda *_: (None, 0.0)
    assert originals.replaced() == [
        "the runner's CpuRunner.finish",
        "the runner's module evaluators.runner.cpu.perf_counter",
        "the runner's own CpuRunner.timed",
        "time.perf_counter",
        "torch.Tensor.copy_",
    ]


def test_a_function_that_was_put_back_does_not_count(device, monkeypatch: pytest.MonkeyPatch) -> None:
    originals = Originals((device,))
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: 0.0)
        assert originals.replaced() == ["time.time"]
    assert originals.replaced() == []


def test_a_model_may_be_anything(device) -> None:
    device.model = device.kind = None
    originals = Originals((device,))
    device.model, device.kind = torch.nn.ReLU(), torch.nn.ReLU
    device.threads = 3
    gc.collect()
    assert originals.replaced() == []
