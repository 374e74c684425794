"""A learner on a CPU keeps no unused memory between steps."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import torch

from configs.schema import LearnerConfig
from learners.engine import LearnerEngine
from learners.host_memory import trim
from learners.records import Sample


def resident() -> int:
    """Resident bytes of this process that are not mapped from files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def with_gaps() -> list[torch.Tensor]:
    """Tensors with 190 MB of gaps between them."""
    held = [torch.ones(size) for _ in range(4000) for size in (12_000, 1_000)]
    return held[1::2]


def test_gaps_between_tensors_are_returned_to_the_system() -> None:
    held = with_gaps()
    before = resident()
    trim()
    assert before - resident() > 100e6
    assert all(bool((one == 1).all()) for one in held)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's memory is not the C library's")
def test_a_step_returns_memory_that_it_no_longer_needs(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig
) -> None:
    with closing(LearnerEngine(learner_config, policy_folder, max_length=128)) as engine:
        engine.train_cross_entropy(samples, 1e-3)
        held = with_gaps()
        before = resident()
        engine.train_cross_entropy(samples, 1e-3)
        assert before - resident() > 100e6
    assert len(held) == 4000
