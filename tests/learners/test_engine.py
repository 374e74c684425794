"""The engine does what a plain PyTorch loop over one big batch would do, at every ZeRO stage.

Several ranks: test_ranks.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from configs.schema import ContrastiveConfig, LearnerConfig, LoraConfig
from learners.engine import LearnerEngine
from learners.errors import LearnerError
from learners.losses import k3_divergence
from learners.policy import load_policy
from learners.records import Sample
from learners.tokenizing import PolicyError
from tests.learners.plain import logprobs_of, train_plainly

STAGES = range(4)
NO_KL = ContrastiveConfig(kl=0.0)


@contextmanager
def engine_for(folder: Path, config: LearnerConfig, **changes: Any) -> Iterator[LearnerEngine]:
    with closing(LearnerEngine(replace(config, **changes), folder, max_length=128, seed=1)) as engine:
        yield engine


@torch.no_grad()
def likelihoods(engine: LearnerEngine, folder: Path, samples: Sequence[Sample]) -> list[float]:
    """Log-likelihood of each sample's response under the engine's current weights, loaded like in a rollout engine."""
    model, _ = load_policy(folder, torch.float32)
    model.load_state_dict(dict(engine.named_weights()), strict=False)
    return [logprobs_of(model, sample).sum().item() for sample in samples]


@pytest.fixture(scope="module")
def mixed(samples: list[Sample]) -> list[Sample]:
    """Three samples, so that two ranks cannot share them evenly; advantages of both signs."""
    return [replace(sample, advantage=advantage) for sample, advantage in zip(samples, (1.0, -0.5, 0.25), strict=False)]


@pytest.fixture(scope="module")
def plainly_trained(policy_folder: Path, mixed: list[Sample]) -> dict[str, Tensor]:
    return train_plainly(policy_folder, mixed)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("budget", [64, 4096])
def test_one_rank_trains_as_a_plain_loop_does(
    policy_folder: Path,
    mixed: list[Sample],
    learner_config: LearnerConfig,
    plainly_trained: dict[str, Tensor],
    stage: int,
    budget: int,
) -> None:
    with engine_for(policy_folder, learner_config, zero_stage=stage, micro_batch_tokens=budget) as engine:
        engine.set_reference()
        engine.train_cross_entropy(mixed, 1e-3)
        engine.train_cross_entropy(mixed, 1e-3)
        engine.train_grpo(mixed, 1e-3, ContrastiveConfig(kl=0.1))
        weights = dict(engine.named_weights())
    assert weights.keys() == plainly_trained.keys()
    torch.testing.assert_close(weights, plainly_trained, atol=2e-5, rtol=1e-4)


def test_cross_entropy_learns_a_few_texts_by_heart(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig
) -> None:
    with engine_for(policy_folder, learner_config, autocast=True, micro_batch_tokens=4096) as engine:
        losses = [engine.train_cross_entropy(samples[:2], 1e-2)["loss"] for _ in range(60)]
    assert losses[0] > 5
    assert losses[-1] < 0.1


@pytest.mark.parametrize("steps", [{"epochs": 1, "minibatches": 1}, {"epochs": 2, "minibatches": 2}])
def test_grpo_makes_rewarded_responses_likelier_and_others_less_likely(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, steps: dict[str, int]
) -> None:
    scored = [replace(sample, advantage=1.0 if i < 2 else -1.0) for i, sample in enumerate(samples)]
    with engine_for(policy_folder, learner_config) as engine:
        before = likelihoods(engine, policy_folder, scored)
        for _ in range(3):
            metrics = engine.train_grpo(scored, 1e-3, ContrastiveConfig(kl=0.0, **steps))
        after = likelihoods(engine, policy_folder, scored)
    gains = [new - old for new, old in zip(after, before, strict=True)]
    assert min(gains[:2]) > max(gains[2:])
    assert (metrics["ratio_max"] > 1.0) == (steps["epochs"] > 1), "old log-probabilities are those before the step"


def test_mismatch_with_the_rollout_engine_is_measured_at_its_temperature(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig
) -> None:
    model, _ = load_policy(policy_folder, torch.float32)

    def behaviour(sample: Sample) -> Sample:
        ids = torch.tensor([sample.prompt_ids + sample.response_ids])
        start = len(sample.prompt_ids)
        predictions = (model(ids).logits[0, start - 1 : -1] / 0.5).log_softmax(-1)
        return replace(sample, logprobs=tuple(predictions.gather(1, ids[0, start:, None])[:, 0].tolist()))

    with torch.no_grad():
        rollouts = [behaviour(sample) for sample in samples]
    with engine_for(policy_folder, learner_config) as engine:
        matching = engine.train_grpo(rollouts, 0.0, NO_KL, temperature=0.5)
        differing = engine.train_grpo(rollouts, 0.0, NO_KL, temperature=1.0)
    assert matching["mismatch_max"] < 1e-3
    assert matching["importance_weight"] == pytest.approx(1.0, abs=1e-3)
    assert differing["mismatch"] > 0.05


@pytest.mark.parametrize("budget", [64, 4096])
@pytest.mark.parametrize(("ratio", "mean"), [("token", "response"), ("sequence", "response"), ("token", "constant")])
def test_variants_of_the_objective_train_as_a_plain_loop_does(
    policy_folder: Path, mixed: list[Sample], learner_config: LearnerConfig, ratio: str, mean: str, budget: int
) -> None:
    """The first step of each variant is a plain policy gradient, with tokens weighted by `loss_mean`."""
    model, _ = load_policy(policy_folder, torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    losses = [-sample.advantage * logprobs_of(model, sample) for sample in mixed]
    shares = [loss.mean() if mean == "response" else loss.sum() / 128 for loss in losses]
    (sum(shares) / len(shares)).backward()  # type: ignore[union-attr]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    expected = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with engine_for(policy_folder, learner_config, micro_batch_tokens=budget) as engine:
        engine.train_grpo(mixed, 1e-3, ContrastiveConfig(kl=0.0, ratio=ratio, loss_mean=mean))
        for name, weight in engine.named_weights():
            torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mean", ["token", "response", "constant"])
def test_responses_without_a_signal_count_in_the_mean_and_in_the_kl_term(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, mean: str
) -> None:
    """The second prompt's responses are all rewarded alike."""
    carried = [replace(sample, advantage=1.0 - 1.5 * i) for i, sample in enumerate(samples[::2])]
    silent = [replace(sample, advantage=0.0, has_signal=False) for sample in samples[1::2]]
    counts = [sum(len(one.response_ids) for one in part) for part in (carried, [*carried, *silent])]
    share = counts[0] / counts[1] if mean == "token" else 0.5
    without, with_kl = (ContrastiveConfig(kl=kl, loss_mean=mean) for kl in (0.0, 0.1))
    with engine_for(policy_folder, learner_config) as engine:
        engine.set_reference()
        engine.train_cross_entropy(samples, 1e-2)  # away from the reference
        alone = engine.train_grpo(carried, 0.0, without)
        counted = engine.train_grpo([*carried, *silent], 0.0, without)
        computed = engine.train_grpo([*carried, *silent], 0.0, with_kl)
        assert not engine.train_grpo(silent, 1e-3, without).keys() & {"loss", "gradient_norm"}, "nothing to learn"
    assert counted["loss"] == pytest.approx(share * alone["loss"], rel=1e-4)
    assert counted["gradient_norm"] == pytest.approx(share * alone["gradient_norm"], rel=1e-4)
    assert counted["entropy"] == pytest.approx(alone["entropy"], rel=1e-5), "of what was computed"
    assert counted["padded_tokens"] == alone["padded_tokens"] < computed["padded_tokens"]
    assert [one["response_tokens"] for one in (alone, counted, computed)] == [counts[0], counts[1], counts[1]]
    assert computed["kl"] > 1e-4
    if mean == "token":
        assert computed["loss"] == pytest.approx(counted["loss"] + 0.1 * computed["kl"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, *(pytest.param(stage, marks=pytest.mark.slow) for stage in (0, 3))])
