"""What may differ between two outputs, and what may not."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.correctness import MAX_TOLERANCE, compare, explains, relative_errors, unknown_errors, worst_of

tensors = st.integers(0, 2**32).map(lambda seed: torch.randn(50, generator=torch.Generator().manual_seed(seed)))
EXACT = (0.0, 0.0)


@given(tensors, tensors, st.integers(-60, 60))
@settings(max_examples=50, deadline=None)
def test_relative_errors_do_not_depend_on_scale_or_sign(expected, noise, power) -> None:
    actual = expected + 1e-3 * noise
    errors = relative_errors(actual, expected)
    scaled = relative_errors(-actual.double() * 2.0**power, -expected.double() * 2.0**power)
    assert scaled == pytest.approx(errors, rel=1e-9)
    assert 0 < errors[0] < 1e-2


@given(tensors, st.integers(0, 49), st.sampled_from([math.nan, math.inf, -math.inf]))
@settings(max_examples=50, deadline=None)
def test_a_special_value_passes_only_where_the_reference_has_it(expected, place, special) -> None:
    spoilt = expected.clone()
    spoilt[place] = special
    assert relative_errors(spoilt, spoilt) == EXACT
    assert not compare(spoilt, expected, EXACT, torch.float32).passes
    assert not compare(expected, spoilt, EXACT, torch.float32).passes
    assert not compare(spoilt, expected, (math.inf, math.inf), torch.float32).passes
    if math.isinf(special):
        flipped = spoilt.clone()
        flipped[place] = -special
        assert not compare(flipped, spoilt, EXACT, torch.float32).passes


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=20), st.integers(0, 19))
def test_integers_are_equal_or_wrong(values, place) -> None:
    expected = torch.tensor(values)
    assert compare(expected.clone(), expected, EXACT, torch.int64).passes
    actual = expected.clone()
    actual[place % len(values)] += 1
    assert not compare(actual, expected, EXACT, torch.int64).passes


@given(tensors, st.floats(0, 1e6), st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
@settings(max_examples=50, deadline=None)
def test_no_error_of_the_reference_excuses_a_constant(expected, own, dtype) -> None:
    for constant in (torch.zeros_like(expected), torch.full_like(expected, float(expected.mean()))):
        assert not compare(constant, expected, (own, own), dtype).passes


def test_a_wide_tolerance_comes_with_a_wide_reference_only() -> None:
    expected = torch.randn(1000, dtype=torch.float64)
    slightly_off = expected * (1 + 1e-4)
    assert not compare(slightly_off, expected, (1e-7, 1e-7), torch.float32).passes
    assert compare(slightly_off, expected, (1e-5, 1e-5), torch.float32).passes
    assert not compare(expected * (1 + 2 * MAX_TOLERANCE), expected, (1.0, 1.0), torch.float32).passes


def test_rounding_at_the_dtype_passes_and_the_next_lower_precision_does_not() -> None:
    expected = torch.randn(1000, dtype=torch.float64)
    for dtype, lower in (
        (torch.float64, torch.float32),
        (torch.float32, torch.float16),
        (torch.float32, torch.bfloat16),
    ):
        own = relative_errors(expected.to(dtype), expected)
        assert compare(expected.to(dtype), expected, own, dtype).passes
        assert not compare(expected.to(lower).to(dtype), expected, own, dtype).passes


def test_an_unrelated_float64_output_explains_nothing() -> None:
    assert explains((1e-6, 1e-6))
    assert not explains((1.0, 0.1))
    assert not explains((math.inf, math.inf))
    assert explains(unknown_errors(torch.float32))
    assert unknown_errors(torch.int64) == EXACT


def test_the_worst_output_is_named() -> None:
    good = compare(torch.ones(3), torch.ones(3), EXACT, torch.float32)
    bad = compare(torch.ones(3) * math.nan, torch.ones(3), EXACT, torch.float32)
    assert worst_of([good, good]).passes
    assert worst_of([good, bad]).reason == "output[1]: the output holds NaN"
    assert worst_of([bad]).reason == "the output holds NaN"
