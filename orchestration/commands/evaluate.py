"""What `warpsmith evaluate` and `warpsmith baseline` make of their options: an evaluator, and a second opinion.

Nothing here measures; `evaluators.evaluator` does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from configs.load import ConfigError
from evaluators.host.device import Device
from evaluators.records import Outcome, Task
from evaluators.stored.baselines import existing_baselines
from evaluators.tasks import program_source

_log = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[2]
_CONFIRM_SECONDS = 1800.0  # builds, waits for the GPU's slot and the preset `thorough`


def default_store() -> Path:
    """Where baselines and builds stay between commands: `$XDG_CACHE_HOME/warpsmith`, `/var/cache/warpsmith` for root
    (whose runners are other users and may not enter its home), else `~/.cache/warpsmith`."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen) / "warpsmith"
    return Path("/var/cache/warpsmith") if os.geteuid() == 0 else Path.home() / ".cache/warpsmith"


@contextlib.contextmanager
def open_to_runners() -> Iterator[None]:
    """A block in which the folders that are made can be entered by runners, who are other users when we are root."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def warn_if_closed(store: Path) -> None:
    """Tells root of a folder that its runners cannot enter: they then keep the right to read every file of the host."""
    if os.geteuid() == 0:
        place = store.absolute()
        closed = next((one for one in (place, *place.parents) if not one.stat().st_mode & 1), None)
        if closed is not None:
            _log.warning("--store %s: runners are other users and may not enter %s; choose another", store, closed)


def baselines_named(words: str, arch: str) -> tuple[str, ...]:
    """The baselines of a comma-separated list, or of `all` that an architecture has."""
    if words == "all":
        return existing_baselines(arch)
    return tuple(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))


def chosen_levels(tasks: list[Task], levels: str) -> list[Task]:
    """The tasks of a comma-separated list of levels; all for an empty one. Raises ValueError when none is left."""
    words = [word.strip() for word in levels.split(",") if word.strip()]
    if bad := [word for word in words if not word.isdecimal()]:
        raise ValueError(f"--levels must be whole numbers with commas between, got {bad[0]!r}")
    chosen = [task for task in tasks if not words or task.level in map(int, words)]
    if not chosen:
        raise ValueError(f"--levels {levels} leaves no task: there are {sorted({task.level for task in tasks})}")
    return chosen


def machine_arch() -> str:
    """The architecture of the GPU here, or `cpu`. Asks in a process of its own, which leaves no context on the GPU.

    Raises ConfigError when there is a GPU that cannot be used.
    """
    if not torch.cuda.is_available():
        return "cpu"
    code = "from evaluators.host.open_device import open_device; print(open_device('auto').arch)"
    done = subprocess.run([sys.executable, "-c", code], env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"evaluator.arch is auto, but {(done.stderr.strip().splitlines() or ['it is unknown'])[-1]}")
    return done.stdout.strip()


def second_gpu(device: Device) -> str | None:
    """The UUID of another visible GPU of the same name as the device's, or None."""
    if device.torch_device.type != "cuda":
        return None
    own = device.torch_device.index or 0
    name = torch.cuda.get_device_name(own)
    for ordinal in range(torch.cuda.device_count()):
        if ordinal != own and torch.cuda.get_device_name(ordinal) == name:
            return f"GPU-{torch.cuda.get_device_properties(ordinal).uuid}"
    return None


def confirmation(device: Device, store: Path) -> Callable[[Task, str], float | None]:
    """What the preset `paper` asks of a second GPU: the speed-up over eager that it measures, see `measured_by`."""

    def confirm(task: Task, source: str) -> float | None:
        other = second_gpu(device)
        return None if other is None else measured_by(other, device.arch, task, source, store)

    return confirm


def measured_by(uuid: str, arch: str, task: Task, source: str, store: Path) -> float | None:
    """The speed-up over eager of the same program by the preset `thorough`, measured by a process that sees the GPU
    `uuid` alone.

    0 when its verdict is anything but `ok`, which confirms nothing; None when it has no verdict.
    """
    with tempfile.TemporaryDirectory(prefix="warpsmith-confirm-") as folder:
        reference, program = Path(folder) / "reference.py", Path(folder) / "program.py"
        reference.write_text(program_source(task), encoding="utf-8")
        program.write_text(source, encoding="utf-8", errors="surrogatepass")
        command = [
            sys.executable,
            "-m",
            "orchestration.commands.main",
            "evaluate",
            str(reference),
            str(program),
            "--json",
        ]
        command += ["--arch", arch, "--preset", "thorough", "--store", str(store)]
        environment = {**_environment(), "CUDA_VISIBLE_DEVICES": uuid}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_CONFIRM_SECONDS, check=False
            )
            row = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            _log.warning("%s: no verdict within %.0f s", uuid, _CONFIRM_SECONDS)
            return None
        except json.JSONDecodeError:
            _log.warning("%s: no verdict: %s", uuid, done.stderr.strip()[-500:])
            return None
    if row["outcome"] == Outcome.INFRA:
        _log.warning("%s: %s", uuid, row["message"])
        return None
    return float(row["speedups"]["eager"]["value"]) if row["outcome"] == Outcome.OK else 0.0


def _environment() -> dict[str, str]:
    """Ours, in which this checkout's packages are found."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}
