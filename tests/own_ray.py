"""Scripts that start a Ray cluster of their own, apart from every other one on the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).parents[1]


def printed_by(module: str, timeout: float) -> dict[str, Any]:
    """What a module of the tests prints last, as JSON, when it is run in a process of its own for at most so many
    seconds. It must end well."""
    with tempfile.TemporaryDirectory(prefix="ws-", dir="/tmp") as folder:  # a socket's path may have 107 bytes
        (Path(folder) / "ray").mkdir()
        environment = {**os.environ, "RAY_TMPDIR": folder, "PYTHONPATH": str(_REPOSITORY)}
        for name in ("RAY_ADDRESS", "RAY_JOB_ID"):
            environment.pop(name, None)
        done = subprocess.run(
            [sys.executable, "-m", module],
            cwd=_REPOSITORY, env=environment, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
