"""A tiny policy and a rollout engine, which all tests of the actors share."""

import json
from pathlib import Path

import pytest
import ray
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from actors.engine_calls import requests_at_once
from actors.rollout import RolloutEngine
from configs.schema import PolicyConfig, RolloutConfig

_VOCABULARY = 320


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 with two small layers and a byte-level tokenizer. Its weights are so large that its choices are clear."""
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=_VOCABULARY, special_tokens=["<end>", "<pad>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([Path(__file__).read_text(), "```\n" * 200], trainer)  # a fence is one token
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>").save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=_VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id("<end>"),
        pad_token_id=tokenizer.token_to_id("<pad>"),
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    # Many published models come with such a file. What it says must not change how rollouts are sampled: ratios need
    # the probabilities of the whole distribution.
    sampling = {"do_sample": True, "top_p": 0.2, "top_k": 2, "repetition_penalty": 2.0, "temperature": 0.3}
    (folder / "generation_config.json").write_text(json.dumps(sampling))
    return folder


@pytest.fixture(scope="session")
def rollout_config() -> RolloutConfig:
    return RolloutConfig(max_concurrent=32, kv_cache_gib=0.1, timeout=60.0, start_timeout=240.0)


@pytest.fixture(scope="session")
def policy_config() -> PolicyConfig:
    return PolicyConfig(max_length=512, dtype="float32")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a running engine come last in this folder: it starts beside the others."""
    here = Path(__file__).parent
    own = [index for index, item in enumerate(items) if here in item.path.parents]
    last = sorted((items[index] for index in own), key=lambda item: "engine" in getattr(item, "fixturenames", ()))
    for index, item in zip(own, last, strict=True):
        items[index] = item
        if "engine" in getattr(last[-1], "fixturenames", ()) and "local_ray" in getattr(item, "fixturenames", ()):
            item.fixturenames.append("starting_engine")


@pytest.fixture(scope="session")
def starting_engine(local_ray: None, policy_folder: Path, rollout_config: RolloutConfig, policy_config: PolicyConfig):
    """The engine of these tests, from the first test that needs Ray on."""
    started = RolloutEngine.options(max_concurrency=requests_at_once(rollout_config))
    handle = started.remote(str(policy_folder), rollout_config, policy_config, 0)
    yield handle
    ray.kill(handle)


@pytest.fixture(scope="session")
def engine(starting_engine):
    """A running engine with the policy as version 0. Tests that push other weights push the old ones again."""
    ray.get(starting_engine.ping.remote(), timeout=600)
    return starting_engine
