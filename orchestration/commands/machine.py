"""What this machine measures on, and the environment of processes that measure here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from configs.load import ConfigError

_ROOT = Path(__file__).resolve().parents[2]


def machine_arch() -> str:
    """The architecture of the GPU here, or `cpu`. Raises ConfigError if there is a GPU that cannot be used.

    Asks in a separate process, which leaves no context on the GPU.
    """
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    code = "from evaluators.host.open_device import open_device; print(open_device('auto').arch)"
    environment = child_environment()
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"evaluator.arch is auto, but {(done.stderr.strip().splitlines() or ['it is unknown'])[-1]}")
    return done.stdout.strip()


def child_environment() -> dict[str, str]:
    """This process's environment variables, with this checkout's packages on PYTHONPATH."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}
