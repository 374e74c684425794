"""One extension that a candidate asks to be compiled, as data: what `torch.utils.cpp_extension` would be given."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TEXTS = ("cflags", "cuda_cflags", "ldflags")
_FILES = ("sources", "headers")


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
    def from_json(cls, value: Mapping[str, Any]) -> ExtensionRequest:
        """The request that `to_json` gave. It is not checked: a runner's request goes through
        `evaluators.host.claims.decode_extension` first."""
        sources, headers = (tuple((name, text) for name, text in value[key]) for key in _FILES)
        cflags, cuda_cflags, ldflags = (tuple(value[key]) for key in _TEXTS)
        return cls(value["name"], sources, cflags, cuda_cflags, ldflags, headers, value["python"])
