"""Containment that a user demands of a host (`evaluator.require_containment`), in the user's words.

Runs in the judge's process (trusted). A word stands for an effect on a program, and each effect has several means:
whichever the host allows. Their names are those of `evaluators.sandbox.contain`, which a runner reports before any line
of a program has run.
"""

from __future__ import annotations

from collections.abc import Collection

from evaluators.failures import ContainmentError

MEANS: dict[str, frozenset[str]] = {
    "network": frozenset({"network_namespace", "seccomp"}),
    "filesystem": frozenset({"read_only_host", "landlock"}),
    "user": frozenset({"own_user"}),
    "processes": frozenset({"pid_namespace", "own_user", "scoped"}),
    "system_calls": frozenset({"seccomp"}),
}
"""By word, the means any one of which gives it."""

_REMEDIES = {
    "network": "allow namespaces or seccomp",
    "filesystem": "allow mounts, or Landlock (Linux 5.13)",
    "user": "start as root",
    "processes": "start as root, or allow namespaces or Landlock (Linux 6.12)",
    "system_calls": "allow seccomp (x86-64, 64-bit Arm)",
}


def demand(required: Collection[str], active: Collection[str]) -> None:
    """Raises ContainmentError if the `active` means do not give all that is required.

    The message is one line, short enough to come through a Ray actor's failure whole."""
    missing = [word for word in required if MEANS[word].isdisjoint(active)]
    if missing:
        remedies = "; ".join(f"{word}: {_REMEDIES[word]}" for word in missing)
        raise ContainmentError(f"evaluator.require_containment: this host does not give {remedies}; or leave it out")
