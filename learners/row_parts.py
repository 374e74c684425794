"""What one of several ranks has of a row that they share (`learners.sequence_parallel`). Never cuts a row itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class Part:
    """What a rank has of a batch whose row it shares. `own`: indices of its response tokens among all `tokens` of the
    row. `attention`: DeepSpeed's module, which exchanges tokens for heads."""

    own: Tensor
    tokens: int
    attention: Callable[..., tuple[Tensor, None]]
    group: Any

    def whole(self, values: Tensor) -> Tensor:
        """Values of all response tokens of the row, [tokens], from each rank's own. A gradient goes back to the rank
        that has the token; each rank of the group must compute the same from the whole."""
        return _Whole.apply(values, self)


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, part: Part) -> Tensor:
        ctx.own = part.own
        whole = values.new_zeros(part.tokens).index_copy(0, part.own, values)
        distributed.all_reduce(whole, group=part.group)
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.own], None
