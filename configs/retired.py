"""Keys that earlier versions had: what stands for them today, and what a stored configuration loses without them.

A user's own YAML or command line with such a key is refused, with the remedy. The configuration of an existing run is
translated, so that old runs stay readable. Never guesses: a setting that today's keys cannot express becomes a `Loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DRAW, _REFILL = "contrastive_rl.draw", "contrastive_rl.refill"
_LOSS_MEAN, _SCALE = "contrastive_rl.loss_mean", "contrastive_rl.scale_advantages"
_WORTH = "reward.worth"
_NORMALISER = "contrastive_rl.normaliser"
_KEEP = "keep_checkpoints"

_WORTHS: Mapping[str, Mapping[str, Any]] = {
    "speedup": {
        "reward.offset": 0.0,
        "reward.copies": 1.0,
        "reward.beat_exemplars": False,
        "contrastive_rl.hide_best": False,
    },
    "gain": {
        "reward.offset": 0.9,
        "reward.copies": 0.2,
        "reward.beat_exemplars": False,
        "contrastive_rl.hide_best": False,
    },
    "beat_shown": {
        "reward.offset": 1.0,
        "reward.copies": 1.0,
        "reward.beat_exemplars": True,
        "contrastive_rl.hide_best": True,
    },
}
"""The keys that a value of `reward.worth` stands for. Those of `speedup` were their defaults."""

_CONSTANTS: Mapping[str, Any] = {
    "buffer.islands": 4,
    "buffer.migration_interval": 10,
    "contrastive_rl.smoothing_decay": 0.9,
    "evaluator.limits.call_factor": 1000.0,
    "evaluator.limits.processes": 64,
    "evaluator.max_backlog": 1024,
    "guard.jump_over_best": 2.0,
    "guard.near": 0.5,
    "learner.adam_beta2": 0.95,
    "learner.lora.dropout": 0.0,
    "reward.per_task_smoothing": True,
    "rollout.top_p": 1.0,
    "sft.beat_exemplars": True,
    "sft.final_learning_rate": 0.1,
}
"""Keys whose value stands in the code now."""

_USE: Mapping[str, str] = {
    "reward.offset": "reward.worth=gain",
    "reward.copies": "reward.worth=gain",
    "reward.beat_exemplars": "reward.worth=beat_shown",
    "contrastive_rl.hide_best": "reward.worth=beat_shown",
    _KEEP: "keep_last, which does not count the committed checkpoint (one less), and keep_best",
    _REFILL: "contrastive_rl.draw=replace",
    _SCALE: "contrastive_rl.loss_mean=constant",
}
"""What to write today instead of a key."""


@dataclass(frozen=True)
class Loss:
    """A setting of a stored configuration that this version does not have. `now`: what holds today instead."""

    key: str
    value: Any
    now: str

    def __str__(self) -> str:
        return f"{self.key} was {_yaml(self.value)}, which this version does not have; now {self.now}"


def remedies(settings: dict[str, Any]) -> list[str]:
    """What to tell a user whose nested `settings` have retired keys, key by key."""
    replaced = [f"{key} is gone, use {today}" for key, today in _USE.items() if _has(settings, key)]
    fixed = [
        f"{key} is gone, leave it out (it is always {_yaml(value)})"
        for key, value in _CONSTANTS.items()
        if _has(settings, key)
    ]
    return [*replaced, *fixed]


def translate(settings: dict[str, Any]) -> list[Loss]:
    """Replaces the retired keys in the nested `settings` of a stored configuration, in place, by those of today.

    Returns the settings that could not be kept.
    """
    old = {key: _pop(settings, key) for key in (*_CONSTANTS, *_USE) if _has(settings, key)}
    losses = [
        Loss(key, old[key], f"always {_yaml(value)}")
        for key, value in _CONSTANTS.items()
        if key in old and old[key] != value
    ]
    if "contrastive_rl" in settings and not _has(settings, _NORMALISER):
        _put(settings, _NORMALISER, "signal")  # before there was a choice, groups without a signal left the loss
    if isinstance(kept := old.get(_KEEP), int):
        _put(settings, "keep_last", max(kept - 1, 0))
    settings.setdefault("stall_minutes", 0.0)  # there was no such bound, and time-outs may be longer than the default
    return [*losses, *_translate_worth(settings, old), *_translate_draw(settings, old), *_check_scale(settings, old)]


def _translate_worth(settings: dict[str, Any], old: Mapping[str, Any]) -> list[Loss]:
    """Takes the value of `reward.worth` that stands for the most of the old settings."""
    values = {key: old.get(key, default) for key, default in _WORTHS["speedup"].items()}
    if not any(key in old for key in values):
        return []

    def different(worth: str) -> list[str]:
        return [key for key, value in _WORTHS[worth].items() if values[key] != value]

    worth = min(_WORTHS, key=lambda name: len(different(name)))
    _put(settings, _WORTH, worth)
    return [Loss(key, values[key], f"{_yaml(_WORTHS[worth][key])}, by {_WORTH}={worth}") for key in different(worth)]


def _translate_draw(settings: dict[str, Any], old: Mapping[str, Any]) -> list[Loss]:
    refill = old.get(_REFILL, 0)
    if not refill:
        return []
    if _get(settings, _DRAW, "rounds") != "rounds":
        return [Loss(_REFILL, refill, f"0, by {_DRAW}={_get(settings, _DRAW, '')}")]
    _put(settings, _DRAW, "replace")
    most = max(_get(settings, "contrastive_rl.tasks_per_step", 8) // 4, 1)
    return [Loss(_REFILL, refill, f"{most}, by {_DRAW}=replace")] if refill != most else []


def _check_scale(settings: dict[str, Any], old: Mapping[str, Any]) -> list[Loss]:
    mean = _get(settings, _LOSS_MEAN, "token")
    scaled = mean != "constant"
    if old.get(_SCALE, scaled) == scaled:
        return []
    return [Loss(_SCALE, old[_SCALE], f"{_yaml(scaled)}, by {_LOSS_MEAN}={mean}")]


def _section(settings: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The mapping that a dotted key stands in, empty if there is none, and the last part of the key."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = settings.get(parent)
        settings = inner if isinstance(inner, dict) else {}
    return settings, last


def _has(settings: dict[str, Any], key: str) -> bool:
    section, last = _section(settings, key)
    return last in section


def _get(settings: dict[str, Any], key: str, default: Any) -> Any:
    section, last = _section(settings, key)
    return section.get(last, default)


def _pop(settings: dict[str, Any], key: str) -> Any:
    section, last = _section(settings, key)
    return section.pop(last)


def _put(settings: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        settings = settings.setdefault(section, {})
    settings[last] = value


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
