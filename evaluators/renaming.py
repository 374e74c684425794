"""Finds the reference's weights in a candidate's state by their values, whatever their names and layout.

Both models are constructed under the same two seeds. Where a number of the reference's state is `a` under the first and
`b` under the second, a number of the candidate's state that is `a` and `b`, too, is that one: transposed, reshaped,
joined, split and permuted weights are told alike. Other weights are drawn for such pairs, not for places: places of the
same pair get the same new value on both sides, so that no chance makes the two differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

State = Mapping[str, Tensor]
MOST_ELEMENTS = 1 << 25
"""Of a state that is looked through; larger ones are compared by their form alone."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MIX = 0x9E3779B97F4A7C1  # odd: keeps a pair of eight-byte numbers apart but for chance
_NOWHERE = -1


@dataclass(frozen=True)
class _Part:
    """The numbers of one dtype in the reference's state: distinct pairs, where each first stands, and each place's."""

    names: tuple[str, ...]
    keys: Tensor
    first: Tensor
    inverse: Tensor
    drawn: Tensor  # of the pairs: whether the seed decides about it
    values: Tensor  # of the pairs, under the second seed


class Renaming:
    """Where the numbers of a candidate's state come from."""

    def __init__(self, reference: Sequence[State], candidate: Sequence[State]) -> None:
        """Both states under each of two seeds."""
        self.missing: tuple[str, ...] = ()
        self._parts = {dtype: _part(dtype, *reference) for dtype in sorted(_dtypes(reference[0]), key=str)}
        self._sources: dict[str, tuple[torch.dtype, Tensor]] = {}
        found = {dtype: torch.zeros_like(part.drawn) for dtype, part in self._parts.items()}
        for name, one in candidate[0].items():
            other, part = candidate[1].get(name), self._parts.get(one.dtype)
            if part is None or other is None or other.shape != one.shape or other.dtype != one.dtype:
                continue
            source = _source(part, one, other)
            if source is not None and bool((source != _NOWHERE).any()):
                self._sources[name] = one.dtype, source
                found[one.dtype][source[source != _NOWHERE]] = True
        lost = (_lost(part, reference[0], found[dtype]) for dtype, part in self._parts.items())
        self.missing = (*(name for names in lost for name in names), *_constants_lost(reference, candidate))

    def translate(self, state: State, current: State) -> dict[str, Tensor]:
        """The candidate's tensors for a new state of the reference, in which places of the same pair are made equal.
        `current` is what the candidate has; what no seed decides about stays as it is."""
        values = {}
        for dtype, part in self._parts.items():
            flat = torch.where(part.drawn, _flat(state, part.names)[part.first], part.values)
            position = 0
            for name in part.names:
                places = part.inverse[position : position + state[name].numel()]
                state[name].copy_(flat[places].view(state[name].shape))
                position += state[name].numel()
            values[dtype] = flat
        given = {}
        for name, (dtype, source) in self._sources.items():
            known = source != _NOWHERE
            chosen = values[dtype][source.clamp_min(0)].view(current[name].shape)
            given[name] = torch.where(known.view(current[name].shape), chosen, current[name])
        return given


def is_comparable(state: State) -> bool:
    """Whether there is little enough of it, in dtypes whose numbers can be told apart."""
    small = sum(one.numel() for one in state.values()) <= MOST_ELEMENTS
    return small and all(one.dtype.itemsize in _INTEGERS for one in state.values())


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


def _bits(values: Tensor) -> Tensor:
    flat = values.detach().contiguous().reshape(-1)
    return flat.view(_INTEGERS[flat.dtype.itemsize]).to(torch.int64)


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
    at = torch.searchsorted(part.keys, keys).clamp_max(len(part.keys) - 1)
    if not bool(((part.keys[at] == keys) | ~drawn).all()):
        return None
    return torch.where(drawn, at, _NOWHERE)


def _lost(part: _Part, state: State, found: Tensor) -> list[str]:
    """The reference's tensors of which the candidate does not have all the numbers that a seed decides about."""
    whole = (found | ~part.drawn)[part.inverse]
    sizes = [state[name].numel() for name in part.names]
    return [name for name, own in zip(part.names, whole.split(sizes), strict=True) if not bool(own.all())]


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


def _is_same(one: Tensor, other: Tensor) -> bool:
    if one.dtype is not other.dtype or one.shape != other.shape or one.dtype.itemsize not in _INTEGERS:
        return False
    return bool((_bits(one) == _bits(other)).all())
