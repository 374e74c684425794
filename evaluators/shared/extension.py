"""One extension that a candidate asks to be compiled, as data: what `torch.utils.cpp_extension` would be given."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_TEXTS = ("cflags", "cuda_cflags", "ldflags")
_FILES = ("sources", "headers")
_NAME = re.compile(r"\w{1,200}")
_MOST_OF_FLAG = 10_000
_FILE_NAME = re.compile(r"(?!\.)[\w.+-]{1,100}(/(?!\.)[\w.+-]{1,100}){0,8}")


@dataclass(frozen=True)
class ExtensionRequest:
    """Source files by name (`load_inline` writes `main.cpp` and `cuda.cu`), files that they include, and flags beside
    torch's own. `python`: it is imported as a module, not only loaded for what it registers."""

    name: str
    sources: tuple[tuple[str, str], ...]
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    python: bool = True

    @property
    def module(self) -> str:
        """What TORCH_EXTENSION_NAME stands for: the name where anybody can see it (a source has it in so many words, or
        uses the macro for more than the module), else one for all, since some programs make a new name each time."""
        seen = re.compile(rf"\b{re.escape(self.name)}\b|(?<!PYBIND11_MODULE\()\bTORCH_EXTENSION_NAME\b")
        texts = [text for _, text in (*self.sources, *self.headers)]
        return self.name if not self.python or any(map(seen.search, texts)) else "extension"

    def digest(self, toolchain: str) -> str:
        """Names what comes of it: equal for requests that differ in nothing that a compiler of `toolchain` sees.

        All of SHA-256, since its inputs are a stranger's, who must find no second request of the same name."""
        flags = [self.cflags, self.cuda_cflags, self.ldflags]
        seen = json.dumps([self.module, self.sources, self.headers, *flags, self.python, toolchain])
        return hashlib.sha256(seen.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """For a message; `from_json` reads it."""
        return {"name": self.name, "python": self.python} | {key: getattr(self, key) for key in (*_FILES, *_TEXTS)}

    @classmethod
    def from_json(cls, value: Any) -> ExtensionRequest:
        """What a stranger sent as a request. Raises ValueError where it is none."""
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not _NAME.fullmatch(value["name"]):
            raise ValueError("an extension needs a name")
        sources, headers = ([_file(one) for one in _items(value, key)] for key in _FILES)
        if not sources:
            raise ValueError("an extension needs a source")
        names = sorted(name for name, _ in (*sources, *headers))
        if any(other == name or other.startswith(f"{name}/") for name, other in pairwise(names)):
            raise ValueError("two files of an extension have the same name")
        cflags, cuda_cflags, ldflags = (tuple(map(_text, _items(value, key))) for key in _TEXTS)
        python = bool(value.get("python", True))
        return cls(value["name"], tuple(sources), cflags, cuda_cflags, ldflags, tuple(headers), python)


def _items(value: dict[str, Any], key: str) -> list[Any]:
    items = value.get(key, [])
    if not isinstance(items, list | tuple) or len(items) > 200:
        raise ValueError(f"{key} of an extension must be a list")
    return list(items)


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value or len(value) > _MOST_OF_FLAG or not _is_utf8(value):
        raise ValueError("a flag of an extension must be text")
    return value


def _is_utf8(text: str) -> bool:
    """Whether there is no half of a surrogate pair in it, which no file or argument takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _file(value: Any) -> tuple[str, str]:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(one, str) for one in value):
        raise ValueError("a file of an extension must be a name and a text")
    if not _FILE_NAME.fullmatch(value[0]):
        raise ValueError(f"{value[0][:100]!r} is no name for a file of an extension")
    if "\0" in value[1] or not _is_utf8(value[1]):
        raise ValueError(f"file {value[0]} of an extension holds what no source does")
    return value[0], value[1]
