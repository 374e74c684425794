"""The extensions that `benchmarks/build.py` compiles, and the build farms that compile them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.build_programs import LIMITS, Asked
from benchmarks.mending import mended
from evaluators.compile.builder import CAPABILITIES
from evaluators.compile.cache import BuildCache
from evaluators.compile.farm import ExtensionFarm
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.device import Slot
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.shared.extension import ExtensionRequest


class Farm(ExtensionFarm):
    """A build farm with a zygote of its own. Farms that run at the same time need different values of `number`, so
    that their compilers run as different users."""

    def __init__(self, folder: Path, arch: str, number: int = 0) -> None:
        device = CpuDevice()
        self.zygote = ZygoteHandle(device)
        slot = Slot(1500 + number, (), ())
        super().__init__(BuildCache(folder), LIMITS, self.zygote, slot, CAPABILITIES.get(arch, ""))
        self.zygote.start()

    def close(self) -> None:
        """Ends the farm's processes."""
        self.zygote.close()


@dataclass(frozen=True)
class Job:
    """An extension to build. `kind` is `as it is` (as published or shipped) or `mended` (`benchmarks/mending.py`)."""

    program: str
    kind: str
    request: ExtensionRequest


def jobs_of(asked: list[Asked]) -> list[Job]:
    """The first extension of each program."""
    return [Job(program.name, "as it is", program.requests[0]) for program in asked if program.requests]


def mended_jobs(jobs: list[Job]) -> list[Job]:
    """The mended forms of those extensions in which there is something to mend."""
    pairs = [(job, mended(job.request)) for job in jobs]
    return [Job(job.program, "mended", request) for job, request in pairs if request]


def compiling_requests(out: Path, asked: list[Asked]) -> list[ExtensionRequest]:
    """The extensions that compiled in the section `cold`, by the figures that it wrote to `out`."""
    rows = json.loads((out / "cold.json").read_text())["rows"]
    compiling = {(row["program"], row["kind"]) for row in rows if not row["error"]}
    jobs = jobs_of(asked)
    return [job.request for job in [*jobs, *mended_jobs(jobs)] if (job.program, job.kind) in compiling]


def print_row(row: dict[str, Any]) -> None:
    """Prints a row of figures as soon as it is there."""
    print(json.dumps(row)[:500], flush=True)
