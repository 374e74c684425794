"""A policy from scratch is reproducible and loads like any other model, and its tokenizer loses nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    MixtralConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from configs.schema import ScratchConfig
from learners.policy import load_policy, make_policy, switch_dropout_off
from learners.tokenizing import PolicyError, encode_prompt, encode_response, load_tokenizer

SMALL = ScratchConfig(vocab_size=320, hidden_size=32, intermediate_size=48, layers=1, heads=2, kv_heads=1)
PROGRAM = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
)


@pytest.fixture(scope="module")
def tokenizer(policy_folder: Path) -> PreTrainedTokenizerBase:
    return load_tokenizer(policy_folder)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_same_seed_makes_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    torch.manual_seed(1)
    make_policy(tmp_path / "a", [PROGRAM], SMALL, max_length=64, seed=5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    make_policy(tmp_path / "b", [PROGRAM], SMALL, max_length=64, seed=5)
    assert torch.equal(torch.get_rng_state(), before), "making a policy must not touch the caller's random numbers"
    make_policy(tmp_path / "c", [PROGRAM], SMALL, max_length=64, seed=6)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert digest(tmp_path / "a" / name) == digest(tmp_path / "b" / name)
    assert digest(tmp_path / "a/model.safetensors") != digest(tmp_path / "c/model.safetensors")


def test_a_policy_from_scratch_loads_as_a_tied_qwen2(policy_folder: Path) -> None:
    model, tokenizer = load_policy(policy_folder, torch.bfloat16)
    assert model.config.architectures == ["Qwen2ForCausalLM"]
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert next(model.parameters()).dtype is torch.bfloat16
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert len(tokenizer) == model.config.vocab_size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_any_text_comes_back_exactly(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    ids = encode_response(tokenizer, text)
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids[:-1]) == text


@pytest.mark.parametrize(
    "text", ["  x\t= 1\r\n\n\n", "a  ,  b .", "e\u0301", "<|endoftext|> in a string", "é🙂\x00", " leading", PROGRAM]
)
def test_layout_and_special_words_are_only_text(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    ids = encode_response(tokenizer, text)
    assert tokenizer.decode(ids[:-1]) == text
    assert tokenizer.eos_token_id not in ids[:-1]


def test_engines_that_load_the_tokenizer_their_own_way_decode_the_same(policy_folder: Path) -> None:
    ours, theirs = load_tokenizer(policy_folder), AutoTokenizer.from_pretrained(policy_folder)
    ids = encode_response(ours, PROGRAM)
    assert len(theirs) == len(ours)
    assert theirs.decode(ids, skip_special_tokens=True) == PROGRAM
    assert theirs.eos_token_id == ours.eos_token_id


def test_tokens_cross_blanks_and_stop_at_their_limit(tmp_path: Path) -> None:
    config = ScratchConfig(vocab_size=400, hidden_size=32, intermediate_size=48, layers=1, heads=2, kv_heads=1)
    _, tokenizer = make_policy(tmp_path, [PROGRAM] * 4, config, max_length=64, seed=0)
    loaded = load_tokenizer(tmp_path)
    assert encode_response(loaded, PROGRAM) == encode_response(tokenizer, PROGRAM)
    pieces = [loaded.decode([token]) for token in encode_response(tokenizer, PROGRAM)[:-1]]
    assert any(" " in piece.strip() for piece in pieces)
    assert max(len(piece) for piece in pieces) <= config.max_token_length
    assert len(PROGRAM) / len(pieces) > 8


def test_a_prompt_starts_with_bos_or_uses_the_chat_template(policy_folder: Path) -> None:
    tokenizer = load_tokenizer(policy_folder)
    plain = encode_prompt(tokenizer, "Hello\n", chat_template=True)
    assert plain[0] == tokenizer.bos_token_id
    assert tokenizer.decode(plain[1:]) == "Hello\n"
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
    assert tokenizer.decode(encode_prompt(tokenizer, "Hello", chat_template=True)) == "[user]Hello[assistant]"
    assert encode_prompt(tokenizer, "Hello\n", chat_template=False) == plain


def test_a_model_that_does_not_load_is_named_in_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "nothing-here"
    with pytest.raises(PolicyError, match="nothing-here does not load") as caught:
        load_policy(missing, torch.float32)
    assert "\n" not in str(caught.value)


def test_a_damaged_or_incomplete_model_is_refused(tmp_path: Path) -> None:
    make_policy(tmp_path, [PROGRAM], SMALL, max_length=64, seed=0)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    with pytest.raises(PolicyError, match="does not load"):
        load_policy(tmp_path, torch.float32)
    weights.write_bytes(whole)
    config = (tmp_path / "config.json").read_text()
    deeper = config.replace('"num_hidden_layers": 1', '"num_hidden_layers": 2')
    (tmp_path / "config.json").write_text(deeper.replace('"full_attention"\n', '"full_attention", "full_attention"\n'))
    with pytest.raises(PolicyError, match="lacks"):
        load_policy(tmp_path, torch.float32)


def test_sizes_that_do_not_fit_are_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="hidden_size=100, heads=6"):
        make_policy(tmp_path, [PROGRAM], ScratchConfig(hidden_size=100), max_length=64, seed=0)


NOISY: dict[str, Callable[[], PretrainedConfig]] = {
    "modules": lambda: GPT2Config(attn_pdrop=0.5, resid_pdrop=0.5, embd_pdrop=0.5, n_embd=16, n_layer=2, n_head=2),
    "functions": lambda: OPTConfig(dropout=0.5, attention_dropout=0.5, layerdrop=0.5, ffn_dim=16, **SIZES),
    "router": lambda: MixtralConfig(router_jitter_noise=0.5, intermediate_size=16, num_key_value_heads=2, **SIZES),
}
SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.mark.parametrize("name", NOISY)
def test_a_policy_in_training_computes_what_it_does_in_evaluation(name: str) -> None:
    model = AutoModelForCausalLM.from_config(NOISY[name]())
    ids = torch.arange(3, 15)[None]

    def hidden(*, trains: bool) -> torch.Tensor:
        return model.train(trains).base_model(ids).last_hidden_state

    expected = hidden(trains=False)
    assert not torch.allclose(hidden(trains=True), expected), "there is something to switch off"
    switch_dropout_off(model)
    torch.testing.assert_close(hidden(trains=True), expected)
    torch.testing.assert_close(hidden(trains=False), expected, atol=0, rtol=0)
