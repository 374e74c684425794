"""Section `faults` of `benchmarks/build.py`: a killed compiler, a full disk and a damaged artifact."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.build_jobs import Farm
from evaluators.shared.extension import ExtensionRequest

_PATHS = re.compile(r":? '/[^']*'( -> '/[^']*')?")
_SMALL_MIB = 40  # of the disk that fills up
_LEFT_BYTES = 64 << 10


def faults(work: Path, arch: str, request: ExtensionRequest) -> list[dict[str, str]]:
    """The outcome of a build whose compiler is killed, whose artifact is cut short, and whose disk is full.

    The full disk needs the right to mount a file system; without it that fault is left out.
    """
    rows: list[dict[str, str]] = []
    farm = Farm(work / "faults", arch)
    try:
        farm.glue()
        kill = threading.Thread(target=_kill_a_compiler).start
        rows.append(_row("compiler killed", farm, _distinct(request, len(rows)), kill))
        rows.append({"fault": "artifact cut short", "outcome": _cut_short(farm, work, arch, request)})
        small = Path(tempfile.mkdtemp(prefix="warpsmith-small-"))
        size = f"size={_SMALL_MIB}m".encode()
        if ctypes.CDLL(None).mount(b"tmpfs", str(small).encode(), b"tmpfs", 0, size) == 0:
            try:
                crowded = Farm(small, arch)
                filler = small / "filler"
                filler.write_bytes(b"x" * (_SMALL_MIB * 2**20 - _LEFT_BYTES))
                rows.append(_row("disk full", crowded, _distinct(request, len(rows))))
                filler.unlink()
                rows.append(_row("disk no longer full", crowded, _distinct(request, len(rows))))
                crowded.close()
            finally:
                ctypes.CDLL(None).umount2(str(small).encode(), 2)
    finally:
        farm.close()
    return rows


def _distinct(request: ExtensionRequest, number: int) -> ExtensionRequest:
    """The same extension under another digest, so that the cache does not have it."""
    return replace(request, ldflags=(f"-Wl,--defsym,fault_{number}=0",))


def _row(fault: str, farm: Farm, request: ExtensionRequest, harm: Callable[[], None] = lambda: None) -> dict[str, str]:
    harm()
    start = time.perf_counter()
    try:
        error = farm.build(request).record["error"]
        outcome = f"does not compile: {error}" if error else "built"
    except Exception as failure:  # noqa: BLE001  (the table shows whatever it is)
        outcome = f"{type(failure).__name__}: {_PATHS.sub('', str(failure))}"
    return {"fault": fault, "outcome": outcome[:200], "seconds": f"{time.perf_counter() - start:.1f}"}


def _cut_short(farm: Farm, work: Path, arch: str, request: ExtensionRequest) -> str:
    """What another farm does with an artifact that has lost its end."""
    library = farm.build(request).folder / "extension.so"
    library.chmod(0o644)
    library.write_bytes(library.read_bytes()[:1000])
    other = Farm(work / "faults", arch)
    rebuilt = other.build(request).folder / "extension.so"
    outcome = "built again" if rebuilt.stat().st_size > 1000 else "WRONG"
    other.close()
    return outcome


def _kill_a_compiler() -> None:
    """Kills the first process of a compiler proper (not of its driver) that appears within 20 s."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for name in ("cc1plus", "cicc"):
            for status in Path("/proc").glob("[0-9]*/comm"):
                try:
                    if status.read_text().strip() == name:
                        os.kill(int(status.parent.name), signal.SIGKILL)
                        return
                except OSError:
                    continue
        time.sleep(0.01)
