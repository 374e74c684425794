"""How every command refuses: one line on standard error that names the thing and the remedy, and an exit code."""

from __future__ import annotations

import sys

import typer

STOPPED = 1
BAD_INPUT = 2
ARCH_HELP = "What to measure on: an accelerator's name (H200), cpu, or auto: the GPU where there is one."
STORE_HELP = "Where baselines and builds stay; $XDG_CACHE_HOME/warpsmith, ~/.cache/warpsmith or /var/cache/warpsmith."


def refuse(error: object, code: int = BAD_INPUT) -> typer.Exit:
    """One line on standard error, and the exit code for it."""
    line = " ".join(str(error).split())
    print(f"error: {line}", file=sys.stderr)
    return typer.Exit(code)


def with_remedy(error: Exception) -> str:
    """What to say of an error: of a missing package, what brings it."""
    if isinstance(error, ImportError):
        return f"measuring on a GPU needs the extra `gpu` of this package: {error}"
    return str(error)
