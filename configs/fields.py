"""Fields of the schema with choices or a range in their metadata, to which `configs.checks` holds values."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def bounded(default: Any, low: float | None = None, high: float | None = None) -> Any:
    """A number that must lie in [low, high]."""
    return field(default=default, metadata={"low": low, "high": high})


def one_of(default: Any, *choices: Any) -> Any:
    """A word or a number out of `choices`."""
    return field(default=default, metadata={"choices": choices})


def words_of(default: tuple[str, ...], choices: tuple[str, ...]) -> Any:
    """A list of words out of `choices`, which may be empty if the default is."""
    return field(default_factory=lambda: list(default), metadata={"choices": choices, "may_be_empty": not default})
