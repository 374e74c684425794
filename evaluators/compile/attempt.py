"""One attempt to build a candidate: its extensions first, then whatever it compiles as it runs.

The candidate is imported and constructed in a sandbox without a GPU, where the build farm compiles the extensions that
it asks for. `torch.compile` and Triton need the device: on a host that has it the candidate is called once, with the
compilers' caches in the artifact's folder, from which the evaluator's runner loads them. Nothing is measured here.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from configs.schema import LimitsConfig
from evaluators.compile.farm import ExtensionFarm, answer_of
from evaluators.compile.hints import builds_extensions, compiles_when_called
from evaluators.compile.messages import compiler_message
from evaluators.compile.run_settings import build_environment, prepare_compilers, runner_limits
from evaluators.failures import RunnerFailure
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.device import Device, Slot
from evaluators.host.look import look
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.records import Artifact, BuildError, Candidate, Outcome, Task
from evaluators.shared.extension import ExtensionRequest
from evaluators.tasks import ProgramError, TaskProgram
from evaluators.tasks.shapes import shape_variants

_BUILDS_OF_A_CANDIDATE = 2  # times the limit of one build: after that no other is begun


@dataclass(frozen=True)
class BuildPlace:
    """What a builder gives to each of its attempts. `host_zygote` starts runners without a GPU, `zygote` those on the
    `device`, which is None if this host does not have the architecture `arch`."""

    arch: str
    limits: LimitsConfig
    farm: ExtensionFarm
    slot: Slot
    host: CpuDevice
    host_zygote: ZygoteHandle
    device: Device | None
    zygote: ZygoteHandle


class BuildAttempt:
    """Builds one candidate for one task.

    `extensions` collects the digests of the entries in the build cache by the keys of their requests. `is_final` says
    whether another attempt would give the same result, so that the result may be stored.
    """

    def __init__(
        self, place: BuildPlace, task: Task, candidate: Candidate, extensions: dict[str, str] | None = None
    ) -> None:
        self.extensions = dict(extensions or {})
        self.is_final = True
        self._place = place
        self._task, self._candidate = task, candidate
        self._deadline = time.monotonic() + _BUILDS_OF_A_CANDIDATE * place.limits.build_seconds

    def build(self, artifact: Artifact) -> BuildError | None:
        """Lets the candidate ask for its extensions, then lets it compile the rest into the artifact's folder. Returns
        why it does not build, or None. Raises InfraError."""
        source, limits, device = self._candidate.source, self._place.limits, self._place.device
        error = None
        if builds_extensions(source):
            error = self._build_error(self.discover, limits.start_seconds)
        if error is None and compiles_when_called(source) and device is not None:
            error = self._build_error(lambda: self._warm_up(device, artifact), limits.build_seconds, is_building=True)
        return error

    def _build_error(self, work: Callable[[], None], seconds: float, *, is_building: bool = False) -> BuildError | None:
        """Runs `work` and returns the build error that it ends with. The evaluator will find any other failure of the
        candidate."""
        try:
            work()
        except RunnerFailure as failure:
            if failure.outcome is Outcome.TIMEOUT and is_building:
                self.is_final = False  # the machine may have been busy
                return BuildError("compile", f"building took longer than {seconds:.0f} s")
            if failure.outcome is Outcome.BUILD_ERROR:
                return BuildError(failure.stage, compiler_message(failure.message))
        return None

    def answer(self, request: ExtensionRequest, *, load: bool = False) -> dict[str, Any]:
        """Builds an extension and returns the answer for the runner that asked for it.

        With `load` the answer names the library, or holds the error; without it, the answer holds the error alone.
        """
        farm = self._place.farm
        if time.monotonic() > self._deadline:
            self.is_final = False
            return {"error": "building took too long in all"}
        entry = farm.build(request)
        self.is_final = self.is_final and entry.kept
        if entry.kept:
            self.extensions[request.digest("")] = farm.digest(request)
        if load:
            return answer_of(entry, request, farm.glue() if entry.record["glue"] else None)
        return {"error": entry.record["error"]} if entry.record["error"] else {}

    def discover(self) -> None:
        """Builds the extensions that the candidate asks for when it is imported, constructed and called without a GPU.
        Raises RunnerFailure."""
        place = self._place
        program = TaskProgram(self._task, place.host.torch_device)
        limits = runner_limits(place.limits)
        runner = RunnerHandle(place.host_zygote, place.host, place.slot, 0, limits, extensions=self.answer)
        try:
            runner.begin_start()
            runner.end_start(place.limits.build_seconds)
            arguments = program.init_inputs(secrets.randbits(48)), _forms_of_inputs(self._task)
            capability = place.farm.toolchain.capability
            runner.discover(self._candidate.source, arguments, capability, place.arch, place.limits.start_seconds)
        finally:
            runner.end()

    def _warm_up(self, device: Device, artifact: Artifact) -> None:
        """Calls the candidate on its device, and a second time at another shape if the task has one. Raises
        RunnerFailure."""
        place = self._place
        program = TaskProgram(self._task, device.torch_device, any_strides=True)  # strides are the judge's to check
        environment = build_environment(artifact)
        prepare_compilers(place.zygote, self._candidate.source)
        runner = RunnerHandle(
            place.zygote,
            device,
            place.slot,
            0,
            runner_limits(place.limits),
            environment,
            [Path(folder) for folder in environment.values()],
            lambda request: self.answer(request, load=True),
        )
        try:
            shapes = shape_variants(self._task)[:1]
            look(runner, program, self._candidate.source, device, place.limits.build_seconds, shapes)
        finally:
            runner.end()
            device.trim()


def _forms_of_inputs(task: Task) -> list[Any] | None:
    """Inputs of one call on the `meta` device, or None for a task that needs values to make them."""
    try:
        return TaskProgram(task, torch.device("meta")).inputs(0)
    except ProgramError:
        return None
