"""The entries of docs/upgrading.md: what this project patches in libraries, and what of theirs it relies on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "upgrading.md"
_ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
NEEDED, RELIED_ON = "What libraries force us to do", "What we rely on"
"""The sections with entries. A test of the first fails if the library has mended what it shows; one of the second, if
the library has changed it."""


@dataclass(frozen=True)
class Entry:
    """A row of the page. `where`: our files. `remedy`: what to do when its test fails."""

    name: str
    section: str
    where: str
    why: str
    remedy: str

    @property
    def test(self) -> str:
        """The name of its test."""
        return f"test_{self.name.replace('-', '_')}"

    def message(self) -> str:
        """What its test says when it fails."""
        state = "is no longer needed" if self.section == NEEDED else "has changed in the library"
        return f"docs/upgrading.md: {self.name} {state}: {self.remedy} ({self.where})"


@cache
def entries() -> dict[str, Entry]:
    """All entries, by the names of their tests."""
    _, *parts = _SECTION.split(PAGE.read_text(encoding="utf-8"))
    found = [
        Entry(name, title, where, why, remedy)
        for title, text in zip(parts[::2], parts[1::2], strict=True)
        for name, where, why, remedy in _ROW.findall(text)
    ]
    return {entry.test: entry for entry in found}
