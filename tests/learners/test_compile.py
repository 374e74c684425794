"""Compiled layers train like others: the same losses, entropies and norms of gradients, except for rounding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.schema import ContrastiveConfig, LearnerConfig, LoraConfig
from learners.engine import LearnerEngine
from learners.records import Sample

VARIANTS: list[dict[str, Any]] = [
    {},
    {"gradient_checkpointing": True},
    {"attention": "padded"},
    {"lora": LoraConfig(rank=4)},
    {"zero_stage": 2, "gradient_checkpointing": True, "lora": LoraConfig(rank=4)},
]


def two_steps(folder: Path, samples: list[Sample], compile_: bool, **changes: Any) -> list[dict[str, float]]:
    config = LearnerConfig(**{"zero_stage": 1, "micro_batch_tokens": 512, "compile": compile_, **changes})
    engine = LearnerEngine(config, folder, max_length=256)
    engine.set_reference()
    found = [engine.train_grpo(samples, 1e-3, ContrastiveConfig(kl=0.1)) for _ in range(2)]
    engine.close()
    return found


@pytest.mark.cuda
@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: ",".join(changes) or "plain")
def test_steps_are_the_same(
    policy_folder: Path, samples: list[Sample], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[torch.nn.Module] = []
    compile_: Callable[..., Any] = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda module, **said: (compiled.append(module), compile_(module, **said))[1]
    )
    plain = two_steps(policy_folder, samples, compile_=False, **changes)
    assert not compiled
    fast = two_steps(policy_folder, samples, compile_=True, **changes)
    assert compiled
    for one, other in zip(plain, fast, strict=True):
        for name in ("loss", "gradient_norm", "entropy"):
            assert other[name] == pytest.approx(one[name], rel=0.05), name
