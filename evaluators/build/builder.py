"""Builds candidates on a CPU: imports, constructs and calls them once in the sandbox, with compiler caches in a store.

What a candidate compiles (inline C++, `torch.compile`) lands in a folder named by everything that matters, from which
the evaluator's runner loads it. So no measuring slot waits for a compiler.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.schema import LimitsConfig
from evaluators.build.messages import compiler_message
from evaluators.device import Device, Slot
from evaluators.failures import InfraError, RunnerFailure
from evaluators.pair import input_bytes
from evaluators.records import Artifact, BuildError, Candidate, Outcome, Task, digest_of
from evaluators.runner_handle import RunnerHandle, RunnerLimits
from evaluators.tasks import TaskProgram
from evaluators.zygote_handle import ZygoteHandle

# A hint only: a candidate that compiles by other means does so in its runner, under the start limit.
_COMPILES = re.compile(r"cpp_extension|load_inline|torch\.compile|\bcompile\(|_inductor|\btriton\b")
_INDUCTOR = re.compile(r"torch\.compile|\bcompile\(|_inductor")
_FIRST_SLOT = 1000


def needs_build(source: str) -> bool:
    """Whether the source looks as if it compiled something."""
    return bool(_COMPILES.search(source))


def runner_limits(limits: LimitsConfig) -> RunnerLimits:
    """The configured limits in the runner's units."""
    return RunnerLimits(
        memory_bytes=int(limits.memory_gib * 2**30),
        device_memory_bytes=int(limits.gpu_memory_gib * 2**30),
        processes=limits.processes,
        file_bytes=int(limits.output_mib * 2**20),
    )


def build_environment(artifact: Artifact) -> dict[str, str]:
    """Where the compilers' caches stand, for the runner that loads the artifact."""
    return {
        "TORCH_EXTENSIONS_DIR": f"{artifact.path}/extensions",
        "TORCHINDUCTOR_CACHE_DIR": f"{artifact.path}/inductor",
        "TRITON_CACHE_DIR": f"{artifact.path}/triton",
    }


def prepare_compilers(zygote: ZygoteHandle, source: str) -> None:
    """Does once, for all runners of a zygote, what each would do for itself before it compiles. Raises InfraError."""
    if _INDUCTOR.search(source):
        zygote.prepare_inductor()


class Builder:
    """Builds one candidate at a time into a store that several builders may share."""

    def __init__(self, device: Device, store: Path, limits: LimitsConfig) -> None:
        self.device = device
        self.store = store / "artifacts"
        self.limits = limits
        self._zygote = ZygoteHandle(device)
        self._slot = Slot(_FIRST_SLOT + os.getpid() % 1000, (), ())

    def build(self, task: Task, candidate: Candidate) -> Artifact | BuildError:
        """The finished artifact, from the store or built now; or why it does not compile. Raises InfraError."""
        artifact = self.artifact(task, candidate)
        folder = Path(artifact.path)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_suffix(".lock")):
            record = folder.with_suffix(".json")
            if record.is_file():
                known = json.loads(record.read_text())
                return BuildError(**known["error"]) if known["error"] else artifact
            shutil.rmtree(folder, ignore_errors=True)  # left by a build that did not finish
            start = time.perf_counter()
            error = self._attempt(task, candidate, artifact)
            entry = {
                "error": {"stage": error.stage, "message": error.message} if error else None,
                "seconds": time.perf_counter() - start,
            }
            partial = record.with_suffix(".partial")
            partial.write_text(json.dumps(entry))
            partial.replace(record)
            return error or artifact

    def is_built(self, task: Task, candidate: Candidate) -> bool:
        """Whether `build` would return at once."""
        return Path(self.artifact(task, candidate).path).with_suffix(".json").is_file()

    def artifact(self, task: Task, candidate: Candidate) -> Artifact:
        """Where what the candidate compiles is kept, built or not."""
        versions = json.dumps(dict(self.device.versions()), sort_keys=True)
        digest = digest_of(f"{candidate.digest}\n{task.digest}\n{versions}")
        return Artifact(digest, "caches", str(self.store / digest), self.device.arch)

    def _attempt(self, task: Task, candidate: Candidate, artifact: Artifact) -> BuildError | None:
        seconds = self.limits.build_seconds
        program = TaskProgram(task, self.device.torch_device)
        environment = build_environment(artifact)
        limits = runner_limits(self.limits)
        prepare_compilers(self._zygote, candidate.source)
        runner = RunnerHandle(self._zygote, self.device, self._slot, 0, limits, environment)
        try:
            seed = secrets.randbits(48)
            runner.begin_start()
            runner.end_start(seconds)
            runner.load(candidate.source, "ModelNew", seconds)
            runner.construct(seed, program.init_inputs(seed), seconds)
            inputs = program.inputs(seed)
            region = self.device.allocate(input_bytes(inputs))
            try:
                runner.bind_inputs(inputs, region, 1, seconds)
            finally:
                region.close()
            runner.ask({"op": "probe", "seed": seed}, seconds)
        except RunnerFailure as failure:
            if failure.outcome is Outcome.TIMEOUT:
                return BuildError("compile", f"building took longer than {seconds:.0f} s")
            if failure.outcome is Outcome.BUILD_ERROR:
                return BuildError(failure.stage, compiler_message(failure.message))
            # It compiled and then failed otherwise: the evaluator will find out how.
        finally:
            runner.close()
            self.device.trim()
        return None

    def close(self) -> None:
        self._zygote.close()


@contextmanager
def _locked(path: Path, timeout: float = 900.0) -> Iterator[None]:
    """An exclusive lock, so that identical builds happen once. Raises InfraError after `timeout` seconds."""
    with open(path, "w") as file:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InfraError(f"{path}: another builder has held it for {timeout:.0f} s") from None
                time.sleep(0.05)
        yield
