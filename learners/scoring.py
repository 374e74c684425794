"""Log-probabilities of response tokens: the one forward pass that all objectives share.

The vocabulary's logits are computed at response positions only, and in chunks, never for a whole batch: for prompts
several times as long as responses they would be most of the memory and much of the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from learners.batching import Batch

# Logits held at once; above it the backward pass recomputes each chunk. 64 Mi elements are 256 MiB in float32.
CHUNK_ELEMENTS = 1 << 26


def has_bfloat16(device: str) -> bool:
    """Whether a kind of device (`cuda`, `cpu`) has instructions for bfloat16. A CPU with AVX2 alone has none, and
    takes many times as long for a product of matrices as in float32."""
    if device != "cpu":
        return True
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class TokenScorer(nn.Module):
    """A causal language model that returns log-probabilities of given response tokens instead of logits.

    A module of its own, so that DeepSpeed wraps it: under ZeRO-3 the hooks that gather a layer's weights run only when
    modules are called, the output layer included.
    """

    def __init__(self, model: PreTrainedModel, *, autocast: bool, cache_casts: bool = True) -> None:
        """`autocast`: compute in bf16. `cache_casts`: keep the bf16 copies during a pass (not under ZeRO-3, whose point
        is not to hold all weights)."""
        super().__init__()
        self.model = model
        self.autocast = autocast
        self.cache_casts = cache_casts

    def forward(self, batch: Batch, temperature: float, with_entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """Natural log-probabilities of `batch.targets` at the sampling temperature, [tokens], float32; and, on request,
        the entropy of each prediction, [tokens], without a gradient. Temperature 0 (greedy) is read as 1."""
        scale = temperature if temperature > 0.0 else 1.0
        head = self.model.get_output_embeddings()
        with self._precision(batch.input_ids.device.type):
            hidden = self.model.base_model(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                position_ids=batch.position_ids,
                use_cache=False,
            ).last_hidden_state
            predicting = hidden.flatten(0, 1)[batch.predictors]
            pieces = list(self._chunks(predicting, batch.targets, head, scale, with_entropy))
        logprobs = torch.cat([piece[0] for piece in pieces])
        return logprobs, torch.cat([piece[1] for piece in pieces]) if with_entropy else None

    def _precision(self, device: str) -> contextlib.AbstractContextManager[object]:
        if not self.autocast:
            return contextlib.nullcontext()
        return torch.autocast(device, dtype=torch.bfloat16, cache_enabled=self.cache_casts)

    def _chunks(
        self, hidden: Tensor, targets: Tensor, head: nn.Module, temperature: float, with_entropy: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        size = max(CHUNK_ELEMENTS // self.model.config.get_text_config().vocab_size, 1)
        softcap = getattr(self.model.config.get_text_config(), "final_logit_softcapping", None)
        for start in range(0, max(len(targets), 1), size):
            stop = start + size
            arguments = (hidden[start:stop], targets[start:stop], head, temperature, softcap, with_entropy)
            if len(targets) > size and torch.is_grad_enabled():
                yield checkpoint(_score, *arguments, use_reentrant=False)
            else:
                yield _score(*arguments)


def _score(
    hidden: Tensor, targets: Tensor, head: nn.Module, temperature: float, softcap: float | None, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    """[tokens, hidden] to log-probabilities and entropies, [tokens] each (entropies are empty unless asked for)."""
    logits = head(hidden)
    statistics = _fused() if logits.device.type == "cuda" else _statistics
    logprobs, entropy = statistics(logits, targets, temperature, softcap, with_entropy)
    return logprobs, entropy


def _statistics(
    logits: Tensor, targets: Tensor, temperature: float, softcap: float | None, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    """The same of logits, [tokens, vocabulary], in float32."""
    logits = logits.float()
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    if temperature != 1.0:
        logits = logits / temperature
    logprobs = -functional.cross_entropy(logits, targets, reduction="none")
    if not with_entropy:
        return logprobs, logprobs.new_empty(0)
    with torch.no_grad():
        distribution = functional.log_softmax(logits, dim=-1)
        entropy = -(distribution.exp() * distribution).sum(dim=-1)
    return logprobs, entropy


@cache
def _fused() -> Any:
    """Compiled, so that a GPU reads the vocabulary's logits a few times and never writes them in float32."""
    return torch.compile(_statistics, dynamic=True)
