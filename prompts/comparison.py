"""Writes the analysis of a lesson under a contrastive prompt: it compares the exemplars that the prompt shows.

It names exemplars and speed-ups as the template prints them (`templates/contrastive.j2`), with the reasons of whoever
wrote the programs, in wording drawn at random, so that no text is worth learning by heart. It never claims a number
that the prompt does not show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prompts.analysis import exemplars_named, speedups_named

TIE = 1.03
"""Exemplars whose speed-ups differ by less than this factor are called equally fast."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_BULLET = re.compile(r"^\s*(?:[-*]|\d{1,2}[.)])\s+")

_ALONE = (
    "{name} is all that there is to compare with, at {speed}.",
    "The only earlier program is {low_name}, at {speed}.",
    "{name} runs at {speed}; there is no other to set beside it.",
    "So far there is {low_name} alone, and it was measured at {speed}.",
)
_ONLY_REFERENCE = (
    "{name} is the reference itself, at {speed}: nothing faster is known yet.",
    "Only the reference is shown, as {low_name} at {speed}.",
    "{name} at {speed} is no more than the reference code.",
    "There is no faster program yet; {low_name} is the reference, at {speed}.",
)
_FASTEST = (
    "{name} is the fastest, at {speed}.",
    "At {speed}, {low_name} is the fastest of them.",
    "The best so far is {low_name} with {speed}.",
    "{name} leads with {speed}.",
    "Of what is shown, {low_name} is ahead: {speed}.",
    "{speed} makes {low_name} the one to beat.",
    "The measurements put {low_name} first, at {speed}.",
    "{name} takes the least time ({speed}).",
)
_TIED = (
    "{name} and {other} are about equally fast, at {speed} and {other_speed}.",
    "There is hardly a difference between {low_name} ({speed}) and {other} ({other_speed}).",
    "{name} at {speed} and {other} at {other_speed} come out nearly the same.",
    "Neither {low_name} ({speed}) nor {other} ({other_speed}) is clearly ahead.",
)
_IDEA = (
    "Its idea: {idea}",
    "The reason: {idea}",
    "This is why: {idea}",
    "What it does: {idea}",
    "How it gets there: {idea}",
    "That comes from its design: {idea}",
    "What makes the difference: {idea}",
)
_IDEA_OF = (
    "The idea of {low_name}: {idea}",
    "What {low_name} does: {idea}",
    "The design of {low_name}: {idea}",
    "{name} works like this: {idea}",
)
_BEHIND = (
    "{name} reaches {speed}.",
    "{name} stays at {speed}.",
    "Behind it, {low_name} has {speed}.",
    "{name} gains less, {speed}.",
    "With {speed}, {low_name} falls short of that.",
    "{name} is held back at {speed}.",
)
_SLOWER_THAN_REFERENCE = (
    "{name} loses against the reference, at {speed}.",
    "At {speed}, {low_name} is even slower than the reference.",
    "{name} costs more than it saves: {speed}.",
    "{speed} means that {low_name} takes longer than the reference.",
)
_REFERENCE = (
    "{name} is the reference itself, so {speed}.",
    "{name} changes nothing: it is the reference at {speed}.",
    "The reference stands there as {low_name}, at {speed}.",
    "{name} ({speed}) is just the reference code.",
)
_BOTTLENECK_FIRST = (
    "{why}",
    "The cost lies in the reference: {why}",
    "The time goes here: {why}",
    "To begin with the reference: {why}",
    "The work that can be saved: {why}",
)
_BOTTLENECK_LAST = (
    "{why}",
    "What there is to win: {why}",
    "The work that can be saved: {why}",
    "Behind all of this: {why}",
    "The cost that all of this is about: {why}",
    "So much for them; about the reference: {why}",
)


@dataclass(frozen=True)
class Shown:
    """An exemplar of a prompt. `idea`: what its author says that it does, empty if that is not known."""

    speedup: float
    idea: str = ""
    is_reference: bool = False


