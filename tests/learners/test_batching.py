"""Every token is planned once, within the budget, and every rank makes the same plan."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.batching import Plan, Row, collate, plan_batches
from learners.records import Sample

lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 2)), max_size=30)


def samples_of(sizes: list[tuple[int, int, int]]) -> list[Sample]:
    return [
        Sample((prompt,) * length, (index + 100,) * response) for index, (length, response, prompt) in enumerate(sizes)
    ]


def planned(plan: Plan) -> Counter[Sample]:
    return Counter(s for batches in plan.micro_batches for rows in batches for row in rows for s in row.samples)


def test_samples_without_a_signal_may_be_counted_and_not_computed() -> None:
    samples = [
        replace(sample, has_signal=index > 0)
        for index, sample in enumerate(samples_of([(4, 5, 0), (4, 6, 0), (9, 99, 1)]))
    ]
    plan = plan_batches(samples, micro_batch_tokens=64, max_length=64, only_signal=True)
    assert planned(plan) == Counter(samples[1:2])
    assert (plan.response_tokens, plan.responses, plan.computed_tokens, plan.dropped) == (11, 2, 6, 1)
    whole = plan_batches(samples, micro_batch_tokens=64, max_length=64)
    assert planned(whole) == Counter(samples[:2])
    assert (whole.response_tokens, whole.responses, whole.computed_tokens, whole.dropped) == (11, 2, 11, 1)


@given(lengths, st.integers(1, 4), st.booleans())
def test_every_sample_is_planned_once_within_the_budget(
    sizes: list[tuple[int, int, int]], world_size: int, share: bool
) -> None:
    samples = samples_of(sizes)
    plan = plan_batches(samples, micro_batch_tokens=80, max_length=50, world_size=world_size, share_prompts=share)
    fits = [sample for sample in samples if len(sample.prompt_ids) + len(sample.response_ids) <= 50]
    assert planned(plan) == Counter(fits)
    assert plan.dropped == len(samples) - len(fits)
    assert plan.response_tokens == sum(len(sample.response_ids) for sample in fits)
    assert len({len(batches) for batches in plan.micro_batches}) == 1
    for rows in (rows for batches in plan.micro_batches for rows in batches if rows):
        assert max(row.length for row in rows) * len(rows) <= 80
        assert all(row.length <= 50 for row in rows)
        assert all(len({sample.prompt_ids for sample in row.samples}) == 1 for row in rows)
        assert share or all(len(row.samples) == 1 for row in rows)


@settings(deadline=None)  # the machine may be busy
@given(lengths, st.integers(1, 4))
def test_packed_micro_batches_keep_to_the_budget_and_no_sample_is_lost(
    sizes: list[tuple[int, int, int]], world_size: int
) -> None:
    samples = samples_of(sizes)
    plan = plan_batches(samples, micro_batch_tokens=256, max_length=50, world_size=world_size, packed=True)
    fits = [sample for sample in samples if len(sample.prompt_ids) + len(sample.response_ids) <= 50]
    assert planned(plan) == Counter(fits)
    batches = [collate(rows, pad_id=0, packed=True) for rank in plan.micro_batches for rows in rank]
    assert all(batch.input_ids.shape in ((1, 128), (1, 256)) for batch in batches)
    assert sum(len(batch.targets) for batch in batches) == plan.response_tokens
    for batch in batches:
        assert batch.segments is not None
        documents, responses = batch.segments
        # The token before it predicts a response token: one of its own response, or the last of its prompt.
        places = torch.arange(len(documents))[responses > 0]
        assert (documents[batch.predictors] == documents[places]).all()
        first = batch.predictors != places - 1
        assert (responses[batch.predictors[first]] == 0).all()


def test_a_row_that_shares_its_prompt_fills_a_packed_micro_batch() -> None:
    samples = [Sample((1,) * 500, (index + 2,) * 100) for index in range(16)]
    plan = plan_batches(samples, micro_batch_tokens=8192, max_length=600, packed=True)
    assert plan.padded_tokens == -(-(500 + 16 * 100) // 128) * 128


def test_a_sample_over_the_budget_is_a_batch_of_its_own() -> None:
    samples = [Sample((1,) * 90, (2,) * 10), Sample((3,), (4,))]
    plan = plan_batches(samples, micro_batch_tokens=64, max_length=128)
    assert [[row.length for row in rows] for rows in plan.micro_batches[0]] == [[100], [2]]


def test_samples_without_a_response_are_dropped_and_without_a_prompt_refused() -> None:
    assert plan_batches([Sample((1,), ())], micro_batch_tokens=64, max_length=64).dropped == 1
    with pytest.raises(ValueError, match="empty prompt"):
        plan_batches([Sample((), (1,))], micro_batch_tokens=64, max_length=64)


def test_padding_stays_small_on_mixed_lengths() -> None:
    samples = [Sample((index,) * (100 + 37 * index % 400), (1,) * (20 + 11 * index % 90)) for index in range(64)]
    plan = plan_batches(samples, micro_batch_tokens=4096, max_length=1536)
    real = sum(len(sample.prompt_ids) + len(sample.response_ids) for sample in samples)
    assert plan.padded_tokens < 1.1 * real


def test_sharing_a_prompt_saves_its_repetitions() -> None:
    samples = [Sample((1,) * 500, (index + 2,) * 100) for index in range(16)]
    alone = plan_batches(samples, micro_batch_tokens=8192, max_length=1536, share_prompts=False)
    shared = plan_batches(samples, micro_batch_tokens=8192, max_length=1536)
    assert alone.padded_tokens == 16 * 600
    assert shared.padded_tokens == 2 * (500 + 8 * 100)


def test_ranks_get_equal_shares() -> None:
    samples = [Sample((index,) * (20 + index % 7), (1,) * 10) for index in range(40)]
    plan = plan_batches(samples, micro_batch_tokens=128, max_length=64, world_size=4)
    loads = [sum(row.length for rows in batches for row in rows) for batches in plan.micro_batches]
    assert max(loads) - min(loads) <= 36


def test_collate_aligns_tokens_with_the_positions_that_predict_them() -> None:
    rows = [
        Row((Sample((5, 6, 7), (8, 9), 0.5, (-1.0, -2.0)), Sample((5, 6, 7), (10, 11, 12), -1.0))),
        Row((Sample((1, 2), (3,), 2.0),)),
    ]
    batch = collate(rows, pad_id=0)
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9, 10, 11, 12], [1, 2, 3, 0, 0, 0, 0, 0]]
    assert batch.predictors.tolist() == [2, 3, 2, 5, 6, 8 + 1]
    assert batch.targets.tolist() == [8, 9, 10, 11, 12, 3]
    assert batch.advantages.tolist() == [0.5, 0.5, -1.0, -1.0, -1.0, 2.0]
    assert batch.behaviour_logprobs.tolist()[:2] == [-1.0, -2.0]
    assert all(math.isnan(value) for value in batch.behaviour_logprobs.tolist()[2:])
    assert batch.position_ids is not None
    assert batch.position_ids[0].tolist() == [0, 1, 2, 3, 4, 3, 4, 5]
    assert batch.attention_mask is not None
    allowed = batch.attention_mask[0, 0]
    assert allowed[6].nonzero().flatten().tolist() == [0, 1, 2, 5, 6]  # the prompt and its own response, so far
    assert allowed[4].nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
    assert batch.attention_mask.diagonal(
        dim1=-2, dim2=-1
    ).all()  # padding, too: a query that may attend to nothing gives NaN


def test_rows_of_one_response_need_no_mask() -> None:
    batch = collate([Row((Sample((1, 2), (3,)),))], pad_id=0)
    assert batch.attention_mask is None
    assert batch.position_ids is None


def test_an_empty_batch_has_a_row_and_no_tokens() -> None:
    batch = collate([], pad_id=7)
    assert batch.input_ids.tolist() == [[7, 7]]
    assert batch.targets.numel() == batch.predictors.numel() == batch.advantages.numel() == 0
    assert batch.predictors.dtype == torch.long


def test_logprobs_that_do_not_fit_the_response_are_refused() -> None:
    with pytest.raises(ValueError, match="2 response tokens, 1 logprobs"):
        plan_batches([Sample((1,), (2, 3), logprobs=(-1.0,))], micro_batch_tokens=64, max_length=64)
