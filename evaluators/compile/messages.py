"""Shortens compiler output for a model: the first errors with their lines, without paths and command lines."""

from __future__ import annotations

import re

MAX_CHARACTERS = 2000
_MOST_OF_LINE = 400
_PATH = re.compile(r"(?:/[\w.+@-]++)+/(?=[\w.+@-])")
_ERROR = re.compile(r"\b(error|undefined reference|fatal)\b", re.IGNORECASE)
_COMMAND = ("ninja:", "RuntimeError", "FAILED", "c++ ", "g++ ", "nvcc ")
_SUMMARY = re.compile(r"\d+ errors? detected in the compilation|\d+ errors? generated|compilation terminated")
_NVCC = re.compile(r"\(\d+\): (catastrophic |fatal )?error")
_MOST_ERRORS = 8


def compiler_message(text: str) -> str:
    """The lines about errors, each with the source excerpt that follows; at most 2,000 characters.

    Text without a compiler error is returned with shortened paths.
    """
    lines = [_PATH.sub("", line.rstrip()) for line in text.splitlines() if line.strip()]
    kept: list[str] = []
    errors = [
        number
        for number, line in enumerate(lines)
        if _ERROR.search(line) and not line.startswith(_COMMAND) and not _SUMMARY.search(line)
    ]
    for number in errors[:_MOST_ERRORS]:
        kept += [
            line for line in (lines[number], *_excerpt(lines, number)) if line not in kept and len(line) < _MOST_OF_LINE
        ]
    return "\n".join(kept or lines)[:MAX_CHARACTERS]


def _excerpt(lines: list[str], number: int) -> list[str]:
    """The source lines that follow an error: g++ puts a bar before them, nvcc a caret below them."""
    following = lines[number + 1 : number + 3]
    if _NVCC.search(lines[number]):
        return following if following[1:] and following[1].strip(" ~") == "^" else []
    return [line for line in following if re.match(r"\s*+\d*+\s*+\|", line)]
