"""The build farm: compiles each extension once, with the thin headers if that works, else with torch's own.

Sources and flags come from the candidate, so the compilers run in processes that are contained as candidates are.
Libraries go into the build cache, and so do the messages about programs that do not compile.
"""

from __future__ import annotations

import contextlib
import logging
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from configs.schema import LimitsConfig
from evaluators.compile.blame import is_own_error, names_a_line
from evaluators.compile.cache import BuildCache
from evaluators.compile.entries import Entry
from evaluators.compile.locks import locked
from evaluators.compile.messages import compiler_message
from evaluators.failures import InfraError, RunnerFailure, Unbuilt
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.device import Slot
from evaluators.host.folders import own_prefix, remove_folder
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.runner_process import RunnerLimits
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.toolchain import CompileError, Toolchain

_log = logging.getLogger(__name__)
_ATTEMPTS = 2
_START_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_GLUE = "warpsmith_glue.so"
_LIBRARY = "extension.so"
_HARMLESS = ExtensionRequest("harmless", (("main.cpp", "int harmless() { return 0; }\n"),), python=False)
_BOUND = re.compile(r"\bdef\(\s*\"(\w+)\"")
_SECOND_MODULE = re.compile(r"'const warpsmith::Function\* warpsmith_module_(\w++)\([^']*?\)'")
_FILLING = re.compile(r"^.*?'void warpsmith_fill_\w+\(.*+(?:\n\s*+\d*+\s*+\|.*+)*+\n?", re.MULTILINE)
_TORCH_HEADERS = Path(torch.__file__).parent / "include"
_MOST_BYTES = 256 << 20  # of a library


def answer_of(entry: Entry, request: ExtensionRequest, glue: Entry | None) -> dict[str, Any]:
    """The answer to a runner that asked for an extension (`evaluators.runner.interception`)."""
    if entry.record["error"]:
        return {"error": entry.record["error"]}
    answer = {"library": str(entry.folder / _LIBRARY), "module": request.module}
    if entry.record["glue"]:
        if glue is None:
            raise Unbuilt(request)
        answer["glue"] = str(glue.folder / _GLUE)
    return answer


