"""An evaluator on a CPU that starts processes ahead, as one on a GPU does, and what its tests ask of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.records import Outcome
from tests.evaluators.sources import TWICE, model, reference_of

HONEST = reference_of(TWICE)
WRONG = model("return torch.tanh(x[0])", name="ModelNew")
FAILS = model("raise ValueError('here')", name="ModelNew")


@contextmanager
def opened(limits: LimitsConfig) -> Iterator[Evaluator]:
    """An evaluator whose device starts processes ahead, as a GPU does. It judges once and believes what it measures,
    since a busy machine would make it doubt the times, and waits as long as such a machine may take."""
    patient = replace(limits, start_seconds=60.0)
    with pytest.MonkeyPatch.context() as patch, Evaluator(arch="cpu", limits=patient, guarded=False) as made:
        patch.setattr("evaluators.judge.slot.judge_until_believed", lambda judge, preset: judge())
        made.device.starts_ahead = True
        made.start()
        yield made


def judged(evaluator: Evaluator, source: str = HONEST) -> Outcome:
    return evaluator.evaluate(TWICE, source, again=True).outcome


def settle(evaluator: Evaluator) -> None:
    evaluator._slot._processes.wait()


def is_there(process: int) -> bool:
    return os.path.isdir(f"/proc/{process}")