def compare(shown: Sequence[Shown], bottleneck: str, prompt: str, rng: np.random.Generator) -> str:
    """The analysis of a program that is faster than the exemplars of its prompt.

    `shown`: the exemplars in the prompt's order. `bottleneck`: what the program's author says that holds the reference
    back. Sentences of authors are left out if they have a number that `prompt` does not show, or if they name exemplars
    or speed-ups. Raises ValueError without exemplars.
    """
    if not shown:
        raise ValueError("a comparison needs exemplars, got none")
    why = " ".join(_sentences(bottleneck, prompt))
    parts = list(_of_exemplars([(index, _cleared(each, prompt)) for index, each in enumerate(shown, start=1)], rng))
    if why:
        if rng.integers(2):
            parts.append(_say(_BOTTLENECK_LAST, rng, why=why))
        else:
            parts.insert(0, _say(_BOTTLENECK_FIRST, rng, why=why))
    return " ".join(parts)


def _of_exemplars(numbered: Sequence[tuple[int, Shown]], rng: np.random.Generator) -> list[str]:
    """Sentences on each exemplar, from fast to slow."""
    ranked = sorted(numbered, key=lambda pair: -pair[1].speedup)
    (first, best), others = ranked[0], ranked[1:]
    if not others:
        said = [_say(_ONLY_REFERENCE if best.is_reference else _ALONE, rng, **_names(first, best))]
        return said + _reason(_IDEA, first, best, rng)
    second, near = others[0]
    is_tie = _rounded(best.speedup) < TIE * _rounded(near.speedup)
    if is_tie:
        pair = {"other": f"implementation {second}", "other_speed": _printed(near.speedup)}
        said = [_say(_TIED, rng, **_names(first, best), **pair)]
        said += _reason(_IDEA_OF, first, best, rng)
        if near.idea != best.idea:
            said += _reason(_IDEA_OF, second, near, rng)
        others = others[1:]
    else:
        said = [_say(_FASTEST, rng, **_names(first, best)), *_reason(_IDEA, first, best, rng)]
    for number, other in others:
        is_slower = _rounded(other.speedup) < 1.0
        phrases: Sequence[str] = _REFERENCE if other.is_reference else _SLOWER_THAN_REFERENCE if is_slower else _BEHIND
        said += [_say(phrases, rng, **_names(number, other)), *_reason(_IDEA, number, other, rng)]
    return said


def _reason(phrases: Sequence[str], number: int, shown: Shown, rng: np.random.Generator) -> list[str]:
    return [_say(phrases, rng, idea=shown.idea, **_names(number, shown))] if shown.idea else []


def _names(number: int, shown: Shown) -> dict[str, str]:
    name = f"mplementation {number}"
    return {"name": f"I{name}", "low_name": f"i{name}", "speed": _printed(shown.speedup)}


def _say(phrases: Sequence[str], rng: np.random.Generator, **values: str) -> str:
    return phrases[int(rng.integers(len(phrases)))].format(**values)


def _cleared(shown: Shown, prompt: str) -> Shown:
    """The exemplar with the first sentence of its idea that may stand in an analysis."""
    sentences = [] if shown.is_reference else _sentences(shown.idea, prompt)
    return Shown(shown.speedup, sentences[0] if sentences else "", shown.is_reference)


def _sentences(text: str, prompt: str) -> list[str]:
    """The sentences of an author that claim no number of their own, no speed-up and no exemplar, each with its full
    stop."""
    allowed = set(_NUMBER.findall(prompt))
    lines = [_BULLET.sub("", line) for line in text.splitlines()]
    pieces = [piece.strip() for line in lines for piece in _SENTENCE_END.split(line)]
    kept = [piece for piece in pieces if piece and allowed.issuperset(_NUMBER.findall(piece))]
    plain = [piece for piece in kept if not exemplars_named(piece) and not speedups_named(piece)]
    return [piece if piece[-1] in ".!?" else f"{piece}." for piece in plain]


def _printed(speedup: float) -> str:
    return f"{speedup:.2f}x"


def _rounded(speedup: float) -> float:
    """The speed-up as the prompt prints it."""
    return float(f"{speedup:.2f}")
