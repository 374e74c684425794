"""Reads what the analysis of an answer says of the exemplars that its prompt shows, and how much of it was learnt by
heart.

The template names exemplars as `Implementation 2` and their speed-ups as `1.52x` (`templates/contrastive.j2`). Never
judges whether an analysis is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

WORDS = 8
"""Words in a row that an analysis shares with a lesson by more than chance."""

_LABEL = r"#?\d{1,2}(?!\d|\.\d|\s?x\b|\u00d7)"  # and no speed-up, which may stand behind a label
_LABELS = re.compile(rf"\bimplementations?\s+({_LABEL}(?:\s*(?:,|and|or|&)\s*{_LABEL})*)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_SPEEDUP = re.compile(r"(?<![\w.])(\d{1,4})(\.\d{1,3})?\s?(?:x\b|\u00d7|times\b)", re.IGNORECASE)
_WORD = re.compile(r"\w+")


def exemplars_named(analysis: str) -> set[int]:
    """The numbers of the exemplars that an analysis names: `Implementation 2`, `implementations 1 and 2`."""
    return {int(number) for labels in _LABELS.findall(analysis) for number in _NUMBER.findall(labels)}


def speedups_named(analysis: str) -> list[tuple[float, int]]:
    """The speed-ups that an analysis names (`1.5x`, `2 times`), each with its number of decimals."""
    return [(float(whole + decimals), max(len(decimals) - 1, 0)) for whole, decimals in _SPEEDUP.findall(analysis)]


def names_exemplar(analysis: str, shown: int) -> bool:
    """Whether an analysis names one of the `shown` exemplars of its prompt."""
    return any(1 <= number <= shown for number in exemplars_named(analysis))


def names_speedup(analysis: str, speedups: Sequence[float]) -> bool:
    """Whether an analysis names the speed-up of an exemplar of its prompt.

    A number with decimals names a speed-up if it is that speed-up, as the prompt prints it, rounded to its decimals. A
    whole number names one only if the prompt prints it so (2.00x), since `2 times` says little.
    """
    printed = [round(speedup, 2) for speedup in speedups]
    return any(
        abs(number - value) <= (0.5 * 10.0**-decimals if decimals else 0.0) + 1e-9
        for number, decimals in speedups_named(analysis)
        for value in printed
    )


class KnownTexts:
    """The analyses of lessons, to find them again in what a policy writes."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: set[tuple[str, ...]] = set()
        for text in texts:
            words = _words(text)
            self._runs.update(_runs(words, min(WORDS, len(words))))

    def share_of(self, analysis: str) -> float | None:
        """The share of an analysis' words that stand in `WORDS` or more words in a row of a known text (containment by
        shingles, Broder 1997). None if it has no words.

        Case and punctuation do not count. A text of fewer words counts as a whole.
        """
        words = _words(analysis)
        if not words:
            return None
        length = min(WORDS, len(words))
        covered = [False] * len(words)
        for start, run in enumerate(_runs(words, length)):
            if run in self._runs:
                covered[start : start + length] = [True] * length
        return sum(covered) / len(words)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _runs(words: Sequence[str], length: int) -> list[tuple[str, ...]]:
    """Every `length` words in a row."""
    return [tuple(words[start : start + length]) for start in range(len(words) - length + 1)] if length else []
