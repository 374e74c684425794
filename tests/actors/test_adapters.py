"""An engine that gets only adapters computes the same as one with the merged weights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from transformers import AutoModelForCausalLM

from actors.generation import Completion, GenerationRequest
from actors.learner import LearnerGroup
from actors.rollout import RolloutEngine
from configs.schema import LearnerConfig, LoraConfig, PolicyConfig, RolloutConfig, RunConfig
from learners.records import Sample
from learners.weights import ChecksumMismatch, WeightManifest, unpack

_PROMPT = tuple(range(10, 74))
_SAMPLES = [Sample(_PROMPT, tuple(range(40 + index, 60 + index))) for index in range(4)]


@pytest.fixture(scope="module")
def both(
    local_ray: None, policy_folder: Path, rollout_config: RolloutConfig, policy_config: PolicyConfig
) -> Iterator[tuple[LearnerGroup, Any]]:
    """A learner with adapters and an engine that accepts them. They start side by side."""
    handle = RolloutEngine.remote(str(policy_folder), rollout_config, policy_config, 0, adapter_rank=4)
    lora = LoraConfig(rank=4, alpha=32.0)
    config = LearnerConfig(threads=1, autocast=False, timeout=120.0, lora=lora)
    group = LearnerGroup(
        RunConfig(name="adapters", policy=PolicyConfig(max_length=256), learner=config), str(policy_folder)
    )
    ray.get(handle.ping.remote(), timeout=600)
    yield group, handle
    ray.kill(handle)
    group.stop()


def merged(learner: LearnerGroup, policy_folder: Path) -> torch.nn.Module:
    model = AutoModelForCausalLM.from_pretrained(policy_folder, dtype=torch.float32)
    for manifest, data in learner.parts(99, "float32"):
        model.load_state_dict({name: tensor.clone() for name, tensor in unpack(manifest, ray.get(data))}, strict=False)
    model.tie_weights()
    return model


def push(learner: LearnerGroup, engine, version: int) -> WeightManifest:
    ((manifest, data),) = learner.parts(version, "float32", adapters=True)
    receipt = ray.get(engine.update_weights.remote(data, manifest), timeout=240)
    assert (receipt.version, receipt.checksum) == (version, manifest.checksum)
    return manifest


def sampled(engine) -> list[Completion]:
    return ray.get(engine.generate.remote(GenerationRequest("group", _PROMPT, 4, 48, 1.0)), timeout=240)


def difference(model: torch.nn.Module, completions: list[Completion]) -> float:
    """Mean difference between the engine's log-probabilities and those of a forward pass."""
    differences = []
    for completion in completions:
        with torch.no_grad():
            logits = model(torch.tensor([_PROMPT + completion.token_ids])).logits[0, len(_PROMPT) - 1 : -1]
        ids = torch.tensor(completion.token_ids)[:, None]
        expected = logits.log_softmax(-1).gather(-1, ids)[:, 0]
        differences.append((expected - torch.tensor(completion.logprobs)).abs().mean())
    return float(torch.stack(differences).mean())


@pytest.mark.slow
def test_adapters_compute_as_the_merged_policy(both: tuple[LearnerGroup, Any], policy_folder: Path) -> None:
    learner, adapted = both
    base = AutoModelForCausalLM.from_pretrained(policy_folder, dtype=torch.float32)
    push(learner, adapted, 1)
    assert difference(base, sampled(adapted)) < 0.02  # new adapters change nothing
    for version in (2, 3):
        for _ in range(3):
            learner.train_cross_entropy(_SAMPLES, 3e-2)
        manifest = push(learner, adapted, version)
        completions = sampled(adapted)
        assert {completion.policy_version for completion in completions} == {version}
        assert difference(merged(learner, policy_folder), completions) < 0.02
        assert difference(base, completions) > 0.2
    whole = sum(parameter.numel() for parameter in base.parameters()) * 4
    assert manifest.total_bytes < whole / 3

    ((manifest, data),) = learner.parts(4, "float32", adapters=True)
    damaged = ray.get(data).copy()
    damaged[100] ^= 1
    with pytest.raises(ChecksumMismatch):
        ray.get(adapted.update_weights.remote(ray.put(damaged), manifest), timeout=240)
    assert {completion.policy_version for completion in sampled(adapted)} == {3}
