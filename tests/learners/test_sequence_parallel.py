"""What ranks that share rows ask of a policy. That they train as a plain loop does is shown in test_ranks.py."""

from __future__ import annotations

import pytest

from learners.attention import Heads
from learners.errors import LearnerError
from learners.sequence_parallel import require_heads


@pytest.mark.parametrize(("heads", "shared", "size"), [(4, 2, 2), (4, 2, 4), (14, 2, 2), (32, 8, 16), (8, 8, 8)])
def test_heads_that_ranks_can_share(heads: int, shared: int, size: int) -> None:
    require_heads(Heads(heads, shared, 64), size)


@pytest.mark.parametrize(("heads", "shared", "size"), [(14, 2, 4), (6, 6, 4), (12, 3, 2), (4, 2, 8)])
def test_heads_that_ranks_cannot_share(heads: int, shared: int, size: int) -> None:
    with pytest.raises(LearnerError, match=rf"sequence_parallel={size}.*{heads} attention heads and {shared} heads"):
        require_heads(Heads(heads, shared, 64), size)
