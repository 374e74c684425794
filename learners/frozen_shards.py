"""The reference policy under ZeRO-3: a copy of an earlier policy, of which each rank holds a shard.

Never trained. Its layers gather their weights as those of the trained policy do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from learners.frozen import freeze, frozen_dtype
from learners.lora import merged_weights
from learners.scoring import TokenScorer
from learners.sharding import Sharder, empty_copy


class FrozenShards:
    """Computes log-probabilities of a copy of an earlier policy. All ranks must call its methods."""

    def __init__(
        self,
        like: PreTrainedModel,
        weights: Iterable[tuple[str, Tensor]],
        sharder: Sharder,
        *,
        device: torch.device,
        autocast: bool,
    ) -> None:
        """`like`: a model of the same architecture, whose own weights are not read. `weights`: whole, by Hugging Face's
        names, tied ones once; they are read one by one."""
        self.model = empty_copy(like)
        self._dtype = partial(frozen_dtype, autocast=autocast)
        self._sharder = sharder = sharder.for_reference()
        sharder.fill(self.model, weights, self._dtype)
        freeze(self.model, autocast=autocast)
        self.model.eval()
        scorer = TokenScorer(self.model, autocast=autocast, cache_casts=False).to(device)
        self._engine, *_ = sharder.deepspeed.initialize(
            model=scorer, config=sharder.settings(self.model), dist_init_required=False
        )
        self._engine.eval()

    def at_hand(self) -> contextlib.AbstractContextManager[Any]:
        """Within this context the yielded scorer computes log-probabilities."""
        return contextlib.nullcontext(self._engine)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Its weights, whole, in the precision in which they are held, by Hugging Face's names, tied ones once."""
        for name, weight in merged_weights(self.model, self._sharder.gather):
            yield name, weight.to(self._dtype(weight))

    def close(self) -> None:
        """Lets go of DeepSpeed's hooks."""
        self._engine.destroy()
