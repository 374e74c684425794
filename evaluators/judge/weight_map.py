"""Finds the reference's weights in a candidate's state by their values, whatever their names and layout.

Both models are constructed under the same two seeds. Tensors that are equal as a whole (or transposed) under both seeds
are found first. The rest is searched number by number. If a number of the reference's state is `a` under the first seed
and `b` under the second, a number of the candidate's state that is `a` and `b`, too, stands for it. So weights are also
found if they were joined, split or permuted.

New weights are drawn for such pairs of values, not for places: all places of one pair get the same new value on both
sides. So two weights that have equal values by chance cannot make the two sides differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

State = Mapping[str, Tensor]
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MIX = 0x9E3779B97F4A7C1  # odd, so that two pairs of eight-byte numbers share a key only by chance
_NOWHERE = -1
_DISTINCT = 0.9  # of a tensor's pairs; with fewer, it consists of repeated numbers: a mask, say, or one-hot rows


@dataclass(frozen=True)
class _Pairs:
    """The pairs of values, under the two seeds, that numbers of one dtype have in the reference's state.

    `names`: the tensors of that dtype. `keys`: of the distinct pairs, sorted. `first`: the place at which each pair
    stands first. `inverse`: the pair of each place. `drawn`: whether the seed decides about a pair. `values`: of the
    pairs under the second seed.
    """

    names: tuple[str, ...]
    keys: Tensor
    first: Tensor
    inverse: Tensor
    drawn: Tensor
    values: Tensor

    @classmethod
    def of(cls, dtype: torch.dtype, first: State, second: State) -> _Pairs:
        names = tuple(name for name, tensor in first.items() if tensor.dtype is dtype)
        values, later = _flat(first, names), _flat(second, names)
        keys, inverse = torch.unique(_keys(values, later), return_inverse=True)
        places = torch.arange(len(inverse), device=inverse.device)
        where = torch.full_like(keys, len(inverse)).scatter_reduce_(0, inverse, places, "amin")
        return cls(names, keys, where, inverse, _bits(values)[where] != _bits(later)[where], later[where])

    def by_tensor(self, state: State) -> Iterator[tuple[str, Tensor]]:
        """Each tensor's name, and the pair of each of its numbers."""
        return zip(self.names, self.inverse.split([state[name].numel() for name in self.names]), strict=True)

    def sources(self, first: Tensor, second: Tensor) -> Tensor | None:
        """The pair of each number of a candidate's tensor, given its values under both seeds.

        It is `_NOWHERE` for a number that no seed decides about. None if the reference lacks any other number.
        """
        keys, drawn = _keys(first, second), _bits(first) != _bits(second)
        if not len(self.keys):
            return None
        at = torch.searchsorted(self.keys, keys).clamp_max(len(self.keys) - 1)
        if not bool(((self.keys[at] == keys) | ~drawn).all()):
            return None
        return torch.where(drawn, at, _NOWHERE)


