"""The cheapest mix of GPU types for a load: the bin packing of Mélange (arXiv 2404.14527), as an integer program.

The load is cut into slices. Each slice goes to one type, and loads it by the slice's rate over the type's measured
maximum. Whole nodes of each type must carry what is on them, at the least price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from cluster.errors import ClusterError

_SLACK = 1e-6  # GPUs; the solver's own tolerance
_SECONDS = 60.0  # for the solver; 60 slices on 12 types take less than one


class NoMix(ClusterError):
    """No number of nodes that may be had carries the load."""


@dataclass(frozen=True)
class NodeKind:
    """A kind of node that may be rented: `gpus` of a type, at a price for an hour of the whole node. `most`: how many
    there are; None for any number."""

    accelerator: str
    gpus: int
    price: float
    most: int | None = None


@dataclass(frozen=True)
class Slice:
    """A part of the load that is not divided. `rate`: candidates an hour. `maximum`: the candidates of this slice that
    one GPU of a type judges in an hour, by type; a type that is not named cannot judge them."""

    rate: float
    maximum: Mapping[str, float]


@dataclass(frozen=True)
class Mix:
    """How many nodes of each kind to rent, which type judges each slice, and the price of an hour of all nodes.

    `load`: the GPUs that judging needs, by type, a fraction.
    """

    nodes: Mapping[NodeKind, int]
    types: tuple[str, ...]
    load: Mapping[str, float]

    @property
    def price(self) -> float:
        """Of an hour."""
        return sum(count * kind.price for kind, count in self.nodes.items())

    def gpus(self, accelerator: str) -> int:
        """The GPUs of a type in all nodes."""
        return sum(count * kind.gpus for kind, count in self.nodes.items() if kind.accelerator == accelerator)


def cheapest_mix(slices: Sequence[Slice], kinds: Sequence[NodeKind], taken: Mapping[str, int] | None = None) -> Mix:
    """The nodes of least price that carry all slices, and `taken` GPUs of some types for other work besides.

    Raises NoMix if there are not enough nodes, or if no type can judge a slice.
    """
    taken = taken or {}
    types = list(dict.fromkeys(kind.accelerator for kind in kinds))
    missing = sorted(set(taken) - set(types))
    if missing or not kinds:
        raise NoMix(f"there is no node with {missing[0]}" if missing else "there is no node")
    pairs = [(number, name) for number, one in enumerate(slices) for name in types if name in one.maximum]
    loads = [slices[number].rate / slices[number].maximum[name] for number, name in pairs]
    columns = len(pairs) + len(kinds)
    once = np.zeros((len(slices), columns))
    room = np.zeros((len(types), columns))
    for column, ((number, name), load) in enumerate(zip(pairs, loads, strict=True)):
        once[number, column] = 1.0
        room[types.index(name), column] = -load
    for column, kind in enumerate(kinds, start=len(pairs)):
        room[types.index(kind.accelerator), column] = kind.gpus
    constraints = [LinearConstraint(room, [taken.get(name, 0) - _SLACK for name in types], np.inf)]
    if slices:
        constraints.append(LinearConstraint(once, 1.0, 1.0))
    most = [math.inf if kind.most is None else kind.most for kind in kinds]
    solved = milp(
        [0.0] * len(pairs) + [kind.price for kind in kinds],
        integrality=np.ones(columns),
        bounds=Bounds(0.0, [1.0] * len(pairs) + most),
        constraints=constraints,
        options={"time_limit": _SECONDS, "mip_rel_gap": 0.0},  # else a mix that is dearer by 1e-4 may do
    )
    if solved.x is None:
        raise NoMix(_why(slices, kinds))
    chosen = [pair for pair, value in zip(pairs, solved.x, strict=False) if value > 0.5]
    carried = dict.fromkeys(types, 0.0)
    for number, name in chosen:
        carried[name] += slices[number].rate / slices[number].maximum[name]
    counts = {kind: round(value) for kind, value in zip(kinds, solved.x[len(pairs) :], strict=True)}
    return Mix({kind: count for kind, count in counts.items() if count}, tuple(name for _, name in chosen), carried)


def _why(slices: Sequence[Slice], kinds: Sequence[NodeKind]) -> str:
    names = {kind.accelerator for kind in kinds}
    if any(not names & one.maximum.keys() for one in slices):
        return f"none of {', '.join(sorted(names))} can judge all of the load"
    listed = ", ".join(f"{kind.most} x {kind.gpus} {kind.accelerator}" for kind in kinds if kind.most is not None)
    return f"the nodes that may be had ({listed}) do not carry the load" if listed else "no mix was found in time"
