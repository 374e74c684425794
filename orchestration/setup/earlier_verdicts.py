"""Checks that verdicts of earlier runs (`evaluator.verdicts_of`) were judged as this run judges."""

from __future__ import annotations

import os

from configs.checks import leaves
from configs.load import ConfigError, parse_config
from configs.schema import RunConfig
from orchestration.run.storage import Storage

_JUDGED_BY = ("evaluator.limits.", "evaluator.require_shapes", "guard.enabled")
"""Keys that a verdict depends on and does not hold itself."""


def check_verdicts_of(config: RunConfig) -> None:
    """Raises ConfigError for a folder without verdicts, or one that was judged under other limits or rules."""
    for folder in config.evaluator.verdicts_of:
        place = Storage.at(*os.path.split(folder.rstrip("/")))
        if not place.is_file("config.yaml"):
            raise ConfigError(f"evaluator.verdicts_of: {folder} holds no config.yaml; give a run, or published results")
        if not (place.is_file("verdicts.parquet") or place.is_folder("verdicts")):
            raise ConfigError(f"evaluator.verdicts_of: {folder} holds no verdicts yet; leave it out")
        stored = parse_config(place.read("config.yaml").decode(), f"{folder}/config.yaml")
        for loss in stored.losses:
            if loss.key.startswith(_JUDGED_BY):
                raise ConfigError(f"evaluator.verdicts_of: {folder}: {loss}; leave it out")
        judged = {key: value for key, value, _ in leaves(stored.config)}
        for key, value, _ in leaves(config):
            if key.startswith(_JUDGED_BY) and judged[key] != value:
                raise ConfigError(
                    f"evaluator.verdicts_of: {folder} was judged with {key}={judged[key]}, which is {value} here; "
                    f"leave it out, or set the same"
                )
