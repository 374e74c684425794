"""Samples to micro-batches under a token budget, the same plan on every rank without talking.

Responses to one prompt may stand in one row behind it: the prompt is computed once, and a mask keeps the responses from
seeing each other, so that every token's log-probability is what it would be alone. Rows are padded to one length, or
packed one behind the other. Never changes, drops or reorders tokens inside a sample; whole samples that are too long
are dropped and counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from learners.attention import BLOCK, PackedLayout, dense_mask, packed_layout
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
    packed: bool = False

    @property
    def padded_tokens(self) -> int:
        """Tokens that forward passes compute, padding included, over all ranks."""
        size = _packed_length if self.packed else _padded
        return sum(size(rows) for batches in self.micro_batches for rows in batches)


@dataclass(frozen=True)
class Batch:
    """A micro-batch as tensors. Rows are padded on the right, or packed into one; `tokens` counts response tokens, row
    by row.

    `input_ids`: [rows, length]. `attention_mask`: [rows, 1, length, length], true where attention is allowed, or None
    when every row has one response: then padding follows everything, and causal attention alone is right (and faster).
    `segments`: [2, length], of packed rows alone, which prompt and which response of it each token is of. `layout`:
    what stands for it, and for the mask, on a GPU (see `learners.attention`).
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
    segments: Tensor | None = None
    layout: PackedLayout | None = None

    def to(self, device: torch.device) -> Batch:
        """The same batch on `device`, with the mask or the layout of its segments."""
        moved = replace(self, **{name: value.to(device) for name, value in vars(self).items() if value is not None})
        if self.segments is None:
            return moved
        if device.type == "cpu":
            return replace(moved, attention_mask=dense_mask(self.segments))
        nothing = torch.empty(1, 1, 1, 1, device=device)  # for models, which else make a mask of their own
        return replace(moved, attention_mask=nothing, layout=packed_layout(self.segments).to(device))


def plan_batches(
    samples: Sequence[Sample],
    *,
    micro_batch_tokens: int,
    max_length: int,
    world_size: int = 1,
    share_prompts: bool = True,
    packed: bool = False,
) -> Plan:
    """Deals `samples` out to ranks and micro-batches; deterministic, so all ranks make the same plan by themselves.

    A micro-batch has at most `micro_batch_tokens` tokens, padding included; a single row over that is a batch of its
    own. `packed`: rows stand one behind the other, and one that shares a prompt may fill a micro-batch. Samples over
    `max_length` tokens, and those without a response, are dropped and counted. Raises ValueError for a sample without
    a prompt, whose first token nothing would predict, and for one with log-probabilities of other tokens than its own.
    """
    usable = []
    for sample in samples:
        if not sample.prompt_ids:
            raise ValueError("a sample has an empty prompt; a prompt needs one token at least (encode_prompt adds bos)")
        if len(sample.logprobs) not in (0, len(sample.response_ids)):
            raise ValueError(
                f"a sample has {len(sample.response_ids)} response tokens, {len(sample.logprobs)} logprobs"
            )
        if sample.response_ids and len(sample.prompt_ids) + len(sample.response_ids) <= max_length:
            usable.append(sample)
    longest = micro_batch_tokens if packed else min(max_length, micro_batch_tokens)
    cap = longest if share_prompts else 0
    rows = sorted(_rows_of(usable, cap), key=lambda row: row.length, reverse=True)

    ranks: list[list[Row]] = [[] for _ in range(world_size)]
    load = [0] * world_size
    for row in rows:  # longest first to whoever has least: the ranks differ by one row at most
        rank = load.index(min(load))
        ranks[rank].append(row)
        load[rank] += row.length
    size = _packed_length if packed else _padded
    micro_batches = [_fill(rank_rows, micro_batch_tokens, size) for rank_rows in ranks]
    count = max(len(batches) for batches in micro_batches)
    for batches in micro_batches:
        batches.extend([] for _ in range(count - len(batches)))
    tokens = sum(row.response_tokens for row in rows)
    return Plan(micro_batches, tokens, len(usable), len(samples) - len(usable), packed)


def _rows_of(samples: Sequence[Sample], cap: int) -> list[Row]:
    """One row a sample, or rows of up to `cap` tokens that share a prompt. Where masks are dense, a row is never longer
    than a lone sample may be, so that attention costs no more memory than without sharing."""
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


def _fill(rows: Sequence[Row], budget: int, size: Callable[[Sequence[Row]], int]) -> list[list[Row]]:
    """Cuts rows, longest first, into micro-batches of at most `budget` tokens by `size`."""
    batches: list[list[Row]] = []
    for row in rows:
        if batches and size([*batches[-1], row]) <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _padded(rows: Sequence[Row]) -> int:
    return max((row.length for row in rows), default=0) * len(rows)


