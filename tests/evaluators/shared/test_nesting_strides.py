"""Forms of values: which fit, and what a runner may claim of strides."""

from __future__ import annotations

import pytest
import torch

from evaluators.shared import nesting

WANTED = nesting.flatten((torch.zeros(2, 3, 4), [torch.zeros(5)]))[0]
FREE = nesting.of_any_strides(WANTED)


def spec_of(first: torch.Tensor) -> nesting.Spec:
    return nesting.flatten((first, [torch.zeros(5)]))[0]


OTHER_STRIDES = {
    "permuted": torch.zeros(4, 3, 2).permute(2, 1, 0),
    "with gaps": torch.zeros(2, 3, 8)[..., ::2],
    "expanded": torch.zeros(3, 4).expand(2, 3, 4),
}


@pytest.mark.parametrize("name", OTHER_STRIDES)
def test_other_strides_fit_only_a_form_of_any_strides(name) -> None:
    spec = spec_of(OTHER_STRIDES[name])
    assert nesting.fits(FREE, spec)
    assert not nesting.fits(WANTED, spec)
    assert "has stride" in str(nesting.difference(WANTED, spec))
    assert nesting.of_own_strides(FREE) == WANTED


@pytest.mark.parametrize("other", [torch.zeros(2, 4, 3), torch.zeros(2, 3, 4).double(), torch.zeros(24)])
def test_another_shape_or_dtype_never_fits(other) -> None:
    assert not nesting.fits(FREE, spec_of(other))


def test_memory_takes_the_strides_of_a_dense_output_alone() -> None:
    strides = {
        name: nesting.with_strides_of(FREE, spec_of(value))["items"][0]["stride"]
        for name, value in OTHER_STRIDES.items()
    }
    assert strides == {"permuted": [1, 2, 6], "with gaps": [12, 4, 1], "expanded": [12, 4, 1]}


@pytest.mark.parametrize("stride", [[10**30, 4, 1], [12, 4, -1], [12, "4", 1], [0, 0, 0], [12, 4], None, [True, 2, 6]])
def test_a_claim_of_strides_never_makes_memory_larger(stride) -> None:
    claim = spec_of(torch.zeros(2, 3, 4))
    claim["items"][0]["stride"] = stride
    taken = nesting.with_strides_of(FREE, claim)
    assert nesting.layout(nesting.tensor_specs(taken)) == nesting.layout(nesting.tensor_specs(WANTED))
    assert taken["items"][0]["stride"] == [12, 4, 1]


def test_the_stride_of_a_single_element_is_never_taken_from_a_claim() -> None:
    wanted = nesting.of_any_strides(nesting.flatten(torch.zeros(1, 4))[0])
    claim = {**nesting.flatten(torch.zeros(1, 4))[0], "stride": [10**30, 1]}
    assert nesting.with_strides_of(wanted, claim)["stride"] == [4, 1]
    assert nesting.with_strides_of(wanted, {"kind": "tuple", "items": 3}) == wanted
