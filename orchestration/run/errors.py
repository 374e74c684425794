"""The errors of run directories and of their bundles. Each is one line that names the file and the remedy."""

from __future__ import annotations


class RunDirectoryError(Exception):
    """A run directory cannot be used."""


class LeaseLost(Exception):
    """Another process runs where this one did. It must not commit any more."""


class BundleError(Exception):
    """A bundle cannot be made or continued from."""