class WeightMap:
    """Says from which numbers of the reference's state those of a candidate's state come.

    `missing`: names of the reference's tensors that the candidate's state does not hold.
    """

    def __init__(self, reference: Sequence[State], candidate: Sequence[State], *, by_number: bool = True) -> None:
        """Takes both states under each of two seeds. Without `by_number` only whole tensors are searched for, which is
        far less work."""
        self._whole = _match_whole_tensors(reference, candidate)
        self._pairs: dict[torch.dtype, _Pairs] = {}
        self._sources: dict[str, tuple[torch.dtype, Tensor]] = {}
        self._as_drawn: set[str] = set()  # the reference's tensors that stay as a seed draws them
        matched = {name for name, _ in self._whole.values()}
        lost = {name for name, tensor in reference[0].items() if not _is_same(tensor, reference[1][name])} - matched
        # Layers that are copies of each other have equal weights under any seed.
        self._twins = {name: twin for name in lost for twin in matched if _are_twins(reference, name, twin)}
        lost -= self._twins.keys()
        if by_number:
            lost -= self._match_numbers(reference, candidate)
        missing = [name for name in reference[0] if name in lost]
        self.missing: tuple[str, ...] = (*missing, *_lost_constants(reference, candidate))

    def _match_numbers(self, reference: Sequence[State], candidate: Sequence[State]) -> set[str]:
        """Searches what is left of the candidate's state for single numbers. Returns the names of the reference's
        tensors all of whose numbers are found."""
        left = {
            name: tensor
            for name, tensor in candidate[0].items()
            if name not in self._whole
            and _is_alike(tensor, candidate[1].get(name))
            and not _is_same(tensor, candidate[1][name])
        }
        complete = set()
        for dtype in sorted({tensor.dtype for tensor in left.values()} & _dtypes(reference[0]), key=str):
            pairs = self._pairs[dtype] = _Pairs.of(dtype, *reference)
            found = torch.zeros_like(pairs.drawn)
            for name, tensor in left.items():
                sources = pairs.sources(tensor, candidate[1][name]) if tensor.dtype is dtype else None
                if sources is not None and bool((sources != _NOWHERE).any()):
                    self._sources[name] = dtype, sources
                    found[sources[sources != _NOWHERE]] = True
            for name, numbers in pairs.by_tensor(reference[0]):
                if bool((found | ~pairs.drawn)[numbers].all()):
                    complete.add(name)
                if _is_structured(dtype, pairs, numbers):
                    # New values for single pairs would spoil its structure: it stays, or is handed over as a whole.
                    if bool(found[numbers].any()):
                        pairs.drawn[numbers] = False
                    else:
                        self._as_drawn.add(name)
        return complete

    def translate(self, state: State, current: State) -> dict[str, Tensor]:
        """The candidate's tensors for a new `state` of the reference.

        Changes `state` in place so that all places of one pair are equal. `current` is the candidate's state under the
        second seed; a number that no seed decides about stays as it is there.
        """
        values = {}
        for dtype, pairs in self._pairs.items():
            flat = values[dtype] = torch.where(pairs.drawn, _flat(state, pairs.names)[pairs.first], pairs.values)
            for name, numbers in pairs.by_tensor(state):
                if name not in self._as_drawn:
                    state[name].copy_(flat[numbers].view(state[name].shape))
        for name, twin in self._twins.items():
            state[name].copy_(state[twin])
        translated = {}
        for name, (dtype, sources) in self._sources.items():
            is_found = sources != _NOWHERE
            chosen = values[dtype][sources.clamp_min(0)].view(current[name].shape)
            translated[name] = torch.where(is_found.view(current[name].shape), chosen, current[name])
        for name, (origin, transposed) in self._whole.items():
            tensor = state[origin].t() if transposed else state[origin]
            translated[name] = tensor.reshape(current[name].shape)
        return translated


def is_comparable(state: State) -> bool:
    """Whether the numbers of all its dtypes can be compared bit by bit."""
    return all(tensor.dtype.itemsize in _INTEGERS for tensor in state.values())


# Whole tensors


def _match_whole_tensors(reference: Sequence[State], candidate: Sequence[State]) -> dict[str, tuple[str, bool]]:
    """The candidate's tensors that hold one of the reference's under both seeds: its name, and whether transposed."""
    matches = {}
    for name, one in candidate[0].items():
        other = candidate[1].get(name)
        if other is None or not _is_alike(one, other) or _is_same(one, other):
            continue
        for origin, first in reference[0].items():
            second = reference[1][origin]
            if first.dtype is not one.dtype or first.numel() != one.numel():
                continue
            for transposed in (False, True) if first.dim() == 2 else (False,):
                sides = [(a.t() if transposed else a, b) for a, b in ((first, one), (second, other))]
                if all(_begins_alike(a, b) for a, b in sides) and all(
                    _is_same(a.reshape(b.shape), b) for a, b in sides
                ):
                    matches[name] = origin, transposed
    return matches


