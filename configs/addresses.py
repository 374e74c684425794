"""Addresses as they may be printed."""

from __future__ import annotations

import re

HTTP = ("http://", "https://")
"""How the address of an endpoint begins."""


def without_login(text: str) -> str:
    """The text without user names and passwords in its URIs."""
    return re.sub(r"//[^/?\s]*@", "//", text)