def test_a_loaded_checkpoint_continues_as_if_never_stopped(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, tmp_path: Path, stage: int
) -> None:
    contrastive = ContrastiveConfig(kl=0.1)
    with engine_for(policy_folder, learner_config, zero_stage=stage) as engine:
        engine.set_reference()
        engine.train_cross_entropy(samples, 1e-3)
        engine.policy_version = 7
        engine.save(tmp_path)
        engine.train_cross_entropy(samples, 5e-4)
        engine.train_grpo(samples, 1e-3, contrastive)
        expected = dict(engine.named_weights())
    with engine_for(policy_folder, learner_config, zero_stage=stage) as engine:
        engine.load(tmp_path)
        assert engine.policy_version == 7
        metrics = engine.train_cross_entropy(samples, 5e-4)
        assert metrics["learning_rate"] == 5e-4, "not the rate that was saved"
        engine.train_grpo(samples, 1e-3, contrastive)
        torch.testing.assert_close(dict(engine.named_weights()), expected, atol=1e-6, rtol=0)


@pytest.fixture(scope="module")
def dropping_folder(policy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy, as a model whose own configuration asks for dropout in training."""
    folder = tmp_path_factory.mktemp("dropping") / "policy"
    shutil.copytree(policy_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.5}))
    return folder


def test_a_policy_with_dropout_trains_without_it_in_every_phase(
    dropping_folder: Path, mixed: list[Sample], learner_config: LearnerConfig, plainly_trained: dict[str, Tensor]
) -> None:
    with engine_for(dropping_folder, learner_config) as engine:
        engine.set_reference()
        engine.train_cross_entropy(mixed, 1e-3)
        engine.train_cross_entropy(mixed, 1e-3)
        engine.train_grpo(mixed, 1e-3, ContrastiveConfig(kl=0.1))
        torch.testing.assert_close(dict(engine.named_weights()), plainly_trained, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("lora", [LoraConfig(), LoraConfig(rank=2)], ids=["all weights", "adapters"])
def test_ratios_and_kl_of_an_unchanged_policy_are_exact_although_it_has_dropout(
    dropping_folder: Path, mixed: list[Sample], learner_config: LearnerConfig, lora: LoraConfig
) -> None:
    with engine_for(dropping_folder, learner_config, lora=lora, gradient_checkpointing=True) as engine:
        engine.train_cross_entropy(mixed, 1e-2)  # DeepSpeed's engine is in training mode from here on
        engine.set_reference()
        metrics = engine.train_grpo(mixed, 0.0, ContrastiveConfig(kl=0.1, epochs=2))
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("stage", [1, *(pytest.param(stage, marks=pytest.mark.slow) for stage in (0, 3))])
def test_a_checkpoint_of_adapters_leaves_the_policy_out_and_continues(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig, tmp_path: Path, stage: int
) -> None:
    lora = LoraConfig(rank=2)
    with engine_for(policy_folder, learner_config, zero_stage=stage, lora=lora) as engine:
        engine.train_cross_entropy(samples, 1e-2)
        engine.save(tmp_path / "saved")
        engine.train_cross_entropy(samples, 1e-2)
        expected = dict(engine.named_weights())
    (written,) = (tmp_path / "saved").rglob("*model_states.pt")
    names = torch.load(written, weights_only=False)["module"]
    assert [name for name in names if "lora" not in name] == []
    with engine_for(policy_folder, learner_config, zero_stage=stage, lora=lora) as engine:
        engine.load(tmp_path / "saved")
        engine.train_cross_entropy(samples, 1e-2)
        torch.testing.assert_close(dict(engine.named_weights()), expected, atol=1e-6, rtol=0)
    other, tokenizer = load_policy(policy_folder, torch.float32)
    with torch.no_grad():
        other.model.layers[0].mlp.up_proj.weight[0, 0] += 1.0
    other.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    with (
        engine_for(tmp_path / "other", learner_config, zero_stage=stage, lora=lora) as engine,
        pytest.raises(LearnerError, match="adapters to another policy"),
    ):
        engine.load(tmp_path / "saved")


def test_a_missing_checkpoint_is_named(policy_folder: Path, learner_config: LearnerConfig, tmp_path: Path) -> None:
    with (
        engine_for(policy_folder, learner_config) as engine,
        pytest.raises(FileNotFoundError, match="no checkpoint of the learner"),
    ):
        engine.load(tmp_path)


@pytest.mark.parametrize(("stage", "file_bytes"), [(1, 1 << 30), pytest.param(3, 100_000, marks=pytest.mark.slow)])
def test_lora_trains_adapters_and_exports_merged_weights(
    policy_folder: Path,
    samples: list[Sample],
    learner_config: LearnerConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: int,
    file_bytes: int,
) -> None:
    monkeypatch.setattr("learners.checkpoints.FILE_BYTES", file_bytes)
    lora = LoraConfig(rank=4, alpha=8.0)
    with engine_for(policy_folder, learner_config, zero_stage=stage, lora=lora) as engine:
        for _ in range(5):
            engine.train_cross_entropy(samples, 1e-2)
        engine.export(tmp_path)
        final = engine.train_cross_entropy(samples, 0.0)
    files = {file.name for file in tmp_path.iterdir() if "safetensors" in file.name}
    assert (files == {"model.safetensors"}) == (stage == 1)
    assert ("model.safetensors.index.json" in files) == (stage == 3)
    merged, tokenizer = load_policy(tmp_path, torch.float32)
    base, _ = load_policy(policy_folder, torch.float32)
    with torch.no_grad():
        loss = -torch.cat([logprobs_of(merged, sample) for sample in samples]).mean().item()
    assert loss == pytest.approx(final["loss"], abs=1e-4)
    assert torch.equal(merged.get_input_embeddings().weight, base.get_input_embeddings().weight)
    assert not torch.equal(merged.model.layers[0].mlp.up_proj.weight, base.model.layers[0].mlp.up_proj.weight)
    assert tokenizer.eos_token_id == base.config.eos_token_id


@pytest.mark.parametrize("stage", [1, *(pytest.param(stage, marks=pytest.mark.slow) for stage in (0, 3))])
def test_the_reference_of_adapters_is_the_policy_that_the_phase_began_with(
    policy_folder: Path,
    samples: list[Sample],
    learner_config: LearnerConfig,
    tmp_path: Path,
    stage: int,
) -> None:
    """The reference is not the model without adapters, which would pull the policy back to before SFT."""
    contrastive, lora = ContrastiveConfig(kl=0.1), LoraConfig(rank=4, alpha=8.0)

    def grown(engine: LearnerEngine) -> None:
        for _ in range(5):
            engine.train_cross_entropy(samples, 1e-2)

    with engine_for(policy_folder, learner_config, zero_stage=stage, lora=lora) as engine:
        grown(engine)
        engine.set_reference()
        began = dict(engine.named_weights())
        assert engine.train_grpo(samples, 0.0, contrastive)["kl"] == 0.0
        grown(engine)
        then = dict(engine.named_weights())
        assert any(not torch.equal(then[name], began[name]) for name in began)
        distance = engine.train_grpo(samples, 0.0, contrastive)["kl"]
        torch.testing.assert_close(dict(engine.named_weights()), then, atol=0, rtol=0)
        engine.save(tmp_path)
    assert distance == pytest.approx(_divergence(policy_folder, samples, then, began), rel=1e-3)
    assert distance > 0.001
    with engine_for(policy_folder, learner_config, zero_stage=stage, lora=lora) as engine:
        engine.load(tmp_path)
        expected = _divergence(policy_folder, samples, then, began)
        assert engine.train_grpo(samples, 0.0, contrastive)["kl"] == pytest.approx(expected, rel=1e-3)


def _divergence(
    folder: Path, samples: list[Sample], policy: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]
) -> float:
    """The mean k3 between two plain models with these weights."""
    model, _ = load_policy(folder, torch.float32)
    found = []
    for weights in (policy, reference):
        model.load_state_dict(weights, strict=False)
        with torch.no_grad():
            found.append(torch.cat([logprobs_of(model, sample) for sample in samples]))
    return k3_divergence(*found).mean().item()


def test_gradient_checkpointing_changes_nothing(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig
) -> None:
    norms = []
    for checkpointing in (False, True):
        with engine_for(policy_folder, learner_config, gradient_checkpointing=checkpointing) as engine:
            norms.append(engine.train_cross_entropy(samples, 1e-3)["gradient_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_samples_that_cannot_be_used_are_counted_and_change_nothing(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig
) -> None:
    too_long = Sample((1,) * 100, (2,) * 100)
    with engine_for(policy_folder, learner_config) as engine:
        before = dict(engine.named_weights())
        assert engine.train_cross_entropy([too_long], 1e-2)["dropped"] == 1
        assert engine.train_grpo([too_long], 1e-2, NO_KL)["dropped"] == 1
        torch.testing.assert_close(dict(engine.named_weights()), before, atol=0, rtol=0)
        assert engine.train_cross_entropy([*samples, too_long], 1e-2)["dropped"] == 1


def test_a_kl_term_without_a_reference_is_refused(
    policy_folder: Path, samples: list[Sample], learner_config: LearnerConfig
) -> None:
    with engine_for(policy_folder, learner_config) as engine, pytest.raises(LearnerError, match="set_reference"):
        engine.train_grpo(samples, 1e-3, ContrastiveConfig(kl=0.1))


def test_a_policy_that_does_not_load_is_named(learner_config: LearnerConfig, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="does not load"):
        LearnerEngine(learner_config, tmp_path / "nowhere", max_length=128)
