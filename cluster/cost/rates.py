"""How many candidates a GPU judges in an hour, for types that no earlier run has measured. Each rate has its source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from cluster.cost.prices import read_yaml
from cluster.errors import ClusterError

SHIPPED_RATES = Path(__file__).with_name("rates.yaml")


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Candidates that one GPU judges in an hour at a preset, and where that was measured."""

    evaluations_an_hour: float
    preset: str
    source: str


def read_rates(path: str | Path = SHIPPED_RATES) -> Mapping[str, Rate]:
    """The rates in a YAML file of the form of `rates.yaml`, by Ray's accelerator names. Raises ClusterError."""
    rates = read_yaml(path, dict[str, Rate])
    for accelerator, rate in rates.items():
        if not 0 < rate.evaluations_an_hour < float("inf"):
            raise ClusterError(f"{path}: {accelerator}.evaluations_an_hour must be more than 0")
        if not rate.source.strip():
            raise ClusterError(f"{path}: {accelerator}.source must say where the rate was measured")
    return rates
