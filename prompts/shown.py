"""Reads back what a prompt shows: the reference, and the exemplars with their printed speed-ups.

The inverse of `templates/*.j2`. A prompt of other wording, or one without text, shows nothing that is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = r"(?P<fence>`{3,})python\n(?P<code>.*?)\n(?P=fence)(?!`)"
_REFERENCE = re.compile(rf"^Reference code:\n{_FENCE}", re.MULTILINE | re.DOTALL)
_EXEMPLAR = re.compile(
    r"^Implementation (?P<number>\d+)(?:, (?P<speedup>[\d.]+)x)?:\n"
    rf"(?:(?P<itself>The reference code itself\.)|{_FENCE})",
    re.MULTILINE | re.DOTALL,
)
_FAILING = re.compile(rf"^The program:\n{_FENCE}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class ShownExemplar:
    """An exemplar as a prompt shows it. `speedup`: as printed, None without one."""

    source: str
    speedup: float | None
    is_reference: bool


@dataclass(frozen=True)
class ShownPrompt:
    """What a prompt shows. `reference`: None if it is not found. `failing`: the program of a repair prompt."""

    reference: str | None
    exemplars: tuple[ShownExemplar, ...]
    failing: str | None = None


def read_prompt(text: str) -> ShownPrompt:
    """Never raises. A program in the prompt cannot be taken for the prompt's own words: it stands under a fence longer
    than any in it, and behind words that say what the prompt shows; the search goes on behind it."""
    found = _REFERENCE.search(text)
    if found is None:
        return ShownPrompt(None, ())
    reference, rest = found["code"], text[found.end() :]
    exemplars: list[ShownExemplar] = []
    place, failing = rest.find("\nPrevious implementations:\n"), _FAILING.search(rest)
    if failing and (place < 0 or failing.start() < place):
        return ShownPrompt(reference, (), failing["code"])
    while place >= 0 and (shown := _EXEMPLAR.search(rest, place)):
        if int(shown["number"]) != len(exemplars) + 1:
            break
        is_reference = shown["itself"] is not None
        speedup = float(shown["speedup"]) if shown["speedup"] else None
        exemplars.append(ShownExemplar(reference if is_reference else shown["code"], speedup, is_reference))
        place = shown.end()
    return ShownPrompt(reference, tuple(exemplars))
