"""Builds candidates away from any measurement: what they ask to be compiled, and what they compile as they run.

A candidate is imported and constructed in a sandbox without a GPU, where the farm compiles what extensions it asks for.
What it compiles as it runs (`torch.compile`, Triton) needs its device: where that is at hand the candidate is
called once, with the compilers' caches in a folder of its own, from which the evaluator's runner loads them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from configs.schema import LimitsConfig
from evaluators.compile.cache import BuildCache
from evaluators.compile.farm import ExtensionFarm, answer_of, locked
from evaluators.compile.messages import compiler_message
from evaluators.failures import InfraError, RunnerFailure
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.device import Device, Slot
from evaluators.host.look import look
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.runner_process import RunnerLimits
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.records import Artifact, BuildError, Candidate, Outcome, Task, digest_of
from evaluators.shared.extension import ExtensionRequest
from evaluators.tasks import ProgramError, TaskProgram
from evaluators.tasks.shapes import shape_variants

# Hints only: what compiles by other means does so in its runner, under the start limit.
_EXTENSIONS = re.compile(r"cpp_extension|load_inline")
_INDUCTOR = re.compile(r"torch\.compile|\bcompile\(|_inductor")
_TRITON = re.compile(r"\btriton\b")
_FIRST_SLOT = 1000
_LOCK_SECONDS = 900.0
_MOST_ROUNDS = 4
_BUILDS_OF_A_CANDIDATE = 2  # times the limit of one, after which no other is begun
# Compute capabilities by Ray's names of accelerators, for builders on machines without the GPU.
CAPABILITIES = {
    **dict.fromkeys(("H100", "H200", "H20", "GH200"), "9.0"),
    **dict.fromkeys(("L4", "L40", "L40S"), "8.9"),
    **dict.fromkeys(("A10", "A10G", "A40"), "8.6"),
    **dict.fromkeys(("B200", "GB200"), "10.0"),
    **dict.fromkeys(("A100", "A800", "A30"), "8.0"),
    **dict.fromkeys(("B300", "GB300"), "10.3"),
    **{
        "H800": "9.0",
        "RTX-3090": "8.6",
        "RTX-4090": "8.9",
        "RTX-5090": "12.0",
        "T4": "7.5",
        "V100": "7.0",
        "P100": "6.0",
    },
}


def needs_build(source: str) -> bool:
    """Whether the source looks as if it compiled something."""
    return any(pattern.search(source) for pattern in (_EXTENSIONS, _INDUCTOR, _TRITON))


def runner_limits(limits: LimitsConfig) -> RunnerLimits:
    """The configured limits in the runner's units."""
    return RunnerLimits(
        memory_bytes=int(limits.memory_gib * 2**30),
        device_memory_bytes=int(limits.gpu_memory_gib * 2**30),
        processes=limits.processes,
        file_bytes=int(limits.output_mib * 2**20),
    )


