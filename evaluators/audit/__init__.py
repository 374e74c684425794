"""TRUSTED: finds tasks that cannot tell a good program from a cheat."""
