"""How the benchmarks make whole runs: by the command that a user would give, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time


def warpsmith_run(*arguments: str) -> float:
    """Runs `warpsmith run`, which goes on with a run that is not finished. Shows its progress on standard error.
    Returns the seconds that it took. Raises CalledProcessError if it fails."""
    start = time.monotonic()
    command = [sys.executable, "-m", "orchestration.commands.main", "run", *arguments]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return time.monotonic() - start
