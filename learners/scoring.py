"""Log-probabilities of response tokens: the forward pass that all objectives share.

Logits over the vocabulary are computed at response positions only, and in chunks, never for a whole batch. Prompts are
several times as long as responses, so that logits of all positions would take most of the memory and much of the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from learners.batching import Batch

CHUNK_ELEMENTS = {"cpu": 1 << 26, "cuda": 1 << 28}
"""Logits that are computed at once, by kind of device; on a CPU they are float32."""
_KEPT_SHARE = 8  # logits that are kept for the backward pass take at most one part in this many of a GPU's memory


def most_kept(memory: int, width: int) -> int:
    """The largest number of a micro-batch's logits that are kept for its backward pass. If there are more, the backward
    pass computes each chunk again. `memory`: bytes of the GPU's memory, 0 for a CPU. `width`: bytes of a logit."""
    return memory // (_KEPT_SHARE * width) if memory else CHUNK_ELEMENTS["cpu"]


def has_bfloat16(device: str) -> bool:
    """Whether a kind of device (`cuda`, `cpu`) has instructions for bfloat16. A CPU that has only AVX2 lacks them:
    products of matrices then take many times as long as in float32."""
    if device != "cpu":
        return True
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class TokenScorer(nn.Module):
    """A causal language model that returns log-probabilities of given response tokens instead of logits.

    It is a module, so that DeepSpeed can wrap it. Under ZeRO-3 the hooks that gather a layer's weights run only if
    modules are called, including the output layer.
    """

    def __init__(self, model: PreTrainedModel, *, autocast: bool, cache_casts: bool = True) -> None:
        """`autocast`: compute in bfloat16. `cache_casts`: keep the bfloat16 copies of weights during a pass. Not under
        ZeRO-3, which must not hold all weights at once."""
        super().__init__()
        self.model = model
        self.autocast = autocast
        self.cache_casts = cache_casts

    def forward(self, batch: Batch, temperature: float, with_entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """Natural log-probabilities of the batch's response tokens at the sampling temperature, [tokens], float32.

        Also returns the entropy of each prediction, [tokens], without a gradient, if `with_entropy` is set. Temperature
        0 (greedy) counts as 1.
        """
        scale = temperature if temperature > 0.0 else 1.0
        head = self.model.get_output_embeddings()
        packed = {name: value for name in ("layout", "part") if (value := getattr(batch, name)) is not None}
        with self._precision(batch.input_ids.device.type):
            hidden = self.model.base_model(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                position_ids=batch.position_ids,
                use_cache=False,
                **packed,
            ).last_hidden_state
            predicting = hidden.flatten(0, 1)[batch.predictors]
            pieces = list(self._chunks(predicting, batch.targets, head, scale, with_entropy))
        whole = batch.part.whole if batch.part is not None else lambda values: values
        logprobs = whole(torch.cat([piece[0] for piece in pieces]))
        return logprobs, whole(torch.cat([piece[1] for piece in pieces])) if with_entropy else None

    def _precision(self, device: str) -> contextlib.AbstractContextManager[object]:
        if not self.autocast:
            return contextlib.nullcontext()
        return torch.autocast(device, dtype=torch.bfloat16, cache_enabled=self.cache_casts)

    def _chunks(
        self, hidden: Tensor, targets: Tensor, head: nn.Module, temperature: float, with_entropy: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        text = self.model.config.get_text_config()
        size = max(CHUNK_ELEMENTS[hidden.device.type] // text.vocab_size, 1)
        kept = len(targets) * text.vocab_size <= most_kept(device_bytes(hidden.device), 2 if self.autocast else 4)
        scale = _Scale(temperature, getattr(text, "final_logit_softcapping", None))
        for start in range(0, max(len(targets), 1), size):
            stop = start + size
            score = _Score(head, scale, with_entropy)
            if not kept and torch.is_grad_enabled():
                yield checkpoint(score, hidden[start:stop], targets[start:stop], use_reentrant=False)
            else:
                yield score(hidden[start:stop], targets[start:stop])


@dataclass(frozen=True)
class _Scale:
    """The scaling of logits before the softmax."""

    temperature: float
    softcap: float | None

    def __call__(self, logits: Tensor) -> Tensor:
        """In float32."""
        logits = logits.float()
        if self.softcap:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return logits if self.temperature == 1.0 else logits / self.temperature


class _Score:
    """From [tokens, hidden] and [tokens] targets to log-probabilities and entropies, [tokens] each.

    Entropies have no gradient, so only the first call computes them. A second call is the recomputation of the backward
    pass.
    """

    def __init__(self, head: nn.Module, scale: _Scale, with_entropy: bool) -> None:
        self._head, self._scale, self._with_entropy = head, scale, with_entropy

    def __call__(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self._head(hidden)
        on_gpu = logits.device.type == "cuda"
        logprobs = (_fused(_logprobs) if on_gpu else _logprobs)(logits, targets, self._scale)
        if not self._with_entropy:
            return logprobs, logprobs.new_empty(0)
        self._with_entropy = False
        with torch.no_grad():
            entropy = (_fused(_entropy) if on_gpu else _entropy)(logits, targets, logprobs, self._scale)
        return logprobs, entropy


def _logprobs(logits: Tensor, targets: Tensor, scale: _Scale) -> Tensor:
    """Log-probabilities of the targets; logits: [tokens, vocabulary]."""
    return -functional.cross_entropy(scale(logits), targets, reduction="none")


def _entropy(logits: Tensor, targets: Tensor, logprobs: Tensor, scale: _Scale) -> Tensor:
    """The entropy of each prediction, with one more pass over the logits: their normaliser follows from the targets'
    log-probabilities."""
    scaled = scale(logits)
    normaliser = scaled.gather(1, targets[:, None]) - logprobs[:, None]
    return normaliser[:, 0] - ((scaled - normaliser).exp() * scaled).sum(dim=1)


def device_bytes(device: torch.device) -> int:
    """Bytes of the GPU's memory; 0 for a CPU."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else 0


@cache
def _fused(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compiles a function of logits, so that a GPU reads them a few times and never writes them in float32."""
    return torch.compile(function, dynamic=True)
