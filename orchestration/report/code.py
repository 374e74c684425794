"""Programs as a page shows them: with highlighted syntax, and as differences from other programs, line by line.

All text of a program is escaped by Pygments, or here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer, PythonLexer

CONTEXT = 3
"""Unchanged lines that stand round each change."""
_LONGEST = 200_000  # characters that are highlighted; a longer program is plain
_IN_STRING = re.compile(r'^<span class="s[12]">(?:(?!<span).)*</span>$')
_BLANKS = re.compile(r'<span class="w">( *)</span>')


@dataclass(frozen=True)
class DiffLine:
    """One line of a difference. `kind`: `same`, `added`, `removed`, or `gap` for unchanged lines that are left out."""

    kind: str
    old: int | None
    new: int | None
    html: Markup


@dataclass(frozen=True)
class Diff:
    """How a program differs from another one. `added`, `removed`: numbers of lines."""

    lines: tuple[DiffLine, ...]
    added: int
    removed: int

    @property
    def is_empty(self) -> bool:
        """Whether the programs are the same, blanks at the ends of lines aside."""
        return not (self.added or self.removed)


@lru_cache(maxsize=512)
def highlighted(source: str) -> tuple[Markup, ...]:
    """The lines of a Python program as HTML. CUDA and C++ in its strings are highlighted, too."""
    lines = _plain_lines(source)
    if len(source) > _LONGEST:
        return tuple(Markup(escape(line)) for line in lines)
    text = "\n".join(lines)
    made = highlight(text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)).split("\n")
    made = made[: len(lines)] + [""] * (len(lines) - len(made))
    return tuple(_with_embedded(lines, made))


def difference(old: str, new: str) -> Diff:
    """From `old` to `new`, with `CONTEXT` unchanged lines round each change. Blanks at ends of lines do not count."""
    before, after = _plain_lines(old), _plain_lines(new)
    shown_before, shown_after = highlighted(old), highlighted(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    lines: list[DiffLine] = []
    added = removed = end = 0
    for opcodes in matcher.get_grouped_opcodes(CONTEXT):
        if skipped := opcodes[0][1] - end:
            lines.append(_gap(skipped))
        for tag, i1, i2, j1, j2 in opcodes:
            if tag == "equal":
                lines += [DiffLine("same", i + 1, j1 + i - i1 + 1, shown_after[j1 + i - i1]) for i in range(i1, i2)]
                continue
            lines += [DiffLine("removed", i + 1, None, shown_before[i]) for i in range(i1, i2)]
            lines += [DiffLine("added", None, j + 1, shown_after[j]) for j in range(j1, j2)]
            added, removed = added + j2 - j1, removed + i2 - i1
        end = opcodes[-1][2]
    if lines and (skipped := len(before) - end):
        lines.append(_gap(skipped))
    return Diff(tuple(lines), added, removed)


def _gap(count: int) -> DiffLine:
    return DiffLine("gap", None, None, Markup(f"{count} unchanged line{'s' if count > 1 else ''}"))


def _plain_lines(source: str) -> list[str]:
    text = source.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    return [line.rstrip().expandtabs(4) for line in text.split("\n")]


def _with_embedded(lines: Sequence[str], made: Sequence[str]) -> Iterator[Markup]:
    """Lines that are inside a string as a whole, as CUDA: most of a program that brings a kernel is such a string."""
    formatter, lexer = HtmlFormatter(nowrap=True), CudaLexer(stripnl=False)
    for line, html in zip(lines, made, strict=True):
        begins_here = line.lstrip().startswith(('"', "'"))
        if _IN_STRING.match(html) and not begins_here:
            html = highlight(f"{line}\n", lexer, formatter).rstrip("\n")
        yield Markup(_BLANKS.sub(r"\1", html))
