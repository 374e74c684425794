"""Plans micro-batches under a token budget. Every rank makes the same plan, without communication.

Several responses to one prompt may follow it in one row: the prompt is computed once, and a mask hides the responses
from each other, so that every token has the log-probability that it would have alone. Rows are padded to one length, or
packed one behind the other. Never changes, drops or reorders tokens inside a sample. Whole samples that are too long
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
from learners.row_parts import Part


@dataclass(frozen=True)
class Row:
    """One sequence of a batch: a prompt, followed by the responses of its samples."""

    samples: tuple[Sample, ...]

    @property
    def length(self) -> int:
        """Tokens of the row: the prompt once, and every response."""
        return len(self.samples[0].prompt_ids) + self.response_tokens

    @property
    def response_tokens(self) -> int:
        """Tokens that are trained on."""
        return sum(len(sample.response_ids) for sample in self.samples)


@dataclass(frozen=True)
class Plan:
    """The micro-batches of every rank: `micro_batches[rank]` is a list of micro-batches, each a list of rows.

    All ranks have the same number of micro-batches, so that collectives match; an empty micro-batch has no rows.
    `response_tokens` and `responses` count over all ranks, also samples of which nothing is computed. `computed_tokens`
    are the response tokens in the micro-batches. `dropped` counts samples that were too long or had no response.
    """

    micro_batches: list[list[list[Row]]]
    response_tokens: int
    responses: int
    computed_tokens: int
    dropped: int
    packed: bool = False

    @property
    def padded_tokens(self) -> int:
        """Tokens that forward passes compute over all ranks, padding included."""
        size = _packed_length if self.packed else _padded
        return sum(size(rows) for batches in self.micro_batches for rows in batches)


@dataclass(frozen=True)
class Batch:
    """A micro-batch as tensors. Rows are padded on the right, or packed into one. `tokens` is the number of response
    tokens, in the order of the rows.

    `input_ids`: [rows, length]. `attention_mask`: [rows, 1, length, length], true where attention is allowed; None if
    every row has one response, because all padding is then at the end, and causal attention is right (and faster).
    `position_ids`: [rows, length], or None in the same case. `segments`: [2, length], only of packed rows: each token's
    prompt and response. `layout`: replaces segments and mask on a GPU (see `learners.attention`). `part`: if ranks
    share the row, what this one has of it: ids, positions, predictors and targets are then its own alone.
    `predictors`: [tokens], the index into rows * length of the position whose output predicts the token. `targets`:
    [tokens], token ids. `advantages`: [tokens]. `behaviour_logprobs`: [tokens], NaN if the sample has none.
    `response_of`: [tokens], the token's response, counted from 0.
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
    part: Part | None = None

    def to(self, device: torch.device) -> Batch:
        """The same batch on `device`. Packed rows get their mask (on a CPU) or their layout (on a GPU)."""
        moved = replace(self, **{name: value.to(device) for name, value in vars(self).items() if value is not None})
        if self.segments is None:
            return moved
        if device.type == "cpu":
            return replace(moved, attention_mask=dense_mask(self.segments))
        nothing = torch.empty(1, 1, 1, 1, device=device)  # without a mask, models would make one of their own
        return replace(moved, attention_mask=nothing, layout=packed_layout(self.segments).to(device))


