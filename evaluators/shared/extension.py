"""An extension that a candidate wants compiled, as data: the arguments that `torch.utils.cpp_extension` would get."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_TEXTS = ("cflags", "cuda_cflags", "ldflags")
_FILES = ("sources", "headers")
_MACRO = "TORCH_EXTENSION_NAME"
_OTHER_USE = re.compile(rf"(?<!PYBIND11_MODULE\()\b{_MACRO}\b")


@dataclass(frozen=True)
class ExtensionRequest:
    """Source files by name (`load_inline` writes `main.cpp` and `cuda.cu`), files that they include, and flags in
    addition to torch's own. `python`: the extension is imported as a Python module; else it is only loaded, for the
    operators that it registers."""

    name: str
    sources: tuple[tuple[str, str], ...]
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    python: bool = True

    @cached_property
    def module(self) -> str:
        """The value of TORCH_EXTENSION_NAME. It is the extension's name if a program could notice: if a source contains
        the name, or uses the macro for more than the module. Else it is one name for all extensions, since some
        programs make a new name each time."""
        texts = [text for _, text in (*self.sources, *self.headers)]
        return self.name if not self.python or any(map(self._is_seen_in, texts)) else "extension"

    def _is_seen_in(self, text: str) -> bool:
        """Whether a text contains the name as a word, or uses the macro for more than the module."""
        if self.name in text and re.search(rf"\b{re.escape(self.name)}\b", text):
            return True
        return _MACRO in text and _OTHER_USE.search(text) is not None

    def digest(self, toolchain: str) -> str:
        """The key of the compiled extension: equal for requests that look the same to the compilers of `toolchain`.

        It is a whole SHA-256: a candidate chooses the request, and must not find a second one with the same key."""
        flags = [self.cflags, self.cuda_cflags, self.ldflags]
        seen = json.dumps([self.module, self.sources, self.headers, *flags, self.python, toolchain])
        return hashlib.sha256(seen.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The request for a message; `from_json` reads it."""
        return {"name": self.name, "python": self.python} | {key: getattr(self, key) for key in (*_FILES, *_TEXTS)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ExtensionRequest:
        """The request that `to_json` gave. It is not checked: a runner's request goes through
        `evaluators.host.claims.decode_extension` first."""
        sources, headers = (tuple((name, text) for name, text in value[key]) for key in _FILES)
        cflags, cuda_cflags, ldflags = (tuple(value[key]) for key in _TEXTS)
        return cls(value["name"], sources, cflags, cuda_cflags, ldflags, headers, value["python"])
