"""A rank's micro-batches of one step, with the log-probabilities that its objective compares with.

Never computes a log-probability itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from learners.batching import Batch, Plan, Row, collate
from learners.sequence_parallel import SequenceGroup


@dataclass
class MicroBatch:
    """A micro-batch of this rank, and what was computed for it before the first optimiser step.

    `old`: [tokens], log-probabilities of the policy at the start of the step. `reference`: [tokens], those of the
    reference policy. Both are None if the objective does not need them.
    """

    make: Callable[[], Batch]
    old: Tensor | None = None
    reference: Tensor | None = None

    @cached_property
    def batch(self) -> Batch:
        """The tensors. They are made on first use, while a GPU still computes with the micro-batch before."""
        return self.make()


def micro_batches_of(
    plan: Plan,
    rank: int,
    tokenizer: PreTrainedTokenizerBase,
    device: torch.device,
    sequence_group: SequenceGroup | None = None,
) -> list[MicroBatch]:
    """The micro-batches of `rank` in a plan, or this rank's part of them if a `sequence_group` shares them."""
    pad = tokenizer.pad_token_id
    pad_id = cast(int, tokenizer.eos_token_id if pad is None else pad)

    def batch_of(rows: Sequence[Row]) -> Batch:
        batch = collate(rows, pad_id, packed=plan.packed).to(device)
        return batch if sequence_group is None else sequence_group.part_of(batch)

    return [MicroBatch(partial(batch_of, rows)) for rows in plan.micro_batches[rank]]