def plan_batches(
    samples: Sequence[Sample],
    *,
    micro_batch_tokens: int,
    max_length: int,
    world_size: int = 1,
    share_prompts: bool = True,
    packed: bool = False,
    only_signal: bool = False,
) -> Plan:
    """Distributes `samples` over ranks and micro-batches. It is deterministic, so all ranks make the same plan.

    A micro-batch has at most `micro_batch_tokens` tokens, padding included; a single row above that is a micro-batch of
    its own. `packed`: rows stand one behind the other, and a row with a shared prompt may fill a micro-batch.
    `only_signal`: samples without a signal are counted, and not computed. Samples of more than `max_length` tokens, and
    samples without a response, are dropped and counted. Raises ValueError for a sample without a prompt (nothing would
    predict its first token), and for a sample whose number of log-probabilities differs from its number of response
    tokens.
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
    computed = [sample for sample in usable if sample.has_signal or not only_signal]
    longest = micro_batch_tokens if packed else min(max_length, micro_batch_tokens)
    cap = longest if share_prompts else 0
    rows = sorted(_rows_of(computed, cap), key=lambda row: row.length, reverse=True)

    ranks: list[list[Row]] = [[] for _ in range(world_size)]
    load = [0] * world_size
    for row in rows:  # the longest row first, to the rank with the fewest tokens: ranks differ by one row at most
        rank = load.index(min(load))
        ranks[rank].append(row)
        load[rank] += row.length
    size = _packed_length if packed else _padded
    micro_batches = [_fill(rank_rows, micro_batch_tokens, size) for rank_rows in ranks]
    count = max(len(batches) for batches in micro_batches)
    for batches in micro_batches:
        batches.extend([] for _ in range(count - len(batches)))
    tokens, computed_tokens = (sum(len(one.response_ids) for one in part) for part in (usable, computed))
    return Plan(micro_batches, tokens, len(usable), computed_tokens, len(samples) - len(usable), packed)


def _rows_of(samples: Sequence[Sample], cap: int) -> list[Row]:
    """One row per sample, or rows of up to `cap` tokens that share a prompt.

    With dense masks a row is never longer than a single sample may be, so that attention takes no more memory than
    without sharing.
    """
    groups: dict[tuple[int, ...], list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.prompt_ids, []).append(sample)
    rows = []
    for prompt, members in groups.items():
        total = sum(len(sample.response_ids) for sample in members)
        room = max(cap - len(prompt), 1)
        # As few rows as possible, of about equal length: equal rows need no padding.
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
    """Divides rows, longest first, into micro-batches whose `size` is at most `budget` tokens."""
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
class _RowTensors:
    """A row as tensors: token ids, positions and each token's response (0: the prompt), [length] each; predictors,
    [response tokens]."""

    ids: Tensor
    positions: Tensor
    responses: Tensor
    predictors: Tensor


def _tensors_of(row: Row) -> _RowTensors:
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
    return _RowTensors(torch.cat(ids), torch.cat(positions), torch.cat(responses).long(), torch.cat(predictors))


def collate(rows: Sequence[Row], pad_id: int, *, packed: bool = False) -> Batch:
    """The tensors of one micro-batch. Without rows it is one row of padding without responses, whose loss is 0."""
    tensors = [_tensors_of(row) for row in rows]
    samples = [sample for row in rows for sample in row.samples]
    lengths = torch.tensor([len(sample.response_ids) for sample in samples], dtype=torch.long)
    places = _packed_places(tensors, pad_id) if packed else _padded_places(tensors, pad_id)
    return Batch(
        **places,
        targets=torch.tensor([token for sample in samples for token in sample.response_ids], dtype=torch.long),
        advantages=_per_token([[sample.advantage] * len(sample.response_ids) for sample in samples]),
        behaviour_logprobs=_per_token([_behaviour(sample) for sample in samples]),
        response_of=torch.arange(len(samples)).repeat_interleave(lengths),
    )


def _padded_places(rows: Sequence[_RowTensors], pad_id: int) -> dict[str, Any]:
    """Each row padded on the right to the length of the longest."""
    length = max((len(row.ids) for row in rows), default=2)
    input_ids = torch.full((max(len(rows), 1), length), pad_id, dtype=torch.long)
    position_ids = torch.arange(length).repeat(len(input_ids), 1)
    segments = torch.full_like(input_ids, -1)  # 0 is the prompt, 1.. the responses, -1 padding
    for index, row in enumerate(rows):
        size = len(row.ids)
        input_ids[index, :size], position_ids[index, :size] = row.ids, row.positions
        segments[index, :size] = row.responses
    shared = any(int(row.responses.max()) > 1 for row in rows)
    return {
        "input_ids": input_ids,
        "attention_mask": _mask(segments) if shared else None,
        "position_ids": position_ids if shared else None,
        "predictors": _joined([row.predictors + index * length for index, row in enumerate(rows)]),
    }


def _packed_places(rows: Sequence[_RowTensors], pad_id: int) -> dict[str, Any]:
    """The prompts of all rows, then their responses, then padding up to a whole number of blocks."""
    length = sum(len(row.ids) for row in rows)
    fill = -length % BLOCK or (0 if rows else BLOCK)
    documents = [torch.full((len(row.ids),), index) for index, row in enumerate(rows)]
    segments = torch.stack((_joined(documents), _joined([row.responses for row in rows])))
    order = segments[1].gt(0).int().argsort(stable=True)  # indices of the rows' tokens, in their packed order
    places = torch.empty_like(order).scatter_(0, order, torch.arange(length))
    starts = itertools.accumulate((len(row.ids) for row in rows), initial=0)
    padding = torch.tensor([[len(rows)], [0]]).expand(2, fill)
    ids, positions = _joined([row.ids for row in rows]), _joined([row.positions for row in rows])
    return {
        "input_ids": torch.cat([ids[order], torch.full((fill,), pad_id)]).unsqueeze(0),
        "attention_mask": None,
        "position_ids": torch.cat([positions[order], torch.arange(fill)]).unsqueeze(0),
        "predictors": places[_joined([row.predictors + start for row, start in zip(rows, starts, strict=False)])],
        "segments": torch.cat((segments[:, order], padding), dim=1).int(),
    }


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(pieces)) if pieces else torch.empty(0, dtype=torch.long)


def _mask(segments: Tensor) -> Tensor:
    """The mask of padded rows, [rows, 1, length, length], from their segment numbers, [rows, length]."""
    return torch.cat([dense_mask(torch.stack((torch.zeros_like(row), row))) for row in segments])


def _behaviour(sample: Sample) -> Sequence[float]:
    return sample.logprobs or [math.nan] * len(sample.response_ids)


def _per_token(values: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor([value for sample in values for value in sample], dtype=torch.float32)
