"""A run that cannot fit is refused before it starts, with the knob to turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from configs.load import ConfigError, load_config
from orchestration.setup.memory_plan import memory_plan, refuse_what_cannot_fit

# The sizes of Qwen2.5-Coder 7B and 0.5B.
LARGE = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
LARGEST = {  # of Llama 3's 70 billion
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
SMALL = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}


@pytest.fixture
def planned(tmp_path: Path):
    def plan(sizes, *overrides: str):
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(
            json.dumps({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **sizes})
        )
        config = load_config("local", ["evaluator.arch=H200", f"policy.model={folder}", *overrides])
        return config, {one.role: one for one in memory_plan(config)}

    return plan


def test_a_small_model_fits_one_gpu(planned) -> None:
    config, plan = planned(SMALL, "policy.max_length=6144", "learner.gradient_checkpointing=true")
    refuse_what_cannot_fit(config, list(plan.values()))
    weights = 494_032_768  # as its model card says: 0.49 billion
    assert 16 * weights < plan["learner"].needed < 40 * weights
    assert plan["learner"].limit == pytest.approx(141e9, rel=0.02)


@pytest.mark.parametrize(
    ("overrides", "knob"),
    [
        ([], "learner.lora.rank"),
        (["learner.gradient_checkpointing=true"], "learner.offload_optimizer=cpu"),
        (["learner.lora.rank=16", "learner.micro_batch_tokens=131072"], "learner.gradient_checkpointing=true"),
        (["learner.lora.rank=16", "rollout.gpu_memory_utilization=0.1"], "rollout.gpu_memory_utilization"),
    ],
)
def test_what_cannot_fit_names_its_knob(planned, overrides, knob) -> None:
    with pytest.raises(ConfigError, match=knob):
        refuse_what_cannot_fit(*_listed(planned(LARGE, "policy.max_length=4096", *overrides)))


def test_turning_the_knob_helps(planned) -> None:
    turned = ["learner.lora.rank=16", "learner.gradient_checkpointing=true"]
    refuse_what_cannot_fit(*_listed(planned(LARGE, "policy.max_length=4096", *turned)))
    moved = ["learner.zero_stage=2", "learner.offload_optimizer=cpu", "learner.offload_reference=true"]
    _, plan = planned(LARGE, "policy.max_length=4096", "learner.gradient_checkpointing=true", *moved)
    assert plan["learner"].needed < plan["learner"].limit
    assert plan["learner"].host > 24 * 7.6e9 + 2 * 7.6e9
    sharded = ["learner.zero_stage=3", "learner.ranks=8", "learner.gradient_checkpointing=true"]
    refuse_what_cannot_fit(*_listed(planned(LARGE, "policy.max_length=4096", *sharded)))


def test_a_row_longer_than_a_micro_batch_has_its_room(planned) -> None:
    needed = [planned(SMALL, f"policy.max_length={length}")[1]["learner"].needed for length in (1024, 3072, 6144)]
    assert needed[0] == needed[1] < needed[2]  # a micro-batch has 3072 tokens there


def test_heads_that_ranks_cannot_share_are_refused_before_a_run_starts(planned) -> None:
    with pytest.raises(ConfigError, match=r"learner\.sequence_parallel=4: .* 14 attention heads"):
        planned(SMALL, "learner.ranks=4", "learner.sequence_parallel=4")


def test_ranks_that_share_rows_have_room_for_longer_ones(planned) -> None:
    long = ["policy.max_length=524288", "learner.gradient_checkpointing=true", "learner.lora.rank=16"]
    with pytest.raises(ConfigError, match=r"learner\.sequence_parallel"):
        refuse_what_cannot_fit(*_listed(planned(LARGE, *long, "rollout.tensor_parallel=4")))
    shared = ["learner.ranks=4", "learner.zero_stage=3", "learner.sequence_parallel=4"]
    refuse_what_cannot_fit(*_listed(planned(LARGE, *long, *shared, "rollout.tensor_parallel=4")))


def test_a_cache_that_holds_no_sequence_is_refused(planned) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.kv_cache_gib"):
        planned(LARGE, "evaluator.arch=cpu", "rollout.kv_cache_gib=0.05", "policy.max_length=4096")


def _listed(planned):
    config, plan = planned
    return config, list(plan.values())


@pytest.mark.parametrize(
    ("overrides", "fits"),
    [
        (["rollout.sleep=false", "rollout.gpu_memory_utilization=0.3"], True),
        (["rollout.sleep=false", "rollout.gpu_memory_utilization=0.9"], False),
        (["rollout.sleep=true", "rollout.gpu_memory_utilization=0.9"], False),  # beside the learner's states
        (["rollout.sleep=true", "rollout.gpu_memory_utilization=0.8"], True),
        (["rollout.sleep=false", "rollout.engines_per_gpu=3", "rollout.kv_cache_gib=6"], True),
        (["rollout.sleep=false", "rollout.engines_per_gpu=3", "rollout.kv_cache_gib=30"], False),
    ],
)
def test_roles_that_share_a_gpu_must_fit_together(planned, overrides: list[str], fits: bool) -> None:
    config, plan = planned(SMALL, "placement.share=all", "learner.micro_batch_tokens=16384", *overrides)
    assert plan["learner"].resting < plan["learner"].needed
    if fits:
        refuse_what_cannot_fit(config, list(plan.values()))
        return
    knob = "kv_cache_gib" if "rollout.kv_cache_gib=30" in overrides else "gpu_memory_utilization"
    with pytest.raises(ConfigError, match=rf"placement\.share=all: .*rollout\.{knob}"):
        refuse_what_cannot_fit(config, list(plan.values()))


def test_engines_on_one_gpu_must_fit_there(planned) -> None:
    three = ["rollout.engines=3", "rollout.engines_per_gpu=3"]
    config, plan = planned(SMALL, "rollout.kv_cache_gib=30", *three)
    refuse_what_cannot_fit(config, list(plan.values()))
    config, plan = planned(SMALL, "rollout.kv_cache_gib=50", *three)
    with pytest.raises(ConfigError, match=r"lower rollout\.kv_cache_gib"):
        refuse_what_cannot_fit(config, list(plan.values()))


def test_a_cache_that_several_engines_of_a_gpu_have_must_hold_a_sequence(planned) -> None:
    with pytest.raises(ConfigError, match=r"raise rollout\.kv_cache_gib"):
        planned(SMALL, "rollout.engines_per_gpu=2", "rollout.kv_cache_gib=0.06", "policy.max_length=8192")


STAGE_3 = ["learner.zero_stage=3", "learner.gradient_checkpointing=true", "ray.address=10.0.0.1:6379"]
IN_HALF = ["learner.lora.rank=16", "learner.lora.alpha=32"]


@pytest.mark.parametrize(
    ("ranks", "overrides", "fits"),
    [
        (8, [], "learner.offload_optimizer=cpu"),
        (16, [], ""),
        (8, ["learner.offload_optimizer=cpu"], ""),
        (8, IN_HALF, ""),
        (1, IN_HALF, "learner.offload_parameters=cpu"),
    ],
)
def test_70_billion_weights_fit_where_their_shards_do(planned, ranks: int, overrides: list[str], fits: str) -> None:
    """Training in float32 takes 16 bytes a weight: of each of 8 GPUs all its 141 GB, of each of 16 half."""
    engines = ["rollout.tensor_parallel=4", "rollout.gpu_memory_utilization=0.9"]
    config, plan = planned(LARGEST, f"learner.ranks={ranks}", *STAGE_3, *engines, *overrides)
    if fits:
        with pytest.raises(ConfigError, match=rf"learner: each needs about .* {fits}"):
            refuse_what_cannot_fit(config, list(plan.values()))
    else:
        refuse_what_cannot_fit(config, list(plan.values()))


def test_ranks_that_load_the_whole_policy_must_have_room_for_it_on_their_host(planned, monkeypatch) -> None:
    monkeypatch.setattr("orchestration.setup.memory_plan._host_bytes", lambda config: 120 << 30)
    adapters = ["learner.gradient_checkpointing=true", *IN_HALF, "learner.ranks=16"]
    config, plan = planned(LARGE, *adapters)
    with pytest.raises(ConfigError, match=r"learner: loading needs about 22\d\.\d GiB .*: set learner\.zero_stage=3"):
        refuse_what_cannot_fit(config, list(plan.values()))
    config, plan = planned(LARGE, *adapters, "learner.zero_stage=3")
    refuse_what_cannot_fit(config, list(plan.values()))
