"""Containment of the untrusted runner: limits, privileges, namespaces. Says what the host made active."""

from evaluators.sandbox.contain import Containment, contain_self, enter_user_namespace, hide_memory, new_pid_namespace

__all__ = ["Containment", "contain_self", "enter_user_namespace", "hide_memory", "new_pid_namespace"]
