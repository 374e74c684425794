"""Frozen weights: those of the reference policy, and those under adapters. They take half the memory of trained ones,
and can lie in host memory.

Never holds weights that an optimiser steps on: these stay float32 (`learners/trained_policy.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from learners.scoring import TokenScorer
from learners.sharding import empty_copy, is_shard


def frozen_dtype(weight: Tensor, *, autocast: bool) -> torch.dtype:
    """The precision in which a frozen weight is held.

    Under autocast to bfloat16 a matrix is held in bfloat16, because products are computed with just these values. Norms
    and biases stay float32, which costs little and changes nothing.
    """
    return torch.bfloat16 if autocast and weight.dim() > 1 else torch.float32


def freeze(model: PreTrainedModel, *, autocast: bool) -> None:
    """Freezes all weights of `model`, each in its `frozen_dtype`; ZeRO-3's shards have been cut in theirs. Values
    between layers stay float32, as with float32 weights."""
    model.requires_grad_(False)
    for parameter in model.parameters():
        if not is_shard(parameter):
            parameter.data = parameter.data.to(frozen_dtype(parameter, autocast=autocast))
    if autocast:
        embeddings: Any = model.get_input_embeddings()
        embeddings.register_forward_hook(_in_float32)


def _in_float32(_module: nn.Module, _inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    return output.float()


@contextlib.contextmanager
def on_device(parameters: Iterable[nn.Parameter], device: torch.device) -> Iterator[None]:
    """Within this context parameters of host memory are on the device, where they must not be changed."""
    home = {parameter: parameter.data for parameter in parameters}
    try:
        for parameter, host in home.items():
            parameter.data = host.to(device, non_blocking=True)
        yield
    finally:
        for parameter, host in home.items():
            parameter.data = host


class FrozenPolicy:
    """A copy of an earlier policy, whole on every rank, that computes log-probabilities."""

    def __init__(
        self,
        like: PreTrainedModel,
        weights: Mapping[str, Tensor],
        *,
        device: torch.device,
        autocast: bool,
        offload: bool,
    ) -> None:
        """`like`: a model of the same architecture; its own weights, which may be shards, are not read. `weights`: by
        Hugging Face's names, tied ones once. `offload`: keep them in host memory, except within `at_hand`."""
        self.model = empty_copy(like)
        self.model.load_state_dict(weights, strict=False, assign=True)  # tied weights come once
        self.model.tie_weights()
        freeze(self.model, autocast=autocast)
        self.model.eval()
        self._device = device
        self._offload = offload and device.type != "cpu"
        self._scorer = TokenScorer(self.model, autocast=autocast)
        if self._offload:
            for parameter in self.model.parameters():
                parameter.data = parameter.data.cpu().pin_memory()
            for buffer in self.model.buffers():
                buffer.data = buffer.data.to(device)
        else:
            self._scorer.to(device)

    @contextlib.contextmanager
    def at_hand(self) -> Iterator[TokenScorer]:
        """Within this context the yielded scorer has its weights on the device."""
        with on_device(self.model.parameters(), self._device) if self._offload else contextlib.nullcontext():
            yield self._scorer

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Its weights by Hugging Face's names, tied ones once."""
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach()

    def close(self) -> None:
        """Nothing holds it but its owner."""
