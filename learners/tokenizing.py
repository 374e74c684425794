"""Text becomes token ids here alone, with the tokenizer of the policy.

Imports no model: the driver starts with this.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils.hub import cached_file

CANNOT_LOAD = (OSError, ValueError, RuntimeError, KeyError, ImportError, SafetensorError)
"""What transformers and safetensors raise for files that they cannot load."""


class PolicyError(Exception):
    """The policy cannot be made or loaded. The message is one line that names the model and the remedy."""


def load_tokenizer(model: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a policy. Raises PolicyError if it does not load or has no end-of-text token."""
    try:
        # A tokenizer that was saved as plain `TokenizersBackend` must be read as its file says. For a qwen2 model
        # AutoTokenizer (transformers 5.19) would use Qwen2's word splitting and normalisation: other ids, other text.
        loader: Any = PreTrainedTokenizerFast
        if _named_class(model) != PreTrainedTokenizerFast.__name__:
            from transformers import AutoTokenizer  # here: its import takes 4 s of a core

            loader = AutoTokenizer
        tokenizer = loader.from_pretrained(str(model))
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise does_not_load("tokenizer", model, error) from error
    if tokenizer.eos_token_id is None:
        raise PolicyError(f"policy.model: the tokenizer of {model} has no eos token: responses could not end")
    return tokenizer


def _named_class(model: str | Path) -> str:
    """The class that `tokenizer_config.json` names, empty for none."""
    try:
        path = cached_file(str(model), "tokenizer_config.json")
    except OSError:
        return ""  # there need not be such a file
    return str(json.loads(Path(path or "").read_text("utf-8")).get("tokenizer_class", ""))


def does_not_load(part: str, model: str | Path, error: Exception) -> PolicyError:
    """The error for a part of a policy that raised another one."""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return PolicyError(
        f"policy.model: the {part} of {model} does not load ({reason[:200]}): give `scratch`, a folder with a Hugging "
        "Face causal language model, or the id of one that this machine can download"
    )


def encode_prompt(tokenizer: PreTrainedTokenizerBase, text: str, chat_template: bool) -> list[int]:
    """Token ids of a prompt. With `chat_template` it is one user turn in the tokenizer's chat template, if it has one.
    Otherwise it is bos, if there is one, and the text."""
    if chat_template and tokenizer.chat_template:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        return list(ids)
    start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return start + _encode(tokenizer, text)


def encode_response(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a whole response: the text, then eos."""
    return [*_encode(tokenizer, text), tokenizer.eos_token_id]


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    # Programs and responses are data: `<|endoftext|>` in them means these characters, not the end of the text.
    return list(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
