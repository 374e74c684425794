"""Makes torch's `load` and `load_inline` ask the judge for an extension instead of compiling it, and import the library
that the judge names.

Runs in the candidate's process (untrusted). It must never compile anything. These requests alone tell which extensions
a candidate needs, so it may build several of them, on import, in its constructor or in `forward`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_MOST_HEADERS = 100
_COMPILERS = re.compile(r"(.*[/-])?(nvcc|g\+\+|gcc|c\+\+|cc|clang|clang\+\+|ninja|cmake|make)(-\d+)?")
_OWN_COMPILING = ("torch/_inductor/", "triton/", "ctypes/util.py")
_REFUSED = "extensions are built by torch.utils.cpp_extension.load and load_inline alone: {} is refused here"


class Interception:
    """Serves this process's extensions through `ask`, which sends a request to the judge and returns its answer."""

    def __init__(self, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._installed = False
        self._loaded: dict[str, types.ModuleType] = {}

    def install(self) -> None:
        """Intercepts all requests of this process from now on."""
        if self._installed:
            return
        self._installed = True
        # Some programs name this folder as the one to build in, and rely on its existence.
        (Path.home() / ".cache/torch_extensions").mkdir(parents=True, exist_ok=True)
        replaced: Any = cpp_extension
        replaced._jit_compile = self._jit_compile
        replaced._check_and_build_extension_h_precompiler_headers = lambda *_, **__: None
        replaced._run_ninja_build = _refuse("ninja")
        sys.addaudithook(_refuse_compilers)

    def _jit_compile(
        self,
        name: str,
        sources: Sequence[str],
        extra_cflags: Sequence[str] | None,
        extra_cuda_cflags: Sequence[str] | None,
        extra_sycl_cflags: Sequence[str] | None,
        extra_ldflags: Sequence[str] | None,
        extra_include_paths: Sequence[str] | str | None,
        build_directory: str,
        verbose: bool,
        with_cuda: bool | None,
        with_sycl: bool | None,
        is_python_module: bool,
        is_standalone: bool,
        keep_intermediates: bool = True,
    ) -> Any:
        """Stands in for torch's function of the same name (torch/utils/cpp_extension.py)."""
        if is_standalone or with_sycl:
            raise RuntimeError(_REFUSED.format("a standalone program" if is_standalone else "SYCL"))
        folders = [extra_include_paths] if isinstance(extra_include_paths, str) else list(extra_include_paths or ())
        paths = [Path(source) for source in sources]
        others = [f"-I{folder}" for folder in folders if not _is_own(Path(folder))]
        request = {
            "name": str(name),
            "sources": [[path.name, _read(path)] for path in paths],
            "headers": _headers(paths, [Path(folder) for folder in folders]),
            "cflags": [*_words(extra_cflags), *others],
            "cuda_cflags": [*_words(extra_cuda_cflags), *others],
            "ldflags": _words(extra_ldflags),
            "python": bool(is_python_module),
        }
        with self._lock:
            answer = self._ask({"extension": request})
            return self._load(answer, name, is_python_module)

    def _load(self, answer: dict[str, Any], name: str, python: bool) -> Any:
        if "error" in answer:
            raise RuntimeError(f"Error building extension '{name}':\n{answer['error']}")
        if "library" not in answer:  # in the build farm, where no extension is run
            return _NotLoaded(name)
        library, module = answer["library"], answer["module"]
        if not python:
            torch.ops.load_library(library)
            return None
        if library not in self._loaded:
            self._loaded[library] = (
                _imported("warpsmith_glue", answer["glue"]).load(library, module)
                if answer.get("glue")
                else _imported(module, library)
            )
        return self._loaded[library]


class _NotLoaded(types.ModuleType):
    """Stands in for an extension in a process that lacks the extension's device."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{self.__name__}.{name}: extensions are not run while a candidate is built")

        return call


def _imported(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _words(flags: Sequence[str] | None) -> list[str]:
    """Splits flags into words, as torch does: it gives them to the compiler through a shell."""
    return [word for flag in flags or () for word in shlex.split(str(flag))]


def _is_own(folder: Path) -> bool:
    """Whether a folder is the candidate's own: no compiler elsewhere can see it."""
    return folder.resolve().is_relative_to(Path.cwd().resolve())


def _headers(sources: Sequence[Path], folders: Sequence[Path]) -> list[list[str]]:
    """Names and texts of the candidate's own files that its sources include. By these names the sources find the files
    again in another folder."""
    headers: dict[str, str] = {}
    waiting = [(path, path.parent) for path in sources]
    while waiting and len(headers) < _MOST_HEADERS:
        path, base = waiting.pop()
        for name in _INCLUDE.findall(_read(path)):
            places = [path.parent / name, *(folder / name for folder in folders)]
            inside = next((place for place in places if place.is_file() and _is_own(place)), None)
            if inside is None:
                continue
            relative = os.path.normpath(os.path.relpath(inside, base) if path.parent / name == inside else name)
            if relative not in headers and not relative.startswith(".."):
                headers[relative] = _read(inside)
                waiting.append((inside, base if path.parent / name == inside else inside.parent))
    return [[name, text] for name, text in sorted(headers.items())]


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(_REFUSED.format(what))

    return refuse


def _refuse_compilers(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook that refuses a compiler if the candidate itself starts it, but not if torch.compile or Triton does.
    It gives an explanation and is no barrier: a program that gets around it compiles where it is measured."""
    if event not in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
        return
    first = arguments[0]
    if event == "os.system":
        first = os.fsdecode(first).split()[0] if first.strip() else ""
    elif event == "subprocess.Popen" and first is None and arguments[1]:
        first = arguments[1][0]
    if not _COMPILERS.fullmatch(os.path.basename(os.fsdecode(first))):
        return
    frame = sys._getframe()
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in _OWN_COMPILING):
            return
        frame = frame.f_back  # type: ignore[assignment]
    raise RuntimeError(_REFUSED.format(os.path.basename(os.fsdecode(first))))
