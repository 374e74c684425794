"""Compiler output as a model can use it: the first errors with their lines, without paths and command lines."""

from __future__ import annotations

import re

MAX_CHARACTERS = 2000
_PATH = re.compile(r"(?:/[\w.+@-]+)+/(?=[\w.+-]+)")
_ERROR = re.compile(r"\b(error|undefined reference|fatal)\b", re.IGNORECASE)


def compiler_message(text: str) -> str:
    """The lines about errors (each with the source excerpt that follows), at most 2,000 characters.

    Text without a compiler error comes back with its paths shortened.
    """
    lines = [_PATH.sub("", line.rstrip()) for line in text.splitlines() if line.strip()]
    wanted = [
        number
        for number, line in enumerate(lines)
        if _ERROR.search(line) and not line.startswith(("ninja:", "RuntimeError", "FAILED", "c++ ", "g++ "))
    ]
    kept: list[str] = []
    for number in wanted[:8]:
        excerpt = [lines[number], *(line for line in lines[number + 1 : number + 3] if re.match(r"\s*\d*\s*\|", line))]
        kept += [line for line in excerpt if line not in kept and len(line) < 400]
    return "\n".join(kept or lines)[:MAX_CHARACTERS]