def _packed_length(rows: Sequence[Row]) -> int:
    return -(-sum(row.length for row in rows) // BLOCK) * BLOCK


@dataclass(frozen=True)
class _Laid:
    """A row laid out: token ids, positions, the response of each token (0: the prompt), and predictors, [length] but
    for the last, [response tokens]."""

    ids: Tensor
    positions: Tensor
    responses: Tensor
    predictors: Tensor


def _laid(row: Row) -> _Laid:
    prompt = len(row.samples[0].prompt_ids)
    ids, positions, responses = [torch.tensor(row.samples[0].prompt_ids)], [torch.arange(prompt)], [torch.zeros(prompt)]
    predictors, start = list[Tensor](), prompt
    for number, sample in enumerate(row.samples, start=1):
        size = len(sample.response_ids)
        ids.append(torch.tensor(sample.response_ids))
        positions.append(torch.arange(prompt, prompt + size))
        responses.append(torch.full((size,), number))
        own = torch.arange(start - 1, start + size - 1)
        own[0] = prompt - 1  # the prompt's last token predicts the first of every response
        predictors.append(own)
        start += size
    return _Laid(torch.cat(ids), torch.cat(positions), torch.cat(responses).long(), torch.cat(predictors))


def collate(rows: Sequence[Row], pad_id: int, *, packed: bool = False) -> Batch:
    """The tensors of one micro-batch. Without rows: one row of padding and no response token, whose loss is 0."""
    laid = [_laid(row) for row in rows]
    samples = [sample for row in rows for sample in row.samples]
    lengths = torch.tensor([len(sample.response_ids) for sample in samples], dtype=torch.long)
    places = _packed_places(laid, pad_id) if packed else _padded_places(laid, pad_id)
    return Batch(
        **places,
        targets=torch.tensor([token for sample in samples for token in sample.response_ids], dtype=torch.long),
        advantages=_per_token([[sample.advantage] * len(sample.response_ids) for sample in samples]),
        behaviour_logprobs=_per_token([_behaviour(sample) for sample in samples]),
        response_of=torch.arange(len(samples)).repeat_interleave(lengths),
    )


def _padded_places(laid: Sequence[_Laid], pad_id: int) -> dict[str, Any]:
    """Each row a row, padded on the right to the longest."""
    length = max((len(row.ids) for row in laid), default=2)
    input_ids = torch.full((max(len(laid), 1), length), pad_id, dtype=torch.long)
    position_ids = torch.arange(length).repeat(len(input_ids), 1)
    segments = torch.full_like(input_ids, -1)  # 0 is the prompt, 1.. the responses, -1 padding
    for index, row in enumerate(laid):
        size = len(row.ids)
        input_ids[index, :size], position_ids[index, :size] = row.ids, row.positions
        segments[index, :size] = row.responses
    shared = any(int(row.responses.max()) > 1 for row in laid)
    return {
        "input_ids": input_ids,
        "attention_mask": _mask(segments) if shared else None,
        "position_ids": position_ids if shared else None,
        "predictors": _joined([row.predictors + index * length for index, row in enumerate(laid)]),
    }


def _packed_places(laid: Sequence[_Laid], pad_id: int) -> dict[str, Any]:
    """The prompts of all rows, then their responses, then padding up to a whole number of blocks."""
    length = sum(len(row.ids) for row in laid)
    fill = -length % BLOCK or (0 if laid else BLOCK)
    documents = [torch.full((len(row.ids),), index) for index, row in enumerate(laid)]
    segments = torch.stack((_joined(documents), _joined([row.responses for row in laid])))
    order = segments[1].gt(0).int().argsort(stable=True)  # of the rows' tokens, as they stand one behind the other
    places = torch.empty_like(order).scatter_(0, order, torch.arange(length))
    starts = itertools.accumulate((len(row.ids) for row in laid), initial=0)
    padding = torch.tensor([[len(laid)], [0]]).expand(2, fill)
    ids, positions = _joined([row.ids for row in laid]), _joined([row.positions for row in laid])
    return {
        "input_ids": torch.cat([ids[order], torch.full((fill,), pad_id)]).unsqueeze(0),
        "attention_mask": None,
        "position_ids": torch.cat([positions[order], torch.arange(fill)]).unsqueeze(0),
        "predictors": places[_joined([row.predictors + start for row, start in zip(laid, starts, strict=False)])],
        "segments": torch.cat((segments[:, order], padding), dim=1).int(),
    }


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(pieces)) if pieces else torch.empty(0, dtype=torch.long)


def _mask(segments: Tensor) -> Tensor:
    """[rows, length] segment numbers to [rows, 1, length, length]: what each row alone allows."""
    return torch.cat([dense_mask(torch.stack((torch.zeros_like(row), row))) for row in segments])


def _behaviour(sample: Sample) -> Sequence[float]:
    return sample.logprobs or [math.nan] * len(sample.response_ids)


def _per_token(values: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor([value for sample in values for value in sample], dtype=torch.float32)
