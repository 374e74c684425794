"""NVIDIA's multi-process service (MPS), with which kernels of several processes on a GPU run at the same time.

Without it a GPU gives each process slices of its time, and switches between them. A fault in one client can end all
others, so only our own code may be a client: rollout engines and the learner, never a program that is judged.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from configs.load import ConfigError

_CONTROL = "nvidia-cuda-mps-control"
_START_SECONDS = 10.0
_QUIT_SECONDS = 10
# The shell lives as long as its standard input is open, so the service ends with the process that started it, also if
# that is killed.
_SCRIPT = f"{_CONTROL} -f & cat >/dev/null; echo quit -t {_QUIT_SECONDS} | {_CONTROL}; wait"


class MpsServer:
    """The service of one run on this host. `environment`: the variables that make a process its client."""

    def __init__(self) -> None:
        """Starts the service. Raises ConfigError if it is not installed, or does not come up."""
        if shutil.which(_CONTROL) is None:
            raise ConfigError(f"placement.mps: {_CONTROL} is not installed here (it comes with the driver)")
        self._folder = Path(tempfile.mkdtemp(prefix="warpsmith-mps-"))
        folder = str(self._folder)
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        self._shell = subprocess.Popen(
            ["sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | self.environment,
            start_new_session=True,  # Ctrl-C is for the run, which ends its clients first
        )
        deadline = time.monotonic() + _START_SECONDS
        while not (self._folder / "control").exists():
            if time.monotonic() > deadline:
                self.stop()
                raise ConfigError(f"placement.mps: {_CONTROL} did not come up in {_START_SECONDS:.0f} s")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends the service after its clients, or some seconds later."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        try:
            self._shell.wait(timeout=2.0 * _QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)  # the service, too
            self._shell.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
