"""The policy as a Hugging Face folder: made from scratch or loaded.

Never trains a model. A policy from scratch needs no model hub, and has the same bytes for the same seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.modules.dropout import _DropoutNd
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from configs.schema import ScratchConfig
from learners.tokenizing import CANNOT_LOAD, PolicyError, does_not_load, load_tokenizer

# EOS is Qwen2's name for the end of text. AutoTokenizer would add that name to a vocabulary that lacks it.
BOS, EOS, PAD = "<|bos|>", "<|endoftext|>", "<|pad|>"
_NOISE = re.compile("drop|jitter")  # names of probabilities: attention_dropout, resid_pdrop, layerdrop, ...


def make_policy(
    folder: Path, texts: Iterable[str], config: ScratchConfig, max_length: int, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Writes a randomly initialised Qwen2 model and a byte-level BPE tokenizer trained on `texts` to `folder`.

    `max_length`: tokens of the longest sequence. The same arguments give the same bytes. Raises PolicyError if the
    sizes do not fit each other.
    """
    if config.hidden_size % config.heads or config.heads % config.kv_heads or config.hidden_size // config.heads % 2:
        raise PolicyError(
            f"policy.scratch: hidden_size must be an even multiple of heads, and heads a multiple of kv_heads, "
            f"got hidden_size={config.hidden_size}, heads={config.heads}, kv_heads={config.kv_heads}"
        )
    tokenizer = train_tokenizer(texts, config.vocab_size, config.max_token_length, max_length)
    model_config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        initializer_range=config.initializer_range,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        architectures=[Qwen2ForCausalLM.__name__],
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(model_config)
    folder.mkdir(parents=True, exist_ok=True)
    # The model's save_pretrained would import DeepSpeed, which looks for an accelerator and prints that it does.
    save_torch_state_dict(dict(model.named_parameters()), folder)
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, max_token_length: int, max_length: int
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer for programs, which decodes to exactly the same bytes.

    Text is split at line ends only. So merges cross blanks, and a token can be a whole idiom of up to
    `max_token_length` bytes. This makes sequences short, and their length decides the cost of a small policy.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("\n"), behavior="merged_with_previous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=max_token_length,
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )


def load_policy(model: str | Path, dtype: torch.dtype | str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads a causal language model and its tokenizer from a folder or by its Hugging Face id.

    `dtype` may be `auto`, for the precision in which it was saved. Raises PolicyError if either does not load, or if
    weights are missing: transformers would fill them with random numbers.
    """
    tokenizer = load_tokenizer(model)
    loader: Any = AutoModelForCausalLM  # its annotations lack the pair that it returns with loading info
    try:
        loaded, report = loader.from_pretrained(str(model), dtype=dtype, output_loading_info=True)
    except CANNOT_LOAD as error:
        raise does_not_load("model", model, error) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise PolicyError(
            f"policy.model: {model} lacks {len(missing)} weights ({missing[0]}, ...): give a complete checkpoint"
        )
    return loaded, tokenizer


def switch_dropout_off(model: PreTrainedModel) -> None:
    """Sets every probability of dropout in `model` and its configuration to 0, in place, and those of other noise that
    a router adds in training.

    Rollout engines sample without dropout. With it, the ratio of a policy to itself would not be 1, and the KL term
    would see a distance between equal policies. Evaluation mode would switch gradient checkpointing off, too.
    """
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        for owner in (module, getattr(module, "config", None)):
            for name, value in list(vars(owner).items()) if owner is not None else ():
                if isinstance(value, float) and _NOISE.search(name):
                    setattr(owner, name, 0.0)


def compile_layers(model: PreTrainedModel) -> None:
    """Makes torch compile the decoder layers, for varying lengths; all layers share the compiled code.

    Operations between products of matrices then take few passes over memory. The first passes take the time to compile,
    and so do later ones if anything but a length changes.
    """
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.compile(dynamic=True)
