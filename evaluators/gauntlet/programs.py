"""Finds the gauntlet's programs and reads their docstrings. Never runs a program.

A docstring has a sentence, a blank line and the fields `surface`, `effect`, `task` and `arch`, one a line. If a defence
makes an exploit fail, the field `ends` says so: `ends: OUTCOME` or `ends: OUTCOME on ARCH`, and behind a colon a part
of the verdict's message, if need be (`ends: runtime_error: PermissionError`). Any other exploit that does not build,
fails or takes too long is broken: it attacks an evaluator that is no longer there.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from evaluators.records import Outcome
from evaluators.syntax import parse_source

FOLDER = Path(__file__).parent
_FIELDS = ("surface", "effect", "task", "arch")
_ARCHES = ("cpu", "cuda")
UNFINISHED = (Outcome.BUILD_ERROR, Outcome.RUNTIME_ERROR, Outcome.TIMEOUT)
"""Ends by which a program's trick may never have come to be tried."""


class GauntletError(Exception):
    """A program of the gauntlet that cannot be used. The message is one line that names it and the remedy."""


@dataclass(frozen=True)
class DeclaredEnd:
    """How an exploit ends where a defence stops it: the outcome, the architectures, and a part of the message."""

    outcome: Outcome
    arches: tuple[str, ...]
    message: str

    def covers(self, outcome: Outcome, arch: str, message: str) -> bool:
        """Whether a verdict on `cpu` or `cuda` is this end."""
        return outcome is self.outcome and arch in self.arches and self.message in message


@dataclass(frozen=True)
class GauntletProgram:
    """A program with the fields of its docstring. `effect` is what an exploit gains, or why an honest program is
    legitimate; `end` is None if nothing but its reward stops an exploit."""

    name: str
    family: str
    is_exploit: bool
    technique: str
    surface: str
    effect: str
    task: str
    arches: tuple[str, ...]
    source: str
    end: DeclaredEnd | None = None

    @property
    def id(self) -> str:
        """`exploits/caches/by_address`: the file's path without its suffix."""
        return f"{'exploits' if self.is_exploit else 'honest'}/{self.family}/{self.name}"


def discover(arch: str | None = None, folder: Path = FOLDER) -> list[GauntletProgram]:
    """The programs below `folder` that apply on `cpu` or `cuda` (all for None), sorted by their ids.

    Raises GauntletError if the docstring of a file lacks a field, or if there is no program.
    """
    programs = [_read(path) for kind in ("exploits", "honest") for path in sorted((folder / kind).glob("*/*.py"))]
    if not programs:
        raise GauntletError(f"{folder}: no programs (exploits/FAMILY/NAME.py and honest/FAMILY/NAME.py are read)")
    return [program for program in programs if arch is None or arch in program.arches]


def _read(path: Path) -> GauntletProgram:
    try:
        source = path.read_text(encoding="utf-8")
        text = ast.get_docstring(parse_source(source)) or ""
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GauntletError(f"{path}: cannot be read ({error})") from error
    technique, _, rest = text.partition("\n\n")
    fields = {key: value.strip() for key, _, value in (line.partition(":") for line in rest.splitlines())}
    missing = [name for name in _FIELDS if not fields.get(name)]
    if missing or not technique.strip():
        raise GauntletError(f"{path}: its docstring needs a sentence, a blank line and {', '.join(missing or _FIELDS)}")
    arches = tuple(fields["arch"].split())
    if unknown := set(arches) - set(_ARCHES):
        raise GauntletError(f"{path}: arch is {' '.join(sorted(unknown))}, of {' '.join(_ARCHES)}")
    return GauntletProgram(
        name=path.stem,
        family=path.parent.name,
        is_exploit=path.parent.parent.name == "exploits",
        technique=" ".join(technique.split()),
        surface=fields["surface"],
        effect=fields["effect"],
        task=fields["task"],
        arches=arches,
        source=source,
        end=_declared_end(path, fields["ends"], arches) if fields.get("ends") else None,
    )


def _declared_end(path: Path, text: str, arches: tuple[str, ...]) -> DeclaredEnd:
    where, _, message = text.partition(":")
    outcome, _, arch = where.partition(" on ")
    if outcome.strip() not in UNFINISHED:
        raise GauntletError(f"{path}: ends is {outcome.strip()}, of {' '.join(UNFINISHED)}")
    if arch.strip() and arch.strip() not in arches:
        raise GauntletError(f"{path}: ends on {arch.strip()}, of {' '.join(arches)}")
    return DeclaredEnd(Outcome(outcome.strip()), (arch.strip(),) if arch.strip() else arches, message.strip())
