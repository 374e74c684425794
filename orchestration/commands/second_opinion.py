"""The second opinion that the preset `paper` asks for: the same program, measured on a second GPU of the same kind.

A process of its own measures, which sees that GPU alone.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from evaluators.host.device import Device
from evaluators.records import DROP_IN, Outcome, Task
from evaluators.tasks import program_source
from orchestration.commands.machine import child_environment

_log = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 1800.0  # for builds, for waiting for the GPU, and for the preset `thorough`


def find_second_gpu(device: Device) -> str | None:
    """The UUID of another visible GPU with the same name as the device's, or None."""
    if device.torch_device.type != "cuda":
        return None
    own = device.torch_device.index or 0
    name = torch.cuda.get_device_name(own)
    for ordinal in range(torch.cuda.device_count()):
        if ordinal != own and torch.cuda.get_device_name(ordinal) == name:
            return f"GPU-{torch.cuda.get_device_properties(ordinal).uuid}"
    return None


def make_confirm(device: Device, store: Path, strict: str = DROP_IN) -> Callable[[Task, str], float | None]:
    """The evaluator's `confirm`: measures a task's program on a second GPU. See `measure_on_gpu` for what it returns.

    It returns None if there is no second GPU of the same kind.
    """

    def confirm(task: Task, source: str) -> float | None:
        uuid = find_second_gpu(device)
        return None if uuid is None else measure_on_gpu(uuid, device.arch, task, source, store, strict)

    return confirm


def measure_on_gpu(uuid: str, arch: str, task: Task, source: str, store: Path, strict: str = DROP_IN) -> float | None:
    """The program's speed-up over eager by the preset `thorough`, from a process that sees only the GPU `uuid`.

    0 if the verdict is anything but `ok`, which confirms nothing. None if there is no verdict.
    """
    with tempfile.TemporaryDirectory(prefix="warpsmith-confirm-") as folder:
        reference, program = Path(folder) / "reference.py", Path(folder) / "program.py"
        reference.write_text(program_source(task), encoding="utf-8")
        program.write_text(source, encoding="utf-8", errors="surrogatepass")
        command = [sys.executable, "-m", "orchestration.commands.main", "evaluate", str(reference), str(program)]
        command += ["--json", "--arch", arch, "--preset", "thorough", "--store", str(store), "--strict", strict]
        environment = {**child_environment(), "CUDA_VISIBLE_DEVICES": uuid}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
            )
            row = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            _log.warning("%s: no verdict within %.0f s", uuid, _TIMEOUT_SECONDS)
            return None
        except json.JSONDecodeError:
            _log.warning("%s: no verdict: %s", uuid, done.stderr.strip()[-500:])
            return None
    if row["outcome"] == Outcome.INFRA:
        _log.warning("%s: %s", uuid, row["message"])
        return None
    return float(row["speedups"]["eager"]["value"]) if row["outcome"] == Outcome.OK else 0.0
