"""How candidates run where they compile and where they load what was compiled: limits, cache folders, users."""

from __future__ import annotations

import os

from configs.schema import LimitsConfig
from evaluators.compile.hints import uses_inductor
from evaluators.host.device import Slot
from evaluators.host.runner_process import RunnerLimits
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.records import Artifact

_FIRST_SLOT = 1000
_PROCESSES = 64  # processes and threads that a candidate may have at once


def runner_limits(limits: LimitsConfig) -> RunnerLimits:
    """The configured limits in the runner's units."""
    return RunnerLimits(
        memory_bytes=int(limits.memory_gib * 2**30),
        device_memory_bytes=int(limits.gpu_memory_gib * 2**30),
        processes=_PROCESSES,
        file_bytes=int(limits.output_mib * 2**20),
        files=limits.output_files,
    )


def build_environment(artifact: Artifact) -> dict[str, str]:
    """Environment variables that name the artifact's folders to the compilers that work inside a runner."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": f"{artifact.path}/inductor",
        "TRITON_CACHE_DIR": f"{artifact.path}/triton",
    }


def prepare_compilers(zygote: ZygoteHandle, source: str) -> None:
    """Does once, for all runners of a zygote, what each would do for itself before it compiles. Raises InfraError."""
    if uses_inductor(source):
        zygote.prepare_inductor()


def slot_of_unmeasured() -> Slot:
    """The slot of runners of this process that are not measured: any cores, and users that no other process uses."""
    return Slot(_FIRST_SLOT + os.getpid() % 1000, (), ())
