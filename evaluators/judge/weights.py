"""Constructs both models with equal weights, then gives both new ones that neither program has seen, if that can be
done.

Results that a program prepared from the weights of its constructor, or of its first calls, are wrong from then on.
"""

from __future__ import annotations

import copy
import math
import random
import secrets
from typing import Any

import torch
from torch import Tensor, nn

from evaluators.host.claims import StateForm
from evaluators.host.device import Device
from evaluators.judge.pair import RunnerPair, reference_errors_as_infra
from evaluators.judge.weight_map import WeightMap, is_comparable
from evaluators.tasks import TaskProgram

_SPARSE, _SPARSE_ROWS = 0.5, 1 / 8  # probability; share of the rows
_FACTORS_OF_ROWS = (0.25, 4.0)  # positive: some numbers, such as variances, must be
# How many numbers of a state are read at most, and how many are searched for one by one; by whether it is a GPU.
_MOST = {True: (1 << 28, 1 << 25), False: (1 << 25, 1 << 22)}
_MOST_KEPT = 1 << 30  # bytes of a state whose rows are changed
Flags = dict[str, str]
"""Global numeric flags of a process, by name."""


class Weights:
    """The weights of one pair of runners, into which both programs have been loaded.

    `missing`: names of the reference's weights that the candidate's state does not hold. `are_new`: whether both sides
    have got weights that the candidate was not constructed with. `flags`: global numeric flags as the constructors of
    the reference and of the candidate left them, one pair a construction.
    """

    def __init__(
        self, pair: RunnerPair, program: TaskProgram, device: Device, timeout: float, *, keep: bool = False
    ) -> None:
        """`timeout`: seconds for each step of a runner. `keep`: both sides keep the weights of construction."""
        self._keep = keep
        self.missing: tuple[str, ...] = ()
        self.are_new = False
        self.flags: list[tuple[Flags, Flags]] = []
        self._pair, self._program, self._device, self._timeout = pair, program, device, timeout
        self._init_inputs: list[Any] = []
        self._map: WeightMap | None = None  # None if both states have the same names and forms
        self._candidate_state: dict[str, Tensor] = {}
        self._drawn: dict[str, Tensor] = {}  # the reference's state, for `change_rows`
        self._can_be_changed = False

    def construct(self, init_inputs: list[Any]) -> nn.Module:
        """Constructs both models under one secret seed, then gives both new weights unless these are kept.

        Returns the reference model with the weights that both sides have then. Raises RunnerFailure and InfraError.
        """
        self._init_inputs = init_inputs
        first, second = secrets.randbits(48), secrets.randbits(48)
        if self._keep:  # equal seeds must give equal weights: they do if only the host's generator draws
            self._construct(first, on_host=True)
            with self._pair.costs("strides"):
                self._pair.adopt_strides(self._program.inputs(second), second, self._timeout)
            self._construct(first, on_host=True)  # a model may keep a state, which that call has changed
            return self._program.model(first, init_inputs, True)
        reference, candidate = self._construct(first)
        if sorted(map(repr, reference)) == sorted(map(repr, candidate)):
            self._can_be_changed = bool(reference)
            return self.draw() if reference else self._program.model(first, init_inputs)
        # From here on equal seeds must give equal weights. They do if only the host's generator draws.
        if self._device.own_memory:
            self._construct(first, on_host=True)
        dtypes = {form.dtype for form in reference}
        readable = [form for form in candidate if form.dtype in dtypes]
        most_read, most_searched = _MOST[self._device.own_memory]
        numbers = max(_count_numbers(reference), _count_numbers(readable))
        if numbers <= most_read:
            model = self._search(first, second, readable, by_number=numbers <= most_searched)
        else:
            model = self._program.model(first, init_inputs, True)
            self._can_be_changed = not _missing_by_name(reference, candidate)
            if not self._can_be_changed:
                self.missing = ("a state of so many numbers that it is not looked through",)
        return self.draw() if self._can_be_changed else model

    def draw(self, factor: float = 1.0) -> nn.Module:
        """Gives both sides new weights, with matrices multiplied by `factor`. Returns the reference model with them."""
        with self._pair.costs("new_weights"):
            model = self._program.model(secrets.randbits(48), self._init_inputs)
            state = model.state_dict()
            matrices = {
                values.data_ptr(): values
                for values in state.values()
                if values.is_floating_point() and values.dim() >= 2
            }
            for matrix in matrices.values() if factor != 1.0 else ():
                matrix.mul_(factor)
            self.are_new = True
            self._give(state)
            kept = sum(values.numel() * values.itemsize for values in state.values()) <= _MOST_KEPT
            self._drawn = copy.deepcopy(dict(state)) if kept else {}
        return model

    def change_rows(self) -> dict[str, Tensor]:
        """Gives both sides the weights that were drawn last, but for a few rows. What a program keeps because other
        numbers stayed the same is wrong from then on, and so is what it leaves out since all rows look like those that
        a constructor draws. Returns the reference's state; it is empty if nothing was changed, because no new weights
        were drawn before or because they take too much memory."""
        if not self._drawn:
            return {}
        with self._pair.costs("new_weights"):
            state = copy.deepcopy(self._drawn)
            has_sparse_rows = random.random() < _SPARSE
            for values in {one.data_ptr(): one for one in state.values() if one.is_floating_point()}.values():
                row = values[random.randrange(len(values))] if values.dim() and len(values) else values
                row.mul_(random.choice(_FACTORS_OF_ROWS))
                if has_sparse_rows and values.dim() >= 2:
                    _make_rows_sparse(values)
            self._give(state)
        return state

    def _give(self, state: dict[str, Tensor]) -> None:
        """Gives both sides these weights of the reference."""
        translated = state if self._map is None else self._map.translate(state, self._candidate_state)
        self._device.synchronize()
        for runner, values in zip(self._pair.runners, (state, translated), strict=True):
            runner.set_state(values, self._timeout)

    def _search(self, first: int, second: int, forms: list[StateForm], *, by_number: bool) -> nn.Module:
        """Searches the candidate's state under two seeds for the reference's weights.

        `forms`: the candidate's tensors that are read. Returns the reference model under the second seed.
        """
        runner = self._pair.runners[1]
        with self._pair.costs("new_weights"):
            before = runner.get_state(forms, self._timeout)
            reference = dict(self._program.model(first, self._init_inputs, True).state_dict())
        forms_again = self._construct(second, on_host=True)[1]
        with self._pair.costs("new_weights"):
            model = self._program.model(second, self._init_inputs, True)
            if reference and is_comparable(reference):
                common = [form for form in forms if form in forms_again]
                after = runner.get_state(common, self._timeout)
                states = (reference, dict(model.state_dict()))
                weight_map = WeightMap(states, (before, after), by_number=by_number)
                self.missing = weight_map.missing
                if not weight_map.missing:
                    self._map, self._candidate_state, self._can_be_changed = weight_map, after, True
        return model

    def _construct(self, seed: int, on_host: bool = False) -> tuple[list[StateForm], list[StateForm]]:
        """Constructs both models. Returns the forms of the reference's and of the candidate's state."""
        reference, candidate = self._pair.runners
        with self._pair.costs("load_reference"), reference_errors_as_infra(self._program.task.id):
            forms, flags = reference.construct(seed, self._init_inputs, self._timeout, on_host=on_host)
        with self._pair.costs("load_candidate"):
            candidate_forms, candidate_flags = candidate.construct(
                seed, self._init_inputs, self._timeout, on_host=on_host
            )
        self.flags.append((flags, candidate_flags))
        return forms, candidate_forms


def _make_rows_sparse(matrix: Tensor) -> None:
    """Gives some rows one number that is 1, and zeros. In a square matrix it stands on the diagonal, so that what is
    multiplied by the matrix again and again remembers its beginning."""
    height, width = len(matrix), math.prod(matrix.shape[1:])
    if not matrix.numel():
        return
    rows = torch.randperm(height)[: max(1, round(_SPARSE_ROWS * height))]
    places = rows if matrix.dim() == 2 and height == width else torch.randint(width, rows.shape)
    sparse = torch.zeros(len(rows), width, dtype=matrix.dtype)
    sparse[torch.arange(len(rows)), places] = 1.0
    matrix[rows.to(matrix.device)] = sparse.view(-1, *matrix.shape[1:]).to(matrix.device)


def _count_numbers(forms: list[StateForm]) -> int:
    return sum(math.prod(form.shape) for form in forms)


def _missing_by_name(reference: list[StateForm], candidate: list[StateForm]) -> list[StateForm]:
    """The reference's tensors of which the candidate has none of the same name, dtype and shape."""
    present = set(map(repr, candidate))
    return [form for form in reference if repr(form) not in present]
