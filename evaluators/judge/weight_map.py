"""Finds the reference's weights in a candidate's state by their values, whatever their names and layout.

Both models are constructed under the same two seeds. Tensors that are the same in whole (or transposed) are told first.
For the rest, where a number of the reference's state is `a` under the first seed and `b` under the second, a number of
the candidate's state that is `a` and `b`, too, is that one: joined, split and permuted weights are told alike.
Other weights are drawn for such pairs, not for places: places of the same pair get the same new value on both sides, so
that no chance makes the two differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

State = Mapping[str, Tensor]
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MIX = 0x9E3779B97F4A7C1  # odd: keeps a pair of eight-byte numbers apart but for chance
_NOWHERE = -1
_DISTINCT = 0.9  # of a tensor's pairs, below which it is made of repeated numbers: a mask, say, or one-hot rows


@dataclass(frozen=True)
class _Part:
    """The numbers of one dtype in the reference's state: distinct pairs, where each first stands, and each place's."""

    names: tuple[str, ...]
    keys: Tensor
    first: Tensor
    inverse: Tensor
    drawn: Tensor  # of the pairs: whether the seed decides about it
    values: Tensor  # of the pairs, under the second seed

    def places(self, state: State) -> Iterator[tuple[str, Tensor]]:
        """Each tensor's name, and the pair of each of its numbers."""
        return zip(self.names, self.inverse.split([state[name].numel() for name in self.names]), strict=True)


class WeightMap:
    """Where the numbers of a candidate's state come from."""

    def __init__(self, reference: Sequence[State], candidate: Sequence[State], *, pairs: bool = True) -> None:
        """Both states under each of two seeds. Without `pairs` only whole tensors are looked for, which is far less
        work."""
        self._whole = _wholes(reference, candidate)
        self._parts: dict[torch.dtype, _Part] = {}
        self._sources: dict[str, tuple[torch.dtype, Tensor]] = {}
        self._as_drawn: set[str] = set()
        matched = {name for name, _ in self._whole.values()}
        lost = {name for name, one in reference[0].items() if not _is_same(one, reference[1][name])} - matched
        # Layers that are copies of each other have equal weights under any seed.
        self._equal = {name: twin for name in lost for twin in matched if _are_twins(reference, name, twin)}
        lost -= self._equal.keys()
        left = {
            name: one
            for name, one in candidate[0].items()
            if name not in self._whole
            and _is_alike(one, candidate[1].get(name))
            and not _is_same(one, candidate[1][name])
        }
        for dtype in sorted({one.dtype for one in left.values()} & _dtypes(reference[0]), key=str) if pairs else ():
            part = self._parts[dtype] = _part(dtype, *reference)
            found = torch.zeros_like(part.drawn)
            for name, one in left.items():
                source = _source(part, one, candidate[1][name]) if one.dtype is dtype else None
                if source is not None and bool((source != _NOWHERE).any()):
                    self._sources[name] = dtype, source
                    found[source[source != _NOWHERE]] = True
            for name, pairs_of in part.places(reference[0]):
                if bool((found | ~part.drawn)[pairs_of].all()):
                    lost.discard(name)
                if _is_structured(dtype, part, pairs_of):
                    # New numbers for single pairs would spoil what it is: it stays, or is handed over in whole.
                    if bool(found[pairs_of].any()):
                        part.drawn[pairs_of] = False
                    else:
                        self._as_drawn.add(name)
        missing = [name for name in reference[0] if name in lost]
        self.missing: tuple[str, ...] = (*missing, *_constants_lost(reference, candidate))

    def translate(self, state: State, current: State) -> dict[str, Tensor]:
        """The candidate's tensors for a new state of the reference, in which places of the same pair are made equal.
        `current` is what the candidate has; what no seed decides about stays as it is."""
        values = {}
        for dtype, part in self._parts.items():
            flat = values[dtype] = torch.where(part.drawn, _flat(state, part.names)[part.first], part.values)
            for name, pairs in part.places(state):
                if name not in self._as_drawn:
                    state[name].copy_(flat[pairs].view(state[name].shape))
        for name, twin in self._equal.items():
            state[name].copy_(state[twin])
        given = {}
        for name, (dtype, source) in self._sources.items():
            known = source != _NOWHERE
            chosen = values[dtype][source.clamp_min(0)].view(current[name].shape)
            given[name] = torch.where(known.view(current[name].shape), chosen, current[name])
        for name, (origin, transposed) in self._whole.items():
            one = state[origin].t() if transposed else state[origin]
            given[name] = one.reshape(current[name].shape)
        return given


def _wholes(reference: Sequence[State], candidate: Sequence[State]) -> dict[str, tuple[str, bool]]:
    """The candidate's tensors that hold one of the reference's under both seeds, in its order or transposed."""
    found = {}
    for name, one in candidate[0].items():
        other = candidate[1].get(name)
        if other is None or not _is_alike(one, other) or _is_same(one, other):
            continue
        for origin, first in reference[0].items():
            second = reference[1][origin]
            if first.dtype is not one.dtype or first.numel() != one.numel():
                continue
            for transposed in (False, True) if first.dim() == 2 else (False,):
                pairs = [(a.t() if transposed else a, b) for a, b in ((first, one), (second, other))]
                if all(_begins_alike(a, b) for a, b in pairs) and all(
                    _is_same(a.reshape(b.shape), b) for a, b in pairs
                ):
                    found[name] = origin, transposed
    return found


