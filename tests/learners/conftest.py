"""A policy that is small enough to train in a test, and samples to train it on."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.schema import LearnerConfig, ScratchConfig
from learners.policy import make_policy
from learners.records import Sample
from learners.tokenizing import encode_prompt, encode_response, load_tokenizer

PROGRAMS = [
    f"class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.{name}(x) * {number}\n"
    for number, name in enumerate(("relu", "tanh", "exp", "sigmoid"), start=2)
]


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random policy of about 50,000 parameters, with the tokenizer of the four programs."""
    folder = tmp_path_factory.mktemp("policy")
    scratch = ScratchConfig(vocab_size=320, hidden_size=32, intermediate_size=64, layers=2, heads=4, kv_heads=2)
    make_policy(folder, PROGRAMS, scratch, max_length=128, seed=3)
    return folder


@pytest.fixture(scope="session")
def samples(policy_folder: Path) -> list[Sample]:
    """Two prompts with two programs each."""
    tokenizer = load_tokenizer(policy_folder)
    prompts = [encode_prompt(tokenizer, text, chat_template=False) for text in ("Make it fast:\n", "Optimise this:\n")]
    responses = [encode_response(tokenizer, text) for text in PROGRAMS]
    return [Sample(tuple(prompts[i % 2]), tuple(response)) for i, response in enumerate(responses)]


@pytest.fixture
def learner_config() -> LearnerConfig:
    """One thread and exact float32, so that two runs agree except for rounding."""
    return LearnerConfig(autocast=False, threads=1, micro_batch_tokens=256)
