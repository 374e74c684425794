"""The keys of a run's phases and assessments: their order and how they are shown."""

from __future__ import annotations

from configs.schema import PHASES

ASSESSMENT = "assess/"
"""Prefix of an assessment's phase key: `assess/base`, `assess/1-sft`. Training phases have none: `1-sft`, ..."""

_UNKNOWN = 1_000_000
"""Sorts unknown keys after every cycle."""


def split_key(key: str) -> tuple[int, str]:
    """Cycle and name of a training phase: `(1, "sft")`. Of another key, the cycle is 0 and the name empty."""
    number, dash, phase = key.partition("-")
    return (int(number), phase) if dash and number.isdecimal() else (0, "")


def phase_order(key: str) -> tuple[int, int, str]:
    """Sorts keys: `base`, then by cycle and phase, then all others by name."""
    cycle, phase = split_key(key)
    if key == "base":
        return 0, 0, key
    if cycle and phase in PHASES:
        return cycle, PHASES.index(phase), key
    return _UNKNOWN, 0, key


def run_order(key: str) -> tuple[int, int, str, bool]:
    """Sorts phases and assessments as a run makes them: each assessment follows its phase."""
    return (*phase_order(key.removeprefix(ASSESSMENT)), key.startswith(ASSESSMENT))


def is_training(key: str) -> bool:
    """Whether a key is that of a training phase."""
    return phase_order(key)[0] < _UNKNOWN and key != "base"


def label_of(key: str, is_numbered: bool) -> str:
    """`1-sft` becomes `sft`, or `sft (1)` in a run of several cycles."""
    cycle, phase = split_key(key)
    if not cycle:
        return key
    return f"{phase} ({cycle})" if is_numbered else phase
