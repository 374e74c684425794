"""Off-loaded states, and frozen weights in bfloat16, do not change training. An impossible off-load is refused in one
line."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from configs.load import ConfigError
from configs.schema import ContrastiveConfig, LearnerConfig, LoraConfig
from learners.disk_adam import MOMENTS, DiskAdamW
from learners.engine import LearnerEngine
from learners.policy import load_policy
from learners.records import Sample
from learners.scoring import has_bfloat16

WITH_KL = ContrastiveConfig(kl=0.1)


@contextmanager
def engine_for(folder: Path, config: LearnerConfig, **changes: Any) -> Iterator[LearnerEngine]:
    with closing(LearnerEngine(replace(config, **changes), folder, max_length=128, seed=1)) as engine:
        yield engine


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"zero_stage": 1, "offload_optimizer": "cpu"},
        {"zero_stage": 2, "offload_optimizer": "nvme"},
        {"zero_stage": 3, "offload_optimizer": "nvme", "offload_parameters": "cpu", "offload_reference": True},
    ],
)
def test_a_checkpoint_holds_off_loaded_states(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, tmp_path: Path, changes: dict[str, Any]
) -> None:
    changes = {**changes, "nvme_path": str(tmp_path / "disk")}
    with engine_for(policy_folder, learner_config, **changes) as engine:
        engine.set_reference()
        engine.train_cross_entropy(samples, 1e-3)
        engine.save(tmp_path / "saved")
        engine.train_cross_entropy(samples, 1e-3)
        engine.train_grpo(samples, 1e-3, WITH_KL)
        expected = dict(engine.named_weights())
    with engine_for(policy_folder, learner_config, **changes) as engine:
        engine.load(tmp_path / "saved")
        engine.train_cross_entropy(samples, 1e-3)
        engine.train_grpo(samples, 1e-3, WITH_KL)
        torch.testing.assert_close(dict(engine.named_weights()), expected, atol=1e-6, rtol=0)


def test_moments_in_files_step_as_those_in_memory_do_and_leave_no_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(37, 5)), torch.nn.Parameter(torch.randn(3))]
    copies = [torch.nn.Parameter(weight.detach().clone()) for weight in weights]
    on_disk = DiskAdamW(weights, str(tmp_path), lr=0.1, fused=True)
    in_memory = torch.optim.AdamW(copies, lr=0.1, fused=True)
    for step in range(4):
        for weight, twin in zip(weights, copies, strict=True):
            weight.grad = torch.randn_like(weight)
            twin.grad = weight.grad.clone()
        if step == 2:  # as after loading a checkpoint
            on_disk.load_state_dict(copy.deepcopy(in_memory.state_dict()))
        on_disk.step()
        in_memory.step()
    for weight, twin in zip(weights, copies, strict=True):
        assert torch.equal(weight, twin)
    mapped = Path("/proc/self/maps").read_text().count(str(tmp_path))
    assert mapped == len(weights) * len(MOMENTS), "in files, and the ones before are gone"
    assert list(tmp_path.iterdir()) == []


def test_weights_on_disk_are_refused_without_libaio_or_a_compiler(
    policy_folder: Path, learner_config: LearnerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails on machines with libaio, too, because an empty folder has neither its header nor a compiler."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(
            ConfigError, match=r"learner\.offload_parameters=nvme needs .*libaio-dev.*offload_parameters=cpu"
        ),
        engine_for(
            policy_folder, learner_config, zero_stage=3, offload_parameters="nvme", nvme_path=str(tmp_path / "disk")
        ),
    ):
        pass


def test_a_folder_that_cannot_be_made_is_named(
    policy_folder: Path, learner_config: LearnerConfig, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match=r"learner\.nvme_path: .*file/disk"),
        engine_for(policy_folder, learner_config, offload_optimizer="nvme", nvme_path=str(tmp_path / "file" / "disk")),
    ):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 4])
def test_a_reference_in_bfloat16_gives_nearly_the_same_log_probabilities(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, tmp_path: Path, rank: int
) -> None:
    """Products are computed with bfloat16 matrices anyway, so only the embedding differs."""
    found = {}
    for autocast in (True, False):
        with engine_for(policy_folder, learner_config, autocast=autocast, lora=LoraConfig(rank=rank)) as engine:
            engine.set_reference()
            start = engine.train_grpo(samples, 0.0, WITH_KL)["kl"]
            for _ in range(3):
                engine.train_cross_entropy(samples, 1e-2)
            found[autocast] = engine.train_grpo(samples, 0.0, WITH_KL)["kl"]
            engine.save(tmp_path / str(autocast))
            assert start < 1e-4
    half, full = (load_file(tmp_path / str(autocast) / "reference.safetensors") for autocast in (True, False))
    assert found[True] == pytest.approx(found[False], rel=0.05)
    assert {one.dtype for one in full.values()} == {torch.float32}
    narrow = torch.bfloat16 if has_bfloat16("cpu") else torch.float32
    assert all(one.dtype == (narrow if one.dim() > 1 else torch.float32) for one in half.values())


def test_a_reference_saved_in_float32_still_loads(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, tmp_path: Path
) -> None:
    with engine_for(policy_folder, learner_config, autocast=True) as engine:
        engine.set_reference()
        engine.save(tmp_path)
        file = tmp_path / "reference.safetensors"
        save_file({name: weight.float() for name, weight in load_file(file).items()}, file)
        engine.load(tmp_path)
        assert engine.train_grpo(samples, 0.0, WITH_KL)["kl"] < 1e-4


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_weights_under_adapters_are_bfloat16_and_merge_in_float32(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, stage: int
) -> None:
    lora = LoraConfig(rank=4, alpha=8.0)
    merged, losses = {}, {}
    for autocast in (True, False):
        with engine_for(policy_folder, learner_config, zero_stage=stage, lora=lora, autocast=autocast) as engine:
            losses[autocast] = [engine.train_cross_entropy(samples, 1e-2)["loss"] for _ in range(5)]
            merged[autocast] = dict(engine.named_weights())
            if autocast:
                held = {parameter.dtype for parameter in engine.model.parameters() if parameter.requires_grad}
                frozen = {p.dtype for name, p in engine.model.named_parameters() if "proj.base_layer.weight" in name}
                narrow = torch.bfloat16 if has_bfloat16("cpu") else torch.float32
                assert (held, frozen) == ({torch.float32}, {narrow})
    base, _ = load_policy(policy_folder, torch.float32)
    assert losses[True] == pytest.approx(losses[False], rel=0.02)
    for name, weight in base.named_parameters():
        assert merged[True][name].dtype == torch.float32
        torch.testing.assert_close(merged[True][name], merged[False][name], atol=2e-2, rtol=2e-2)
        if weight.dim() == 1:
            assert torch.equal(merged[True][name], weight), "norms and biases are as they were"
    up = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(merged[True][up], merged[True][up].bfloat16().float()), "the adapters' part is not rounded"