def _are_twins(states: Sequence[State], one: str, other: str) -> bool:
    """Whether two tensors of the reference are equal under every seed."""
    return all(
        _is_alike(state[one], state[other]) and _begins_alike(state[one], state[other]) for state in states
    ) and all(_is_same(state[one], state[other]) for state in states)


def _begins_alike(one: Tensor, other: Tensor) -> bool:
    """Whether the first row of `one` begins `other`: far less work than comparing the whole."""
    start = (one[0] if one.dim() and len(one) else one).reshape(-1)
    return _is_same(start, other.reshape(-1)[: len(start)])


# Numbers


def _dtypes(state: State) -> set[torch.dtype]:
    return {tensor.dtype for tensor in state.values()}


def _flat(state: State, names: Sequence[str]) -> Tensor:
    return torch.cat([state[name].detach().reshape(-1) for name in names])


def _raw(values: Tensor) -> Tensor:
    flat = values.detach().contiguous().reshape(-1)
    return flat.view(_INTEGERS[flat.dtype.itemsize])


def _bits(values: Tensor) -> Tensor:
    return _raw(values).to(torch.int64)


def _keys(first: Tensor, second: Tensor) -> Tensor:
    """One integer for each pair of values at the same place under the two seeds: exact for up to four bytes."""
    if first.dtype.itemsize <= 4:
        return (_bits(first) << 32) | (_bits(second) & 0xFFFFFFFF)
    return _bits(first) * _MIX + _bits(second)


def _is_structured(dtype: torch.dtype, pairs: _Pairs, numbers: Tensor) -> bool:
    """Whether a tensor is more than numbers each drawn by itself: integers, or mostly repeated numbers."""
    if not dtype.is_floating_point and not dtype.is_complex:
        return True
    if len(pairs.keys) >= _DISTINCT * len(pairs.inverse):
        return False
    drawn = numbers[pairs.drawn[numbers]]
    return len(drawn) > 0 and len(torch.unique(drawn)) < _DISTINCT * len(drawn)


# Constants


def _lost_constants(reference: Sequence[State], candidate: Sequence[State]) -> tuple[str, ...]:
    """The reference's tensors that are equal under any seed and have no counterpart of their form, unless the candidate
    has as many such numbers of that dtype in another form."""
    ours, theirs = _constants(*reference), _constants(*candidate)
    our_numbers, their_numbers = _numbers_by_dtype(ours), _numbers_by_dtype(theirs)
    return tuple(
        name for name in _forms_missing(ours, theirs) if their_numbers[ours[name].dtype] < our_numbers[ours[name].dtype]
    )


def _constants(first: State, second: State) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in first.items() if name in second and _is_same(tensor, second[name])}


def _numbers_by_dtype(state: State) -> Counter[torch.dtype]:
    count = Counter[torch.dtype]()
    for tensor in state.values():
        count[tensor.dtype] += tensor.numel()
    return count


def _forms_missing(reference: State, candidate: State) -> list[str]:
    """The reference's tensors of whose dtype and shape the candidate has fewer, whatever their names."""
    left = Counter((tensor.dtype, tensor.shape) for tensor in candidate.values())
    missing = []
    for name, tensor in reference.items():
        left[tensor.dtype, tensor.shape] -= 1
        if left[tensor.dtype, tensor.shape] < 0:
            missing.append(name)
    return missing


# Equality


def _is_alike(one: Tensor, other: Tensor | None) -> bool:
    """Whether both have one shape and one dtype whose numbers can be compared bit by bit."""
    return (
        other is not None and one.dtype is other.dtype and one.shape == other.shape and one.dtype.itemsize in _INTEGERS
    )


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether both are alike, and equal bit by bit."""
    return _is_alike(one, other) and torch.equal(_raw(one), _raw(other))
