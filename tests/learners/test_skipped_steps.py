"""An optimiser step whose gradient is not finite changes nothing, and is counted."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.schema import ContrastiveConfig, LearnerConfig
from learners.engine import LearnerEngine
from learners.errors import LearnerError
from learners.records import Sample

NO_KL = ContrastiveConfig(kl=0.0)


def engine_for(folder: Path, config: LearnerConfig, **changes: Any) -> closing[LearnerEngine]:
    return closing(LearnerEngine(replace(config, **changes), folder, max_length=128, seed=1))


@pytest.mark.parametrize("stage", range(4))
def test_a_step_whose_gradient_is_not_finite_is_skipped_and_counted(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, stage: int
) -> None:
    poisoned = [replace(sample, advantage=float("nan")) for sample in samples]
    with engine_for(policy_folder, learner_config, zero_stage=stage, max_skipped_steps=3) as engine:
        before = dict(engine.named_weights())
        for _ in range(2):
            metrics = engine.train_grpo(poisoned, 1e-3, NO_KL)
            assert metrics["skipped_steps"] == 1.0
            assert all(math.isfinite(value) for value in metrics.values()), "what is not known is left out"
        torch.testing.assert_close(dict(engine.named_weights()), before, atol=0, rtol=0)
        clean = engine.train_cross_entropy(samples, 1e-3)
        assert clean["gradient_norm"] < 100, "the next step is a clean one"
        assert clean["skipped_steps"] == 0.0
        assert engine.train_grpo(poisoned, 1e-3, replace(NO_KL, epochs=2))["skipped_steps"] == 2.0
        with pytest.raises(
            LearnerError, match=r"3 optimiser steps in a row .* is (nan|inf).*learner\.max_skipped_steps"
        ):
            engine.train_grpo(poisoned, 1e-3, NO_KL)


def test_steps_beside_a_skipped_one_keep_their_metrics(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig
) -> None:
    half = [replace(sample, advantage=float("nan") if i % 2 else 1.0) for i, sample in enumerate(samples)]
    with engine_for(policy_folder, learner_config) as engine:
        metrics = engine.train_grpo(half, 0.0, replace(NO_KL, minibatches=2))
        alone = engine.train_grpo(half[::2], 0.0, NO_KL)
    assert (metrics["skipped_steps"], alone["skipped_steps"]) == (1.0, 0.0)
    assert metrics["gradient_norm"] == pytest.approx(alone["gradient_norm"], rel=1e-4)
    assert metrics["loss"] == pytest.approx(alone["loss"], rel=1e-4)


def test_skipped_steps_before_a_resume_count(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, tmp_path: Path
) -> None:
    poisoned = [replace(sample, advantage=float("nan")) for sample in samples]
    with engine_for(policy_folder, learner_config, max_skipped_steps=3) as engine:
        for _ in range(2):
            engine.train_grpo(poisoned, 1e-3, NO_KL)
        engine.save(tmp_path)
    with engine_for(policy_folder, learner_config, max_skipped_steps=3) as engine:
        engine.load(tmp_path)
        with pytest.raises(LearnerError, match="3 optimiser steps in a row"):
            engine.train_grpo(poisoned, 1e-3, NO_KL)
