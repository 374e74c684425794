"""Two outputs may differ by rounding, and by nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.judge.correctness import (
    MAX_TOLERANCE,
    Comparison,
    compare,
    compare_bias,
    compare_many,
    errors_of_many,
    explains,
    relative_errors,
    unknown_errors,
    worst_of,
)

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


# Many at once


def spoilt(tensor: torch.Tensor, value: float) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(-1)[3] = value
    return changed


def special_pairs() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Pairs (actual, expected) by name. All but the last few differ by a small error."""
    plain = torch.randn(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    near = plain * (1 + 1e-5 * plain.flip(0))
    return {
        "plain": (near, plain),
        "two dimensions, transposed": (near.view(6, 10).t(), plain.view(6, 10).t()),
        "no elements": (torch.empty(0), torch.empty(0)),
        "one element": (near[:1], plain[:1]),
        "zero": (torch.zeros(5), torch.zeros(5)),
        "not zero where zero is expected": (torch.full((5,), 1e-30), torch.zeros(5)),
        "zero where it is not expected": (torch.zeros(5), plain[:5].float()),
        "complex": (torch.complex(near, plain), torch.complex(plain, near)),
        "squares overflow float32": (near.float() * 1e25, plain.float() * 1e25),
        "squares underflow float32": (near.float() * 1e-25, plain.float() * 1e-25),
        "squares lose digits of float32": (near.float() * 1e-20, plain.float() * 1e-20),
        "subnormal": (near.float() * 1e-40, plain.float() * 1e-40),
        "huge float64": (near * 1e100, plain * 1e100),
        "half against float64": (plain.half(), plain),
        "bfloat16": (near.bfloat16(), plain.bfloat16()),
        "float32 against float64": (plain.float(), plain),
        "NaN in both": (spoilt(near, math.nan), spoilt(plain, math.nan)),
        "infinity in both": (spoilt(near, math.inf), spoilt(plain, math.inf)),
        "only infinities": (torch.full((3,), -math.inf), torch.full((3,), -math.inf)),
        "another sign of infinity": (spoilt(near, -math.inf), spoilt(plain, math.inf)),
        "NaN in one": (spoilt(near, math.nan), plain),
        "NaN expected": (near, spoilt(plain, math.nan)),
        "infinity in one": (spoilt(near, math.inf), plain),
        "a constant": (torch.ones_like(plain), plain),
    }


SPECIAL = special_pairs()


@pytest.mark.parametrize("name", SPECIAL)
def test_many_errors_are_those_of_each(name) -> None:
    [found] = errors_of_many([SPECIAL[name]])
    assert found == pytest.approx(relative_errors(*SPECIAL[name]), rel=1e-3)


def test_errors_of_many_come_in_the_order_of_their_pairs() -> None:
    pairs = list(SPECIAL.values())
    for order in (pairs, pairs[::-1], pairs[::2]):
        wanted = [relative_errors(*pair) for pair in order]
        assert len(errors_of_many(order)) == len(order)
        for one, other in zip(errors_of_many(order), wanted, strict=True):
            assert one == pytest.approx(other, rel=1e-3)
    assert errors_of_many([]) == []


@given(
    st.lists(st.tuples(tensors, tensors, st.floats(0, 1e-2), st.integers(-30, 30)), min_size=1, max_size=6),
    st.sampled_from([torch.float32, torch.float16, torch.float64]),
)
@settings(max_examples=60, deadline=None)
def test_many_errors_are_those_of_each_for_any_numbers(drawn, dtype) -> None:
    power = 0 if dtype is torch.float16 else 1
    pairs = [
        ((one + error * noise).to(dtype) * 2.0 ** (power * scale), one.to(dtype) * 2.0 ** (power * scale))
        for one, noise, error, scale in drawn
    ]
    for found, (actual, expected) in zip(errors_of_many(pairs), pairs, strict=True):
        assert found == pytest.approx(relative_errors(actual, expected), rel=1e-3, abs=1e-9)


MIXED = (torch.float32, torch.int64, torch.bool, torch.float32, torch.complex64)


def mixed_outputs() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Outputs (actual, expected) of the dtypes `MIXED`, which pass."""
    random = torch.Generator().manual_seed(4)
    expected = [
        torch.randn(40, generator=random),
        torch.arange(9),
        torch.tensor([True, False]),
        torch.empty(0),
        torch.complex(torch.randn(8, generator=random), torch.randn(8, generator=random)),
    ]
    return [one * (1 + 1e-7) if one.is_floating_point() else one.clone() for one in expected], expected


def spoil(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is torch.bool:
        return ~tensor
    return tensor + 1


@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_many_comparisons_are_those_of_each(place) -> None:
    actual, expected = mixed_outputs()
    wrong = [spoil(one) if index == place else one for index, one in enumerate(actual)]
    own = [unknown_errors(dtype) for dtype in MIXED]
    outputs = [(actual, expected), (wrong, expected), (expected, expected)]
    found = compare_many(outputs, own, MIXED)
    each = [
        worst_of([compare(*one) for one in zip(given, wanted, own, MIXED, strict=True)]) for given, wanted in outputs
    ]
    assert [one.passes for one in found] == [True, False, True]
    assert [one.passes for one in each] == [True, False, True]
    assert found[1].reason.startswith(f"output[{place}]: ")
    for one, other in zip(found, each, strict=True):
        assert one.error == pytest.approx(other.error, rel=1e-3)
        assert one.tolerance == other.tolerance


def test_many_comparisons_name_what_is_not_a_number() -> None:
    actual, expected = mixed_outputs()
    spoilt_outputs = [spoilt(actual[0], math.nan), *actual[1:]]
    [found] = compare_many([(spoilt_outputs, expected)], [unknown_errors(dtype) for dtype in MIXED], MIXED)
    assert found.reason == "output[0]: the output holds NaN"


def test_an_error_beside_each_outputs_own_tolerance() -> None:
    expected = [torch.ones(10), torch.ones(10)]
    actual = [one * (1 + 1e-3) for one in expected]
    dtypes = [torch.float32, torch.float32]
    wide, narrow = (1e-3, 1e-3), (1e-7, 1e-7)
    assert compare_many([(actual, expected)], [wide, wide], dtypes)[0].passes
    assert compare_many([(actual, expected)], [wide, narrow], dtypes)[0].reason.startswith("output[1]")
    assert compare_many([(actual, expected)], [narrow, wide], dtypes)[0].reason.startswith("output[0]")


@pytest.mark.parametrize("scale", [1e153, 1e155, 1e200, 1e300])
def test_rounding_of_numbers_beyond_the_root_of_float64_passes(scale) -> None:
    plain = torch.randn(50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = plain * scale
    assert compare(expected * (1 + 1e-15), expected, EXACT, torch.float64).passes
    assert not compare(expected * (1 + 1e-6), expected, EXACT, torch.float64).passes
    assert not compare(torch.zeros_like(expected), expected, (1.0, 1.0), torch.float64).passes
    near = plain * (1 + 1e-6 * plain.flip(0))
    assert relative_errors(near * scale, expected) == pytest.approx(relative_errors(near, plain), rel=1e-6)
    assert errors_of_many([(near * scale, expected)])[0] == pytest.approx(relative_errors(near, plain), rel=1e-6)


def test_a_difference_that_overflows_float64_never_passes() -> None:
    expected = torch.full((4,), 1.5e308, dtype=torch.float64)
    assert relative_errors(-expected, expected) == (math.inf, math.inf)
    assert not compare(-expected, expected, (1.0, 1.0), torch.float64).passes


def test_a_program_without_outputs_is_comparable() -> None:
    assert compare_many([([], [])], [], []) == [Comparison(0.0, 0.0)]
    assert worst_of([]).passes


def test_errors_that_all_have_one_direction_are_told_from_those_that_cancel() -> None:
    generator = torch.Generator().manual_seed(3)
    expected = torch.randn(300, 300, generator=generator, dtype=torch.float64)
    reference = expected.float()
    noise = 1e-5 * torch.randn(300, 300, generator=generator)
    assert compare_bias(reference * (1 + noise), reference, expected, torch.float32).passes
    found = compare_bias(reference * (1 - 1e-5), reference, expected, torch.float32)
    assert not found.passes
    assert found.error == pytest.approx(1e-5, rel=0.01)
    assert "as a whole" in (found.reason or "")
    assert compare_bias(
        reference * (1 - 1e-5), reference * (1 + 1e-6), expected, torch.float32
    ).passes  # no worse than the reference
    assert compare_bias(
        reference[:2] * (1 - 1e-5), reference[:2], expected[:2], torch.float32
    ).passes  # too few elements


@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e200])
def test_a_direction_does_not_depend_on_scale(scale) -> None:
    expected = torch.randn(64, 64, dtype=torch.float64) * scale
    found = compare_bias(expected * (1 + 1e-4), expected, expected, torch.float64)
    assert found.error == pytest.approx(1e-4, rel=1e-6)
