"""One extension that a candidate asks to be compiled, as data: what `torch.utils.cpp_extension` would be given."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from evaluators.records import digest_of


@dataclass(frozen=True)
class ExtensionRequest:
    """Source files by name (`load_inline` writes `main.cpp` and `cuda.cu`) and flags beside torch's own."""

    name: str
    sources: tuple[tuple[str, str], ...]
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """What TORCH_EXTENSION_NAME stands for: the name where a source has it in so many words, else one for all,
        since some programs make a new name each time they run."""
        named = re.compile(rf"\b{re.escape(self.name)}\b")
        return self.name if any(named.search(text) for _, text in self.sources) else "extension"

    def digest(self, toolchain: str) -> str:
        """Names what comes of it: equal for requests that differ in nothing that a compiler of `toolchain` sees."""
        seen = [self.module, self.sources, self.cflags, self.cuda_cflags, self.ldflags, toolchain]
        return digest_of(json.dumps(seen))
