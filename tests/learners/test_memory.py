"""Training takes as much memory as was predicted."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from configs.schema import LearnerConfig, LoraConfig
from learners.batching import collate, plan_batches
from learners.memory import learner_memory, policy_shape, trainable
from learners.records import Sample
from learners.scoring import TokenScorer
from learners.tokenizing import PolicyError

CONFIG = Qwen2Config(
    vocab_size=512,
    hidden_size=128,
    intermediate_size=320,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    tie_word_embeddings=True,
    max_position_embeddings=512,
)
# Measures the peak of a step of 40 million weights in a separate process, less its memory before they are loaded.
MEASURED = """
import sys, tempfile
from transformers import Qwen2Config
from configs.schema import LearnerConfig, ScratchConfig
from learners.engine import LearnerEngine
from learners.memory import learner_memory, policy_shape
from learners.policy import make_policy
from learners.records import Sample
from pathlib import Path
stage = int(sys.argv[1])
folder = Path(tempfile.mkdtemp())
scratch = ScratchConfig(vocab_size=400, hidden_size=768, intermediate_size=2048, layers=6, heads=12, kv_heads=4)
make_policy(folder, ["text of a small program"] * 50, scratch, 64, 0)
config = LearnerConfig(zero_stage=stage, micro_batch_tokens=64, threads=1)
from learners.deepspeed_config import import_deepspeed
import_deepspeed()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
engine = LearnerEngine(config, folder, max_length=64)
samples = [Sample((3, 4, 5), (6, 7, 8, 9))] * 4
for _ in range(2):
    engine.train_cross_entropy(samples, 1e-4)
status = open("/proc/self/status").read()  # not getrusage: its peak is that of the process that started this one, too
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024 - before
shape = policy_shape(str(folder))
print(shape.parameters, peak, learner_memory(shape, engine.config, responses=16, reference=False).total)
"""


def test_a_shape_counts_the_elements_of_the_model() -> None:
    model = Qwen2ForCausalLM(CONFIG)
    shape = policy_shape(CONFIG)
    assert shape.parameters == sum(one.numel() for one in model.parameters())
    assert shape.cache_bytes == 2 * 6 * 2 * (2 * 32)
    lora = trainable(shape, LoraConfig(rank=4))
    assert lora == 4 * 6 * (2 * (128 + 128) + 2 * (128 + 64) + 3 * (128 + 320))


def kept_bytes(*, checkpointing: bool) -> tuple[int, int]:
    """The bytes that a forward pass keeps for the backward pass, and its number of tokens."""
    model = Qwen2ForCausalLM(CONFIG)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    samples = [Sample(tuple(range(200)), (1, 2, 3, 4))] * 8
    plan = plan_batches(samples, micro_batch_tokens=2048, max_length=512, world_size=1, share_prompts=False)
    batch = collate(plan.micro_batches[0][0], 0)
    own = {one.untyped_storage().data_ptr() for one in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        TokenScorer(model, autocast=True)(batch=batch, temperature=1.0)
    return sum(kept.values()), batch.input_ids.numel()


def test_predicted_activations_are_those_that_a_pass_keeps() -> None:
    shape = policy_shape(CONFIG)
    whole, tokens = kept_bytes(checkpointing=False)
    few, _ = kept_bytes(checkpointing=True)
    few += whole // shape.layers  # the layer that the backward pass has just computed again
    for taken, checkpointing in ((whole, False), (few, True)):
        config = LearnerConfig(micro_batch_tokens=tokens, gradient_checkpointing=checkpointing)
        said = learner_memory(shape, config, responses=0, reference=False).activations
        assert 0.7 < taken / said < 1.4, (checkpointing, taken / said)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_predicted_states_take_the_memory_of_a_process(stage) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED, str(stage)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    parameters, peak, said = map(int, done.stdout.split()[-3:])
    assert parameters > 3e7
    assert 0.7 < peak / said < 1.4, (stage, peak / parameters, said / parameters)


def test_ranks_share_the_states_that_their_stage_shards() -> None:
    shape = policy_shape(CONFIG)
    totals = [
        learner_memory(shape, LearnerConfig(zero_stage=stage, ranks=8), responses=10, reference=False).total
        for stage in (1, 2)
    ]
    assert totals[1] < totals[0]
    whole = learner_memory(shape, LearnerConfig(zero_stage=0), responses=10, reference=True)
    assert whole.reference == 2 * shape.parameters
    adapters = LearnerConfig(zero_stage=0, lora=LoraConfig(rank=4))
    small = learner_memory(shape, adapters, responses=10, reference=True)
    assert small.reference == 2 * trainable(shape, adapters.lora), "a copy of the adapters"
    assert whole.weights > 4 * shape.parameters > small.weights > 2 * shape.parameters, "frozen ones are half as wide"
    assert small.optimizer == 8 * trainable(shape, adapters.lora) < whole.optimizer / 8


def test_ranks_share_what_stage_3_shards_and_load_nothing_else() -> None:
    shape = policy_shape(CONFIG)

    def memory(**changes):
        return learner_memory(shape, LearnerConfig(zero_stage=3, ranks=4, **changes), responses=10, reference=True)

    assert memory().reference == 2 * shape.parameters // 4
    away = memory(offload_reference=True)
    assert (away.reference, away.host) == (0, 2 * shape.parameters // 4)
    largest = 2 * 4 * shape.vocabulary * shape.hidden // 4
    assert memory().loading == largest
    assert memory(offload_parameters="cpu").loading == largest + 4 * shape.parameters // 4
    assert learner_memory(shape, LearnerConfig(ranks=4), responses=10, reference=True).loading == 4 * shape.parameters


def test_off_loaded_states_are_on_the_host_instead() -> None:
    shape = policy_shape(CONFIG)
    config = LearnerConfig(zero_stage=3, autocast=False)

    def memory(**changes):
        return learner_memory(shape, replace(config, **changes), responses=10, reference=True)

    kept, weights = memory(), 4 * shape.parameters
    assert kept.host == 0
    moved = memory(offload_optimizer="cpu", offload_parameters="cpu")
    assert moved.optimizer == 0
    assert kept.weights - moved.weights == weights
    assert moved.host == (1 + 5) * weights
    assert memory(offload_optimizer="nvme").host == 3 * weights, "without the moments"
    away = memory(offload_reference=True)
    assert away.host == weights
    assert away.reference < kept.reference == weights


def test_a_model_without_a_configuration_is_one_line(tmp_path) -> None:
    with pytest.raises(PolicyError, match=r"policy\.model: .*no configuration"):
        policy_shape(str(tmp_path))


def test_logits_are_kept_if_there_is_room() -> None:
    shape = policy_shape(CONFIG)

    def activations(gib: int, responses: int) -> int:
        config = LearnerConfig(micro_batch_tokens=1024)
        return learner_memory(shape, config, responses=responses, reference=False, device_bytes=gib << 30).activations

    most = (80 << 30) // (16 * shape.vocabulary)  # tokens whose logits take an eighth of the memory
    grown = activations(80, most) - activations(80, most // 2)
    assert grown == pytest.approx(2 * shape.vocabulary * (most - most // 2), rel=0.01)
    assert activations(80, 2 * most) == activations(80, most), (
        "a micro-batch of as many, or of fewer, is what it may be"
    )
    assert activations(16, most) < activations(80, most)
