"""Samples to padded micro-batches under a token budget, the same plan on every rank without talking.

Responses to one prompt may stand in one row behind it: the prompt is computed once, and a mask keeps the responses from
seeing each other, so that every token's log-probability is what it would be alone. Never changes, drops or reorders
tokens inside a sample; whole samples that are too long are dropped and counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from learners.records import Sample


@dataclass(frozen=True)
class Row:
    """One sequence of the batch: a prompt, and the samples whose responses follow it one after the other."""

    samples: tuple[Sample, ...]

    @property
    def length(self) -> int:
        """Tokens in the row: the prompt once, and every response."""
        return len(self.samples[0].prompt_ids) + self.response_tokens

    @property
    def response_tokens(self) -> int:
        """Tokens that are trained on."""
        return sum(len(sample.response_ids) for sample in self.samples)


@dataclass(frozen=True)
class Plan:
    """What every rank runs: `micro_batches[rank]` is a list of micro-batches, each a list of rows.

    All ranks have the same number of micro-batches (an empty one has no rows), so that collectives match.
    `response_tokens` and `responses` count over all ranks; `dropped` counts the samples that were too long or had no
    response.
    """

    micro_batches: list[list[list[Row]]]
    response_tokens: int
    responses: int
    dropped: int

    @property
    def padded_tokens(self) -> int:
        """Tokens that forward passes compute, padding included, over all ranks."""
        return sum(_padded(rows) for batches in self.micro_batches for rows in batches)


@dataclass(frozen=True)
class Batch:
    """A micro-batch as tensors. Rows are padded on the right; `tokens` counts response tokens, row by row.

    `input_ids`: [rows, length]. `attention_mask`: [rows, 1, length, length], true where attention is allowed, or None
    when every row has one response: then padding follows everything, and causal attention alone is right (and faster).
    `position_ids`: [rows, length], or None likewise. `predictors`: [tokens], the index into rows * length of the
    position whose output predicts each response token. `targets`: [tokens] token ids. `advantages`: [tokens].
    `behaviour_logprobs`: [tokens], NaN where a sample carries none. `response_of`: [tokens], which response a token is
    of, counted from 0.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor | None
    predictors: Tensor
    targets: Tensor
    advantages: Tensor
    behaviour_logprobs: Tensor
    response_of: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same batch on `device`."""
        moved = {name: value.to(device) for name, value in vars(self).items() if value is not None}
        return replace(self, **moved)


def plan_batches(
    samples: Sequence[Sample],
    *,
    micro_batch_tokens: int,
    max_length: int,
    world_size: int = 1,
    share_prompts: bool = True,
) -> Plan:
    """Deals `samples` out to ranks and micro-batches; deterministic, so all ranks make the same plan by themselves.

    A micro-batch has at most `micro_batch_tokens` tokens, padding included; a single row over that is a batch of its
    own. Samples over `max_length` tokens, and those without a response, are dropped and counted. Raises ValueError for
    a sample without a prompt: nothing would predict its first token.
    """
    usable = []
    for sample in samples:
        if not sample.prompt_ids:
            raise ValueError("a sample has an empty prompt; a prompt needs one token at least (encode_prompt adds bos)")
        if sample.response_ids and len(sample.prompt_ids) + len(sample.response_ids) <= max_length:
            usable.append(sample)
    cap = min(max_length, micro_batch_tokens) if share_prompts else 0
    rows = sorted(_rows_of(usable, cap), key=lambda row: row.length, reverse=True)

    ranks: list[list[Row]] = [[] for _ in range(world_size)]
    load = [0] * world_size
    for row in rows:  # longest first to whoever has least: the ranks differ by one row at most
        rank = load.index(min(load))
        ranks[rank].append(row)
        load[rank] += row.length
    micro_batches = [_fill(rank_rows, micro_batch_tokens) for rank_rows in ranks]
    count = max(len(batches) for batches in micro_batches)
    for batches in micro_batches:
        batches.extend([] for _ in range(count - len(batches)))
    tokens = sum(row.response_tokens for row in rows)
    return Plan(micro_batches, tokens, len(usable), len(samples) - len(usable))


def _rows_of(samples: Sequence[Sample], cap: int) -> list[Row]:
    """One row a sample, or rows of up to `cap` tokens that share a prompt. A row is never longer than a lone sample may
    be, so attention costs no more memory than without sharing."""
    groups: dict[tuple[int, ...], list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.prompt_ids, []).append(sample)
    rows = []
    for prompt, members in groups.items():
        total = sum(len(sample.response_ids) for sample in members)
        room = max(cap - len(prompt), 1)
        # As few rows as fit, then evenly full: equal rows waste no padding.
        goal = math.ceil(total / math.ceil(total / room))
        row: list[Sample] = []
        filled = 0
        for sample in sorted(members, key=lambda member: len(member.response_ids), reverse=True):
            size = len(sample.response_ids)
            if row and (filled + size > room or filled + size / 2 > goal):
                rows.append(Row(tuple(row)))
                row, filled = [], 0
            row.append(sample)
            filled += size
        rows.append(Row(tuple(row)))
    return rows


def _fill(rows: Sequence[Row], budget: int) -> list[list[Row]]:
    """Cuts rows, longest first, into micro-batches of at most `budget` padded tokens."""
    batches: list[list[Row]] = []
    for row in rows:
        if batches and batches[-1][0].length * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _padded(rows: Sequence[Row]) -> int:
    return max((row.length for row in rows), default=0) * len(rows)


def collate(rows: Sequence[Row], pad_id: int) -> Batch:
    """The tensors of one micro-batch. Without rows: one row of padding and no response token, whose loss is 0."""
    length = max((row.length for row in rows), default=2)
    input_ids = torch.full((max(len(rows), 1), length), pad_id, dtype=torch.long)
    position_ids = torch.arange(length).repeat(len(input_ids), 1)
    segments = torch.full_like(input_ids, -1)  # 0 is the prompt, 1.. the responses, -1 padding
    predictors: list[Tensor] = []
    for index, row in enumerate(rows):
        prompt = len(row.samples[0].prompt_ids)
        input_ids[index, :prompt] = torch.tensor(row.samples[0].prompt_ids)
        segments[index, :prompt] = 0
        start = prompt
        for number, sample in enumerate(row.samples, start=1):
            size = len(sample.response_ids)
            stop = start + size
            input_ids[index, start:stop] = torch.tensor(sample.response_ids)
            segments[index, start:stop] = number
            position_ids[index, start:stop] = torch.arange(prompt, prompt + size)
            positions = torch.arange(start - 1, stop - 1)
            positions[0] = prompt - 1  # the prompt's last token predicts the first of every response
            predictors.append(positions + index * length)
            start = stop
    samples = [sample for row in rows for sample in row.samples]
    lengths = torch.tensor([len(sample.response_ids) for sample in samples], dtype=torch.long)
    shared = any(len(row.samples) > 1 for row in rows)
    return Batch(
        input_ids=input_ids,
        attention_mask=_mask(segments) if shared else None,
        position_ids=position_ids if shared else None,
        predictors=torch.cat(predictors) if predictors else torch.empty(0, dtype=torch.long),
        targets=torch.tensor([token for sample in samples for token in sample.response_ids], dtype=torch.long),
        advantages=_per_token([[sample.advantage] * len(sample.response_ids) for sample in samples]),
        behaviour_logprobs=_per_token([_behaviour(sample) for sample in samples]),
        response_of=torch.arange(len(samples)).repeat_interleave(lengths),
    )


def _mask(segments: Tensor) -> Tensor:
    """[rows, length] segment numbers to [rows, 1, length, length]: causal, and only the prompt or the own response."""
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    own = segments[:, :, None] == segments[:, None, :]
    return (causal & (own | (segments == 0)[:, None, :])).unsqueeze(1)


def _behaviour(sample: Sample) -> Sequence[float]:
    if not sample.logprobs:
        return [math.nan] * len(sample.response_ids)
    if len(sample.logprobs) != len(sample.response_ids):
        raise ValueError(f"a sample has {len(sample.response_ids)} response tokens, {len(sample.logprobs)} logprobs")
    return sample.logprobs


def _per_token(values: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor([value for sample in values for value in sample], dtype=torch.float32)