def build_environment(artifact: Artifact) -> dict[str, str]:
    """Where the caches of compilers stand that run in the runner that loads the artifact."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": f"{artifact.path}/inductor",
        "TRITON_CACHE_DIR": f"{artifact.path}/triton",
    }


def prepare_compilers(zygote: ZygoteHandle, source: str) -> None:
    """Does once, for all runners of a zygote, what each would do for itself before it compiles. Raises InfraError."""
    if _INDUCTOR.search(source):
        zygote.prepare_inductor()


def slot_of_unmeasured() -> Slot:
    """Where programs of this process run that are not measured: on any cores, as users of their own."""
    return Slot(_FIRST_SLOT + os.getpid() % 1000, (), ())


class Builder:
    """Builds one candidate at a time into a store that several builders may share."""

    def __init__(
        self,
        device: Device | str,
        store: Path,
        limits: LimitsConfig,
        *,
        cache: BuildCache | None = None,
        capability: str = "",
    ) -> None:
        """`device` is what the candidates are for: one of this host, or an architecture that it does not have, whose
        compute `capability` may have to be given.

        Raises ValueError for an architecture of unknown compute capability."""
        if isinstance(device, str) and not (capability or device in CAPABILITIES):
            raise ValueError(
                f"evaluator.capability must say the compute capability of {device}, which is not known here"
            )
        self.arch = device if isinstance(device, str) else device.arch
        self.device = None if isinstance(device, str) else device
        self.store = store.absolute() / "artifacts"  # a runner works elsewhere
        self.limits = limits
        self.cache = cache or BuildCache(store / "extensions")
        slot = self._slot = slot_of_unmeasured()
        self._host = CpuDevice()
        self._host_zygote = ZygoteHandle(self._host)
        # A CPU is measured as it is built on; a GPU's processes are not those of a sandbox without one.
        shared = self.device is not None and not self.device.own_memory
        self._zygote = self._host_zygote if shared or self.device is None else ZygoteHandle(self.device)
        capability = capability or (CAPABILITIES[device] if isinstance(device, str) else device.capability)
        self._deadline, self._keeps = 0.0, True  # of the build under way
        self.farm = ExtensionFarm(self.cache, limits, self._host_zygote, slot, capability)

    def build(self, task: Task, candidate: Candidate, also: Sequence[ExtensionRequest] = ()) -> Artifact | BuildError:
        """The finished artifact, from the store or built now; or why it does not compile. `also` are extensions that it
        was seen to ask for as it ran. Raises InfraError."""
        keys = [one.digest("") for one in also]
        if len(set(keys)) < len(keys):
            raise InfraError("an extension is built, and not found where it is to be loaded: share `evaluator.store`")
        if len(also) > _MOST_ROUNDS:
            return BuildError("compile", f"the program asked for another extension each of {_MOST_ROUNDS} times it ran")
        artifact = self.artifact(task, candidate)
        folder = Path(artifact.path)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_suffix(".lock"), _LOCK_SECONDS):
            known = self._known(artifact)
            if isinstance(known, BuildError):
                return known
            if known and not also:
                return known
            if known is None:
                shutil.rmtree(folder, ignore_errors=True)  # left by a build that did not finish
            start = time.perf_counter()
            self._deadline, self._keeps = time.monotonic() + _BUILDS_OF_A_CANDIDATE * self.limits.build_seconds, True
            extensions = dict(known.extensions) if known else {}
            for request in also:
                self._answer(request, extensions)
                self.cache.share(self.farm.digest(request))
            error = None if known else self._attempt(task, candidate, artifact, extensions)
            seconds = time.perf_counter() - start + (known.seconds if known else 0.0)
            if self._keeps:
                failure = {"stage": error.stage, "message": error.message} if error else None
                entry = {"error": failure, "seconds": seconds, "extensions": extensions}
                _write_whole(folder.with_suffix(".json"), json.dumps(entry))
            if error:
                return replace(error, seconds=seconds)
            return replace(artifact, extensions=tuple(extensions.items()), seconds=seconds)

    def is_built(self, task: Task, candidate: Candidate) -> bool:
        """Whether `build` would return at once."""
        return self._known(self.artifact(task, candidate)) is not None

    def artifact(self, task: Task, candidate: Candidate) -> Artifact:
        """Where what the candidate compiles as it runs is kept, built or not."""
        versions = dict(self.device.versions()) if self.device else {"arch": self.arch}
        known = json.dumps([versions, self.farm.toolchain.identity], sort_keys=True)
        digest = digest_of(f"{candidate.digest}\n{task.digest}\n{known}")
        return Artifact(digest, "caches", str(self.store / digest), self.arch)

    def _known(self, artifact: Artifact) -> Artifact | BuildError | None:
        """What was built before, unless the cache has given up a part of it."""
        record = Path(artifact.path).with_suffix(".json")
        try:
            entry = json.loads(record.read_text())
        except FileNotFoundError:
            return None
        if entry["error"]:
            return BuildError(**entry["error"], seconds=entry["seconds"])
        if not all(map(self._has, entry["extensions"].values())):
            return None
        return replace(artifact, extensions=tuple(entry["extensions"].items()), seconds=entry["seconds"])

    def _has(self, digest: str) -> bool:
        """Whether the cache has an extension, and what it takes to load it."""
        entry = self.cache.get(digest)
        return entry is not None and (not entry.record.get("glue") or self.cache.get(entry.record["glue"]) is not None)

    def _attempt(
        self, task: Task, candidate: Candidate, artifact: Artifact, extensions: dict[str, str]
    ) -> BuildError | None:
        """Lets the candidate ask for its extensions, then lets it compile the rest."""
        error = None
        if _EXTENSIONS.search(candidate.source):
            error = self._attempted(lambda: self._discover(task, candidate, extensions), self.limits.start_seconds)
        runs = _INDUCTOR.search(candidate.source) or _TRITON.search(candidate.source)
        if error is None and runs and self.device is not None:
            device = self.device
            warm = lambda: self._warm_up(device, task, candidate, artifact, extensions)  # noqa: E731
            error = self._attempted(warm, self.limits.build_seconds, is_building=True)
        return error

    def _attempted(self, work: Callable[[], None], seconds: float, *, is_building: bool = False) -> BuildError | None:
        """Why the candidate does not build; what else goes wrong with it the evaluator will find out."""
        try:
            work()
        except RunnerFailure as failure:
            if failure.outcome is Outcome.TIMEOUT and is_building:
                self._keeps = False  # perhaps of a busy machine: not for good
                return BuildError("compile", f"building took longer than {seconds:.0f} s")
            if failure.outcome is Outcome.BUILD_ERROR:
                return BuildError(failure.stage, compiler_message(failure.message))
        return None

    def _answer(self, request: ExtensionRequest, extensions: dict[str, str], *, load: bool = False) -> dict[str, Any]:
        if time.monotonic() > self._deadline:
            self._keeps = False
            return {"error": "building took too long in all"}
        entry = self.farm.build(request)
        self._keeps = self._keeps and entry.kept
        if entry.kept:
            extensions[request.digest("")] = self.farm.digest(request)
        if load:
            return answer_of(entry, request, self.farm.glue() if entry.record["glue"] else None)
        return {"error": entry.record["error"]} if entry.record["error"] else {}

    def _discover(self, task: Task, candidate: Candidate, extensions: dict[str, str]) -> None:
        """Raises RunnerFailure."""
        program = TaskProgram(task, self._host.torch_device)
        limits = runner_limits(self.limits)
        runner = RunnerHandle(
            self._host_zygote, self._host, self._slot, 0, limits, extensions=lambda one: self._answer(one, extensions)
        )
        try:
            runner.begin_start()
            runner.end_start(self.limits.build_seconds)
            arguments = program.init_inputs(secrets.randbits(48)), _forms_of_inputs(task)
            capability = self.farm.toolchain.capability
            runner.discover(candidate.source, arguments, capability, self.arch, self.limits.start_seconds)
        finally:
            runner.end()

    def _warm_up(
        self, device: Device, task: Task, candidate: Candidate, artifact: Artifact, extensions: dict[str, str]
    ) -> None:
        """A call of the candidate, and one at another shape where the task has one. Raises RunnerFailure."""
        seconds = self.limits.build_seconds
        program = TaskProgram(task, device.torch_device)
        environment = build_environment(artifact)
        limits = runner_limits(self.limits)
        prepare_compilers(self._zygote, candidate.source)
        runner = RunnerHandle(
            self._zygote,
            device,
            self._slot,
            0,
            limits,
            environment,
            [Path(one) for one in environment.values()],
            lambda one: self._answer(one, extensions, load=True),
        )
        try:
            look(runner, program, candidate.source, device, seconds, shape_variants(task)[:1])
        finally:
            runner.end()
            device.trim()

    def close(self) -> None:
        """Ends the builder's processes."""
        self._zygote.close()
        self._host_zygote.close()


def _forms_of_inputs(task: Task) -> list[Any] | None:
    """Inputs of one call on the `meta` device, or None for a task that needs values to make them."""
    try:
        return TaskProgram(task, torch.device("meta")).inputs(0)
    except ProgramError:
        return None


def _write_whole(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)
