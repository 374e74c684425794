"""How every command refuses: one line on standard error that names the thing and the remedy, and an exit code."""

from __future__ import annotations

import sys

import typer

STOPPED = 1
BAD_INPUT = 2
INTERRUPTED = 130


def refuse(error: object, code: int = BAD_INPUT) -> typer.Exit:
    """Prints the error as one line on standard error. Returns the exit with the code, for `raise`."""
    line = " ".join(str(error).split())
    print(f"error: {line}", file=sys.stderr)
    return typer.Exit(code)


def is_refusal(error: Exception) -> bool:
    """Whether an error's message is one line that names the thing and the remedy, since bad input causes it."""
    from cluster.errors import ClusterError
    from configs.load import ConfigError
    from evaluators.failures import ContainmentError
    from evaluators.tasks import TaskError
    from learners.tokenizing import PolicyError
    from orchestration.kernelbench.layout import LayoutError
    from orchestration.run.errors import BundleError, RunDirectoryError
    from orchestration.step.proposals import TeacherError

    of_input = (ConfigError, TaskError, PolicyError, LayoutError, TeacherError)
    return isinstance(error, (*of_input, BundleError, RunDirectoryError, ClusterError, ContainmentError))


def with_remedy(error: Exception) -> str:
    """The error's message. For a missing package, it also names the extra that installs the package."""
    if isinstance(error, ImportError):
        return f"measuring on a GPU needs the extra `gpu` of this package: {error}"
    return str(error)
