"""A described tensor is viewed where it lies, and never outside of its region."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluators.shared import nesting

REGION = torch.arange(512, dtype=torch.float32)


def seen(spec: nesting.Spec, offset: int) -> torch.Tensor:
    return nesting.view_at(spec, REGION.view(torch.uint8), offset)


@given(st.data())
def test_a_view_holds_what_the_tensor_holds(data) -> None:
    rows, columns, at = (data.draw(st.integers(low, high)) for low, high in ((0, 6), (1, 6), (0, 100)))
    tensor = torch.as_strided(
        REGION, (rows, columns), (data.draw(st.integers(0, 20)), data.draw(st.integers(0, 3))), at
    )
    spec = nesting.flatten(tensor)[0]
    assert torch.equal(seen(spec, 4 * at), tensor)


@given(st.integers(-(1 << 70), 1 << 70))
def test_nothing_outside_of_the_region_is_viewed(offset) -> None:
    spec = nesting.flatten(torch.empty(4, 32))[0]
    if 0 <= offset <= 4 * (512 - 128) and offset % 4 == 0:
        assert torch.equal(seen(spec, offset), REGION[offset // 4 :][:128].view(4, 32))
    else:
        with pytest.raises(ValueError, match="does not lie"):
            seen(spec, offset)
