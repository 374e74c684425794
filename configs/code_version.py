"""Which code a run runs: what its page and MLflow say of it, so that somebody else can run the same."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from pathlib import Path

CODE_VARIABLE = "WARPSMITH_CODE"
"""Environment variable that says it for a copy without its history, as a job of a cluster has."""

DIRTY = "-dirty"
"""Ends a version with changes that no commit has."""

_CHECKOUT = Path(__file__).resolve().parent.parent
_SECONDS = 10.0


def code_version() -> str:
    """The commit of the checkout, with `-dirty` if files differ from it; else the version of the installed package.
    Empty if nothing is known."""
    if given := os.environ.get(CODE_VARIABLE, ""):
        return given
    if (_CHECKOUT / ".git").exists():
        words = ["git", "-C", str(_CHECKOUT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""
    try:
        return importlib.metadata.version("warpsmith")
    except importlib.metadata.PackageNotFoundError:
        return ""


def commit_of(version: str) -> str:
    """The commit that a version names, empty if it names none."""
    commit = version.removesuffix(DIRTY)
    return commit if len(commit) == 40 and all(letter in "0123456789abcdef" for letter in commit) else ""


def in_short(version: str) -> str:
    """A version as people read it: of a commit ten digits."""
    commit = commit_of(version)
    return version.replace(commit, commit[:10]) if commit else version
