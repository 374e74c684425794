"""Extensions, compiled once: against the thin headers where that works, else against torch's own.

The compilers run in processes that are contained as candidates are, since sources and flags are a stranger's. What they
make goes into a cache, and so does what they have to say of a program that does not compile.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from configs.schema import LimitsConfig
from evaluators.build.blame import is_own_error
from evaluators.build.cache import BuildCache, Entry
from evaluators.build.compiler import Toolchain
from evaluators.build.extension import ExtensionRequest
from evaluators.build.messages import compiler_message
from evaluators.device import Slot
from evaluators.device.cpu import CpuDevice
from evaluators.failures import InfraError, RunnerFailure, Unbuilt
from evaluators.runner_handle import RunnerHandle, RunnerLimits
from evaluators.zygote_handle import ZygoteHandle

_log = logging.getLogger(__name__)
_ATTEMPTS = 2
_START_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_GLUE = "warpsmith_glue.so"
_LIBRARY = "extension.so"
_TORCH_HEADERS = Path(torch.__file__).parent / "include"
_MOST_BYTES = 256 << 20  # of a library


def answer_of(entry: Entry, request: ExtensionRequest, glue: Entry | None) -> dict[str, Any]:
    """What a runner is told that asked for an extension (`evaluators.build.interception`)."""
    if entry.record["error"]:
        return {"error": entry.record["error"]}
    answer = {"library": str(entry.folder / _LIBRARY), "module": request.module}
    if entry.record["headers"] == "thin" and request.python:
        if glue is None:
            raise Unbuilt(request)
        answer["glue"] = str(glue.folder / _GLUE)
    return answer


class Extensions:
    """Looks up what was built, for a runner whose candidate asks for it: entries by the key of their request."""

    def __init__(self, cache: BuildCache, known: Sequence[tuple[str, str]]) -> None:
        self._cache = cache
        self._known = dict(known)

    def __call__(self, request: ExtensionRequest) -> dict[str, Any]:
        """The answer. Raises Unbuilt where there is none."""
        entry = self._entry(request.digest(""))
        if entry is None:
            raise Unbuilt(request)
        return answer_of(entry, request, self._entry(entry.record.get("glue", "")))

    def _entry(self, key: str) -> Entry | None:
        digest = self._known.get(key, key)
        return self._cache.get(digest) if digest else None


class ExtensionFarm:
    """Compiles extensions for GPUs of one compute capability (empty: for none), one at a time."""

    def __init__(
        self, cache: BuildCache, limits: LimitsConfig, zygote: ZygoteHandle, slot: Slot, capability: str
    ) -> None:
        self.cache = cache
        self.toolchain = Toolchain(capability)
        self._limits = limits
        self._zygote, self._slot = zygote, slot
        self._locks = cache.folder / "locks"
        self._locks.mkdir(exist_ok=True)

    def digest(self, request: ExtensionRequest) -> str:
        """Where the cache has it."""
        return request.digest(self.toolchain.identity)

    @property
    def _glue_digest(self) -> str:
        return ExtensionRequest("warpsmith_glue", ()).digest(self.toolchain.identity)

    def build(self, request: ExtensionRequest) -> Entry:
        """The entry, from the cache or compiled now; its record has an `error` where the program does not compile.

        Raises InfraError where the compilers were killed or had no room, twice.
        """
        digest = self.digest(request)
        known = self.cache.get(digest)
        if known is not None:
            return known
        with locked(self._locks / digest, self._limits.build_seconds + _GRACE_SECONDS):
            return self.cache.get(digest) or self._build(request, digest)

    def glue(self) -> Entry:
        """The module through which Python sees extensions of the thin headers."""
        digest = self._glue_digest
        known = self.cache.get(digest)
        if known is not None:
            return known
        with locked(self._locks / digest, self._limits.build_seconds + _GRACE_SECONDS):
            known = self.cache.get(digest)
            if known is not None:
                return known
            with self._compiled(None, thin=True) as done:
                if "library" not in done:
                    raise InfraError(f"the glue of the thin headers does not compile: {done}")
                record = {"error": "", "headers": "thin", "seconds": done["seconds"]}
                return self.cache.put(digest, record, {_GLUE: done["path"]})

    def _build(self, request: ExtensionRequest, digest: str) -> Entry:
        """Thin headers first. What they cannot compile torch's own may, unless the program alone is to blame; the
        record keeps what was said first, as `refused`."""
        start = time.perf_counter()
        glue, refused = (self._glue_digest if request.python else ""), ""
        for headers in ("thin", "torch"):
            with self._compiled(request, thin=headers == "thin") as done:
                if "library" in done:
                    if headers == "thin" and request.python:
                        self.glue()
                    seconds = time.perf_counter() - start
                    record = {"error": "", "headers": headers, "glue": glue, "seconds": seconds, "refused": refused}
                    return self.cache.put(digest, record, {_LIBRARY: done["path"]})
                if "late" in done or is_own_error(done["complaint"], _TORCH_HEADERS):
                    break
                refused = refused or compiler_message(done["complaint"])
        message = compiler_message(done["complaint"]) if "complaint" in done else done["late"]
        record = {"error": message, "headers": "", "glue": "", "seconds": time.perf_counter() - start}
        return self.cache.put(digest, record, {})

    @contextmanager
    def _compiled(self, request: ExtensionRequest | None, *, thin: bool) -> Iterator[dict[str, Any]]:
        """What the compilers answered, with the library's path, which is gone after the block."""
        lost = ""
        for _ in range(_ATTEMPTS):
            with _folder() as folder:
                done = self._ask(request, folder, thin=thin)
                if "lost" not in done:
                    if "library" in done:
                        done["path"] = _checked(folder, done["library"])
                    yield done
                    return
                lost = done["lost"]
                _log.warning("build farm: %s", lost)
        raise InfraError(f"the compilers were lost {_ATTEMPTS} times: {lost}")

    def _ask(self, request: ExtensionRequest | None, folder: Path, *, thin: bool) -> dict[str, Any]:
        seconds = self._limits.build_seconds
        limits = RunnerLimits(
            memory_bytes=int(self._limits.build_memory_gib * 2**30), file_bytes=_MOST_BYTES, cpu_seconds=1800
        )
        environment = {name: os.environ[name] for name in ("CXX", "CUDA_HOME") if name in os.environ}
        runner = RunnerHandle(
            self._zygote, CpuDevice(), self._slot, 0, limits, environment | {"TMPDIR": str(folder)}, [folder]
        )
        message = {
            "op": "compile",
            "extension": request.to_json() if request else None,
            "folder": str(folder),
            "capability": self.toolchain.capability,
            "thin": thin,
            "seconds": seconds,
        }
        try:
            runner.begin_start()
            runner.end_start(_START_SECONDS)
            return runner.ask(message, seconds + _GRACE_SECONDS)
        except RunnerFailure as failure:
            return {"lost": failure.message}
        finally:
            runner.close()


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for one compilation."""
    folder = Path(tempfile.mkdtemp(prefix="warpsmith-build-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _checked(folder: Path, name: str) -> Path:
    """The library that a contained process claims to have made. Raises InfraError for anything but a plain file."""
    path = folder / Path(name).name
    about = path.lstat()
    if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_BYTES:
        raise InfraError(f"{name} is no library: mode {about.st_mode:o}, {about.st_size} bytes")
    return path


@contextmanager
def locked(path: Path, timeout: float) -> Iterator[None]:
    """An exclusive lock, so that identical builds happen once; after `timeout` seconds they happen twice."""
    with open(path, "w") as file:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
        else:
            _log.warning("build farm: %s has been locked for %.0f s; building beside its holder", path.name, timeout)
        yield
