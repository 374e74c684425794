"""Containment of an untrusted runner: limits, privileges, namespaces, filters.

Runs before the program (still trusted): in the zygote and in its freshly forked children, where no line of a candidate
has run yet. Only `zygote` imports `runner`.
"""

from evaluators.sandbox.contain import (
    Containment,
    contain_self,
    enter_user_namespace,
    hide_memory,
    lend_folders,
    new_pid_namespace,
)

__all__ = [
    "Containment",
    "contain_self",
    "enter_user_namespace",
    "hide_memory",
    "lend_folders",
    "new_pid_namespace",
]
