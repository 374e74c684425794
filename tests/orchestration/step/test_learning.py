"""What the driver says of an optimiser step that was skipped: the ranks' own logs do not reach the user."""

from __future__ import annotations

import contextlib
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from orchestration.step.learning import learn_beside


@pytest.mark.parametrize(
    ("metrics", "skipped"),
    [
        ({"loss": 1.0, "skipped_steps": 0.0}, 0),
        ({"skipped_steps": 2.0, "seconds": 1.0}, 2),
        ({"skipped_steps": 1.0, "rehearsal_skipped_steps": 1.0}, 2),
    ],
)
def test_skipped_optimiser_steps_are_a_metric_and_a_warning(
    metrics: dict[str, float], skipped: int, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline: Any = SimpleNamespace(give_turn=lambda _: None, meanwhile=lambda call: call())
    roles: Any = SimpleNamespace(learns=True, version=3, learner_alone=contextlib.nullcontext, utilisation=dict)
    with caplog.at_level(logging.WARNING):
        learned = learn_beside(pipeline, roles, lambda: metrics, [])
    assert learned == {f"train/{name}": value for name, value in metrics.items()}
    expected = [f"{skipped} optimiser step(s) skipped, because the gradient was not finite"] if skipped else []
    assert [record.getMessage() for record in caplog.records] == expected
