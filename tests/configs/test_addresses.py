"""No user name and no password of an address is printed, and everything else is."""

from __future__ import annotations

import pytest

from configs.addresses import without_login


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://host:80/v1?to=a@b", "http://host:80/v1?to=a@b"),
        ("http://host?to=a@b", "http://host?to=a@b"),
        ("s3://name:pass@word@bucket/runs", "s3://bucket/runs"),
        ("no answer of http://me@one/x and http://you:two@three", "no answer of http://one/x and http://three"),
        ("a@b, /shared/runs/a@b", "a@b, /shared/runs/a@b"),
    ],
)
def test_what_logs_in_is_left_out(text: str, shown: str) -> None:
    assert without_login(text) == shown
