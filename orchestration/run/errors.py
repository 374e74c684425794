"""The errors of run directories and of their bundles. Each is one line that names the file and the remedy."""

from __future__ import annotations


class RunDirectoryError(Exception):
    """A run directory cannot be used."""


class BundleError(Exception):
    """A bundle cannot be made or continued from."""