def _are_twins(states: Sequence[State], one: str, other: str) -> bool:
    return all(
        _is_alike(state[one], state[other]) and _begins_alike(state[one], state[other]) for state in states
    ) and all(_is_same(state[one], state[other]) for state in states)


def _begins_alike(one: Tensor, other: Tensor) -> bool:
    start = (one[0] if one.dim() and len(one) else one).reshape(-1)
    return _is_same(start, other.reshape(-1)[: len(start)])


def is_comparable(state: State) -> bool:
    """Whether its dtypes are such that numbers can be told apart."""
    return all(one.dtype.itemsize in _INTEGERS for one in state.values())


def forms_missing(state: Sequence[Sequence[object]], theirs: Sequence[Sequence[object]]) -> tuple[str, ...]:
    """The reference's weights of whose dtype and shape the candidate has none (or fewer), whatever their names.
    Both are lists of name, dtype and shape."""
    left = Counter(repr(entry[1:]) for entry in theirs)
    missing = []
    for name, *form in state:
        left[repr(form)] -= 1
        if left[repr(form)] < 0:
            missing.append(str(name))
    return tuple(missing)


def _dtypes(state: State) -> set[torch.dtype]:
    return {one.dtype for one in state.values()}


def _flat(state: State, names: Sequence[str]) -> Tensor:
    return torch.cat([state[name].detach().reshape(-1) for name in names])


def _raw(values: Tensor) -> Tensor:
    flat = values.detach().contiguous().reshape(-1)
    return flat.view(_INTEGERS[flat.dtype.itemsize])


def _bits(values: Tensor) -> Tensor:
    return _raw(values).to(torch.int64)


def _keys(one: Tensor, other: Tensor) -> Tensor:
    """One number for each pair of values of the same place under the two seeds: exact up to four bytes."""
    if one.dtype.itemsize <= 4:
        return (_bits(one) << 32) | (_bits(other) & 0xFFFFFFFF)
    return _bits(one) * _MIX + _bits(other)


def _part(dtype: torch.dtype, first: State, second: State) -> _Part:
    names = tuple(name for name, one in first.items() if one.dtype is dtype)
    one, other = _flat(first, names), _flat(second, names)
    keys, inverse = torch.unique(_keys(one, other), return_inverse=True)
    places = torch.arange(len(inverse), device=inverse.device)
    where = torch.full_like(keys, len(inverse)).scatter_reduce_(0, inverse, places, "amin")
    return _Part(names, keys, where, inverse, _bits(one)[where] != _bits(other)[where], other[where])


def _source(part: _Part, one: Tensor, other: Tensor) -> Tensor | None:
    """The pair of each number of a candidate's tensor, _NOWHERE for what no seed decides about; None where the
    reference does not have them all."""
    keys, drawn = _keys(one, other), _bits(one) != _bits(other)
    if not len(part.keys):
        return None
    at = torch.searchsorted(part.keys, keys).clamp_max(len(part.keys) - 1)
    if not bool(((part.keys[at] == keys) | ~drawn).all()):
        return None
    return torch.where(drawn, at, _NOWHERE)


def _is_structured(dtype: torch.dtype, part: _Part, pairs: Tensor) -> bool:
    """Whether a tensor is more than numbers drawn each by itself: integers, or mostly repeated numbers."""
    if not dtype.is_floating_point and not dtype.is_complex:
        return True
    if len(part.keys) >= _DISTINCT * len(part.inverse):
        return False
    drawn = pairs[part.drawn[pairs]]
    return len(drawn) > 0 and len(torch.unique(drawn)) < _DISTINCT * len(drawn)


def _constants_lost(reference: Sequence[State], candidate: Sequence[State]) -> tuple[str, ...]:
    """The reference's tensors that are the same under any seed and have no counterpart of their form, unless the
    candidate has as many such numbers of that dtype in another form."""
    ours, theirs = (_constants(*states) for states in (reference, candidate))
    count = [Counter[torch.dtype](), Counter[torch.dtype]()]
    for which, constants in enumerate((ours, theirs)):
        for one in constants.values():
            count[which][one.dtype] += one.numel()
    forms = [[(name, str(one.dtype), list(one.shape)) for name, one in each.items()] for each in (ours, theirs)]
    return tuple(name for name in forms_missing(*forms) if count[1][ours[name].dtype] < count[0][ours[name].dtype])


def _constants(first: State, second: State) -> dict[str, Tensor]:
    return {name: one for name, one in first.items() if name in second and _is_same(one, second[name])}


def _is_alike(one: Tensor, other: Tensor | None) -> bool:
    """Of one dtype, whose numbers can be told apart, and of one shape."""
    return (
        other is not None and one.dtype is other.dtype and one.shape == other.shape and one.dtype.itemsize in _INTEGERS
    )


def _is_same(one: Tensor, other: Tensor) -> bool:
    return _is_alike(one, other) and torch.equal(_raw(one), _raw(other))
