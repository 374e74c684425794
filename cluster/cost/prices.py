"""What an hour of a GPU costs. No price ships with Warpsmith; each one in a user's file names its source and date."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from cluster.errors import ClusterError, first_line

SHIPPED_PRICES = Path(__file__).with_name("prices.yaml")
Record = TypeVar("Record")


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`price`: of an hour of one GPU, in the list's currency. `source`: where it stands. `date`: when it was read."""

    price: float
    source: str
    date: datetime.date


class _Listed(msgspec.Struct, forbid_unknown_fields=True):
    currency: str
    gpus: dict[str, Price]


@dataclass(frozen=True)
class Prices:
    """Prices by Ray's accelerator names. `origin`: the file that they are from."""

    currency: str
    gpus: Mapping[str, Price] = field(default_factory=dict)
    origin: str = ""


def read_prices(path: str | Path = SHIPPED_PRICES) -> Prices:
    """The prices in a YAML file of the form of `prices.yaml`. Raises ClusterError for a file that is none."""
    listed = read_yaml(path, _Listed)
    for accelerator, price in listed.gpus.items():
        if not 0 < price.price < float("inf"):
            raise ClusterError(f"{path}: gpus.{accelerator}.price must be more than 0, got {price.price:g}")
        if not price.source.strip():
            raise ClusterError(f"{path}: gpus.{accelerator}.source must say where the price stands")
    return Prices(listed.currency, listed.gpus, str(path))


def read_yaml(path: str | Path, kind: type[Record]) -> Record:
    """A YAML file as a record of msgspec. Raises ClusterError for a file that cannot be read as one."""
    try:
        return msgspec.convert(yaml.safe_load(Path(path).read_text(encoding="utf-8")), kind)
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"{path}: cannot be read: {first_line(error)}") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ClusterError(f"{path}: {first_line(error)}; correct it") from error
