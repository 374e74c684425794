"""The reference policy of the KL term: the policy as it was when a phase began, or its adapters alone.

Never trained, and never read by anything but the KL term and checkpoints.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from configs.schema import LearnerConfig
from learners.errors import LearnerError
from learners.frozen import FrozenPolicy, frozen_dtype
from learners.frozen_shards import FrozenShards
from learners.lora import FrozenAdapters
from learners.sharding import Sharder
from learners.trained_policy import TrainedPolicy


class Reference:
    """Holds the reference policy, if there is one."""

    def __init__(
        self,
        policy: TrainedPolicy,
        scorer: Any,
        config: LearnerConfig,
        device: torch.device,
        sharder: Sharder | None = None,
    ) -> None:
        """`scorer`: DeepSpeed's engine around the trained policy, which also computes with frozen adapters. With a
        `sharder` each rank holds a shard of the reference policy, otherwise all of it."""
        self._policy, self._scorer, self._config, self._device = policy, scorer, config, device
        self._sharder = sharder
        self._frozen: FrozenPolicy | FrozenAdapters | FrozenShards | None = None

    def set(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Takes a copy of whole weights, or of whole adapters if the policy has them. The one before makes room."""
        self.forget()
        autocast, offload = self._config.autocast, self._config.offload_reference
        model = self._policy.model
        if self._sharder is not None and self._policy.adapters is None:
            self._frozen = FrozenShards(model, weights, self._sharder, device=self._device, autocast=autocast)
            self._policy.equip(self._frozen.model, self._device)
            return
        place = torch.device("cpu") if offload else self._device
        held = {name: weight.to(place, frozen_dtype(weight, autocast=autocast)) for name, weight in weights}
        if self._policy.adapters is not None:
            self._frozen = FrozenAdapters(model, held, self._scorer, device=self._device, offload=offload)
            return
        frozen = FrozenPolicy(model, held, device=self._device, autocast=autocast, offload=offload)
        self._policy.equip(frozen.model, self._device)
        self._frozen = frozen

    def forget(self) -> None:
        """Frees the memory of the reference policy."""
        if self._frozen is not None:
            self._frozen.close()
        self._frozen = None
        gc.collect()  # compiled layers refer to themselves

    def weights(self) -> Iterator[tuple[str, Tensor]] | None:
        """What `set` was given, in the precision that it is held in; None without a reference policy. All ranks must
        call it, and read it to the end."""
        return None if self._frozen is None else self._frozen.weights()

    def at_hand(self) -> contextlib.AbstractContextManager[Any]:
        """Within this context the yielded scorer computes log-probabilities of the reference policy."""
        if self._frozen is None:
            raise LearnerError("contrastive_rl.kl > 0 needs a reference policy: call set_reference() before the phase")
        return self._frozen.at_hand()
