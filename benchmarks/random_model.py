"""Writes a randomly initialised model in Hugging Face's format, for benchmarks whose figures no weights change.

It is made and written tensor by tensor, so that 15 GB take seconds on a GPU, and no more memory than one file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from evaluators.tasks import load_tasks, program_source
from learners.checkpoints import write_weights
from learners.policy import EOS, PAD, train_tokenizer

SHAPES: dict[str, dict[str, Any]] = {
    # The shapes of Qwen2.5-Coder's models, by their published configurations.
    "random-7b": {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "random-1.5b": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "random-0.5b": {
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "random-tiny": {
        "vocab_size": 4096,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
    },
}


def write_random_model(shape: str, folder: Path, max_length: int = 32768) -> Path:
    """Writes a model with one of `SHAPES`, in bfloat16, and a tokenizer trained on the bundled programs; returns the
    folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [program_source(task) for task in load_tasks("bundled", "cpu")]
    tokenizer = train_tokenizer(texts, 2048, 24, max_length)
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        **SHAPES[shape],
        max_position_embeddings=max_length,
        rope_theta=1e6,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(EOS),
        pad_token_id=tokenizer.convert_tokens_to_ids(PAD),
        architectures=["Qwen2ForCausalLM"],
        dtype="bfloat16",
    )
    config.save_pretrained(folder)
    with torch.device("meta"):
        empty: Any = AutoModelForCausalLM.from_config(config)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(0)

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in empty.named_parameters():
            values = torch.empty(parameter.shape, dtype=torch.bfloat16, device=device)
            if parameter.dim() > 1:
                values.normal_(std=config.initializer_range, generator=generator)
            else:
                values.fill_(0.0 if name.endswith("bias") else 1.0)
            yield name, values

    write_weights(weights(), folder)
    return folder
