"""One extension that a candidate asks to be compiled, as data: what `torch.utils.cpp_extension` would be given."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

_TEXTS = ("cflags", "cuda_cflags", "ldflags")
_FILES = ("sources", "headers")
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
        """What TORCH_EXTENSION_NAME stands for: the name where a source has it in so many words, else one for all,
        since some programs make a new name each time they run."""
        named = re.compile(rf"\b{re.escape(self.name)}\b")
        return self.name if any(named.search(text) for _, text in (*self.sources, *self.headers)) else "extension"

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
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or len(value["name"]) > 200:
            raise ValueError("an extension needs a name")
        sources, headers = ([_file(one) for one in _items(value, key)] for key in _FILES)
        if not sources:
            raise ValueError("an extension needs a source")
        if len({name for name, _ in (*sources, *headers)}) < len(sources) + len(headers):
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
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a flag of an extension must be text")
    return value


def _file(value: Any) -> tuple[str, str]:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(one, str) for one in value):
        raise ValueError("a file of an extension must be a name and a text")
    if not _FILE_NAME.fullmatch(value[0]):
        raise ValueError(f"{value[0][:100]!r} is no name for a file of an extension")
    return value[0], value[1]
