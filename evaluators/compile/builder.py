"""Builds candidates away from any measurement, once each, into a store that several builders may share.

An artifact is a folder of compilers' caches; a record beside it names its extensions in the build cache, or the error
with which the candidate does not compile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from configs.gpus import GPUS
from configs.schema import LimitsConfig
from evaluators.compile.artifacts import Artifacts
from evaluators.compile.attempt import BuildAttempt, BuildPlace
from evaluators.compile.cache import BuildCache
from evaluators.compile.farm import ExtensionFarm
from evaluators.compile.run_settings import runner_limits, slot_of_unmeasured
from evaluators.failures import InfraError
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.device import Device
from evaluators.host.folders import remove_folder
from evaluators.host.host_check import check_host
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.records import Artifact, BuildError, Candidate, Task, digest_of
from evaluators.shared.extension import ExtensionRequest

_MOST_ROUNDS = 4
CAPABILITIES = {name: gpu.capability for name, gpu in GPUS.items()}
"""Compute capabilities by Ray's names of accelerators, for builders on machines without the GPU."""


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
        require_containment: Sequence[str] = (),
    ) -> None:
        """`device` is what the candidates are for: a device of this host, or the name of an architecture that the host
        does not have, whose compute `capability` may have to be given. `require_containment`: words of
        `evaluators.host.containment`, without which no program is loaded.

        Raises ValueError for an architecture of unknown compute capability."""
        if isinstance(device, str) and not (capability or device in CAPABILITIES):
            raise ValueError(
                f"evaluator.capability must say the compute capability of {device}, which is not known here"
            )
        self.device = None if isinstance(device, str) else device
        self.arch = device if isinstance(device, str) else device.arch
        self.limits = limits
        self.cache = cache or BuildCache(store / "extensions")
        self.artifacts = Artifacts(store / "artifacts", self.cache.max_bytes)
        slot, host = slot_of_unmeasured(), CpuDevice()
        self._host_zygote = ZygoteHandle(host, require_containment)
        # On a CPU the same processes build and measure; processes with a GPU differ from a sandbox without one.
        shared = self.device is not None and not self.device.own_memory
        self._zygote = (
            self._host_zygote if shared or self.device is None else ZygoteHandle(self.device, require_containment)
        )
        capability = capability or (CAPABILITIES[device] if isinstance(device, str) else device.capability)
        self.farm = ExtensionFarm(self.cache, limits, self._host_zygote, slot, capability)
        self.place = BuildPlace(self.arch, limits, self.farm, slot, host, self._host_zygote, self.device, self._zygote)

    def start(self) -> None:
        """Finds out whether the host contains programs as required. Raises ContainmentError if it does not."""
        if self._host_zygote.required:
            check_host(self._host_zygote, self.place.host, self.place.slot, runner_limits(self.limits))

    def build(self, task: Task, candidate: Candidate, also: Sequence[ExtensionRequest] = ()) -> Artifact | BuildError:
        """The finished artifact, from the store or built now; or why the candidate does not compile. `also` holds
        extensions that it was seen to ask for as it ran. Raises InfraError."""
        keys = [request.digest("") for request in also]
        if len(set(keys)) < len(keys):
            raise InfraError("an extension is built, and not found where it is to be loaded: share `evaluator.store`")
        if len(also) > _MOST_ROUNDS:
            return BuildError("compile", f"the program asked for another extension each of {_MOST_ROUNDS} times it ran")
        artifact = self.artifact(task, candidate)
        if not also and (stored := self._stored(artifact)) is not None:
            return stored
        with self.artifacts.building(artifact):
            stored = self._stored(artifact)
            if isinstance(stored, BuildError):
                return stored
            if stored and not also:
                return stored
            if stored is None and Path(artifact.path).exists():
                remove_folder(Path(artifact.path))  # left by a build that did not finish
            start = time.perf_counter()
            attempt = BuildAttempt(self.place, task, candidate, dict(stored.extensions) if stored else {})
            for request in also:
                attempt.answer(request)
                self.cache.share(self.farm.digest(request))
            error = None if stored else attempt.build(artifact)
            seconds = time.perf_counter() - start + (stored.seconds if stored else 0.0)
            if attempt.is_final or not error:
                failure = {"stage": error.stage, "message": error.message} if error else None
                result = {"error": failure, "seconds": seconds, "extensions": attempt.extensions}
                self.artifacts.write_record(artifact, {**result, "final": attempt.is_final})
            if error:
                return replace(error, seconds=seconds)
            return replace(artifact, extensions=tuple(attempt.extensions.items()), seconds=seconds)

    def is_built(self, task: Task, candidate: Candidate) -> bool:
        """Whether `build` would return at once."""
        return self._stored(self.artifact(task, candidate)) is not None

    def artifact(self, task: Task, candidate: Candidate) -> Artifact:
        """The candidate's artifact, built or not: the folder of the caches of what it compiles as it runs."""
        versions = dict(self.device.versions()) if self.device else {"arch": self.arch}
        environment = json.dumps([versions, self.farm.toolchain.identity], sort_keys=True)
        digest = digest_of(f"{candidate.digest}\n{task.digest}\n{environment}")
        path = str(self.artifacts.place(digest))
        return Artifact(digest, "caches", path, self.arch, store=self.artifacts.identity)

    def _stored(self, artifact: Artifact) -> Artifact | BuildError | None:
        """The result of an earlier build, unless another attempt may give another, or a part of it was evicted."""
        entry = self.artifacts.read_record(artifact)
        if entry is None or not entry.get("final", True):
            return None
        if entry["error"]:
            return BuildError(**entry["error"], seconds=entry["seconds"])
        if not all(map(self._is_cached, entry["extensions"].values())):
            return None
        return replace(artifact, extensions=tuple(entry["extensions"].items()), seconds=entry["seconds"])

    def _is_cached(self, digest: str) -> bool:
        """Whether the cache has an extension, and the glue if it needs that to be loaded."""
        entry = self.cache.get(digest)
        return entry is not None and (not entry.record.get("glue") or self.cache.get(entry.record["glue"]) is not None)

    def close(self) -> None:
        """Ends the builder's processes."""
        self._zygote.close()
        self._host_zygote.close()