class Extensions:
    """Answers a runner whose candidate asks for extensions, with the entries that a builder has put into the cache.
    `digests` gives the digests of entries by the keys of their requests."""

    def __init__(self, cache: BuildCache, digests: Sequence[tuple[str, str]]) -> None:
        self._cache = cache
        self._digests = dict(digests)

    def __call__(self, request: ExtensionRequest) -> dict[str, Any]:
        """The answer. Raises Unbuilt if the extension was not built."""
        entry = self._entry(request.digest(""))
        if entry is None:
            raise Unbuilt(request)
        return answer_of(entry, request, self._entry(entry.record.get("glue", "")))

    def _entry(self, key: str) -> Entry | None:
        digest = self._digests.get(key, key)
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
        self._glue_compiles: bool | None = None
        self._locks = cache.folder / "locks"
        self._locks.mkdir(exist_ok=True)

    def digest(self, request: ExtensionRequest) -> str:
        """The digest of the request's entry in the cache."""
        return request.digest(self.toolchain.identity)

    @property
    def _glue_digest(self) -> str:
        return ExtensionRequest("warpsmith_glue", ()).digest(self.toolchain.identity)

    def build(self, request: ExtensionRequest) -> Entry:
        """The entry, from the cache or compiled now. Its record has an `error` if the program does not compile. The
        next build of an entry that is not `kept` may give another result.

        Raises InfraError if there are no compilers, or if they were killed or had no room twice.
        """
        digest = self.digest(request)
        cached = self.cache.get(digest)
        if cached is not None:
            return cached
        with locked(self._locks / digest, self._limits.build_seconds + _GRACE_SECONDS):
            return self.cache.get(digest) or self._build(request, digest)

    def glue(self) -> Entry:
        """The module through which Python sees extensions of the thin headers. Raises CompileError, InfraError."""
        digest = self._glue_digest
        cached = self.cache.get(digest)
        if cached is not None:
            return cached
        with locked(self._locks / digest, self._limits.build_seconds + _GRACE_SECONDS):
            cached = self.cache.get(digest)
            if cached is not None:
                return cached
            with self._compiled(None, thin=True) as done:
                if "library" not in done:
                    raise CompileError(done.get("complaint") or done["late"])
                record = {"error": "", "headers": "thin", "seconds": done["seconds"]}
                return self.cache.put(digest, record, {_GLUE: done["path"]})

    def _build(self, request: ExtensionRequest, digest: str) -> Entry:
        """Compiles with the thin headers, then, unless the program alone is to blame for the error, with torch's own.
        The record keeps the thin headers' message as `refused`."""
        start = time.perf_counter()
        refused = ""
        for headers in ("thin", "torch") if self._is_for_thin(request) else ("torch",):
            with self._compiled(request, thin=headers == "thin") as done:
                if "library" in done:
                    glue = self.glue().folder.name if headers == "thin" and request.python else ""
                    seconds = time.perf_counter() - start
                    record = {"error": "", "headers": headers, "glue": glue, "seconds": seconds, "refused": refused}
                    return self.cache.put(digest, record, {_LIBRARY: done["path"]})
                if "late" in done:
                    break
                if is_own_error(done["complaint"], _TORCH_HEADERS, lambda: self.toolchain.torch_words):
                    done["complaint"] = _as_torch_says(done["complaint"])
                    break
                refused = refused or compiler_message(done["complaint"])
        complaint = done.get("complaint", "")
        message = compiler_message(complaint) if complaint else done["late"]
        record = {"error": message, "headers": "", "glue": "", "seconds": time.perf_counter() - start}
        # A message that names no line may be about this machine now: a limit was reached, or time ran out.
        return self.cache.put(digest, record, {}) if names_a_line(complaint) else Entry(Path(), record, kept=False)

    def _is_for_thin(self, request: ExtensionRequest) -> bool:
        """Whether the thin headers may be enough."""
        if not request.python:
            return True
        return not _has_overloads(request) and self._has_glue()

    def _has_glue(self) -> bool:
        """Whether the glue compiles with this torch. Without it, torch's headers compile every module."""
        if self._glue_compiles is None:
            try:
                self.glue()
                self._glue_compiles = True
            except CompileError as error:
                _log.warning("build farm: no thin headers for this torch: %s", compiler_message(str(error)))
                self._glue_compiles = False
        return self._glue_compiles

    @contextmanager
    def _compiled(self, request: ExtensionRequest | None, *, thin: bool) -> Iterator[dict[str, Any]]:
        """The compilers' answer, with the library's path, which is gone after the block. Raises InfraError."""
        lost = ""
        for _ in range(_ATTEMPTS):
            with _folder() as folder:
                done = self._ask(request, folder, thin=thin)
                if "absent" in done:
                    raise InfraError(done["absent"])
                if "library" in done and (path := _library(folder, done["library"])):
                    done["path"] = path
                elif "library" in done:
                    done = {"complaint": f"{done['library']} is no library"}
                if "lost" not in done:
                    yield done
                    return
                lost = done["lost"]
                _log.warning("build farm: %s", lost)
        if request is None or not self._can_compile():
            raise InfraError(f"the compilers were lost {_ATTEMPTS} times: {lost}")
        yield {"complaint": lost}  # the program itself may have ended its compiler

    def _can_compile(self) -> bool:
        """Whether a program without errors compiles now."""
        with _folder() as folder:
            return "library" in self._ask(_HARMLESS, folder, thin=True)

    def _ask(self, request: ExtensionRequest | None, folder: Path, *, thin: bool) -> dict[str, Any]:
        seconds = self._limits.build_seconds
        limits = RunnerLimits(
            memory_bytes=int(self._limits.build_memory_gib * 2**30), file_bytes=_MOST_BYTES, cpu_seconds=1800
        )
        environment = self.toolchain.environment | {"TMPDIR": str(folder)}
        # Side 1 runs as another user than the program that asks (side 0), which could otherwise use up all processes.
        runner = RunnerHandle(self._zygote, CpuDevice(), self._slot, 1, limits, environment, [folder])
        message = {
            "extension": request.to_json() if request else None,
            "folder": str(folder),
            "capability": self.toolchain.capability,
            "thin": thin,
            "seconds": seconds,
        }
        try:
            runner.begin_start()
            runner.end_start(_START_SECONDS)
            return runner.compile(message, seconds + _GRACE_SECONDS)
        except RunnerFailure as failure:
            return {"lost": failure.message}
        finally:
            runner.end()


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for one compilation, which is removed after the block."""
    folder = Path(tempfile.mkdtemp(prefix=own_prefix("build")))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        remove_folder(folder)


def _library(folder: Path, name: str) -> Path | None:
    """The path of the library that a contained process claims to have made, if it is a plain file that is neither empty
    nor too large; else None."""
    path = folder / Path(name).name
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and 0 < status.st_size <= _MOST_BYTES:
            return path
    return None


def _has_overloads(request: ExtensionRequest) -> bool:
    """Whether a module gives one name to several functions, which the thin headers cannot do. Definitions outside of
    all modules count for each, since each may call them."""
    parts = [text.split("PYBIND11_MODULE") for _, text in request.sources]
    outside = [name for before, *_ in parts for name in _BOUND.findall(before)]
    modules = [_BOUND.findall(module) for _, *inside in parts for module in inside]
    shared = set(outside) if modules else set()
    return any(len(set(names)) < len(names) for names in [outside, *modules]) or any(map(shared.intersection, modules))


def _as_torch_says(complaint: str) -> str:
    """The thin headers' message about a second module, with the names that torch's own headers use."""
    return _FILLING.sub("", _SECOND_MODULE.sub(r"'PyObject* PyInit_\1()'", complaint)) or complaint
