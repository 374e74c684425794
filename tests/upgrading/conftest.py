"""What a test of this folder says when it fails: the remedy of its entry in docs/upgrading.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.upgrading.page import entries


@pytest.fixture
def still(request: pytest.FixtureRequest) -> Callable[[object], None]:
    """Fails, with the entry's remedy, unless what is given is true: the library still does what the entry says."""
    entry = entries()[request.function.__name__]

    def check(holds: object) -> None:
        if not holds:
            pytest.fail(entry.message())

    return check
