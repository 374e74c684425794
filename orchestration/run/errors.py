"""The error that every part of a run directory raises."""

from __future__ import annotations


class RunDirectoryError(Exception):
    """A run directory cannot be used. One line that names the file and the remedy."""
