"""What goes wrong between this machine and a cluster. Each error is one line that names the thing and the remedy."""

from __future__ import annotations


class ClusterError(Exception):
    """Something that was asked of a cluster cannot be done as it was asked."""


class NoAnswer(ClusterError):
    """The cluster does not answer, or answers with a failure of its own. The same request may work later."""


class UnknownJob(ClusterError):
    """The cluster has no such job."""


class IdentityTaken(ClusterError):
    """Another job has this submission id already."""


class Silence(ClusterError):
    """A job was followed, and the cluster gave no answer for so long that this ended. The job may still run."""


def first_line(error: BaseException | str) -> str:
    """The first line of a message that says something, cut to 300 characters; an error's type if none does."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else "" if isinstance(error, str) else type(error).__name__
