"""Constructs both models with equal weights, and gives both others that neither has seen, wherever that can be done.

What a program prepared from the weights of its constructor, or of its first calls, is wrong from then on.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from evaluators.host.claims import StateForm as Form
from evaluators.host.device import Device
from evaluators.host.runner_handle import RunnerHandle
from evaluators.judge.pair import RunnerPair, of_reference
from evaluators.judge.weight_map import WeightMap, is_comparable
from evaluators.tasks import TaskProgram

# Numbers of a state that are read, and that are told from each other one by one: on a GPU (True) and on a core.
_MOST = {True: (1 << 28, 1 << 25), False: (1 << 25, 1 << 22)}


class Weights:
    """Of one pair of runners, into which both programs have been loaded.

    `missing`: names of the reference's weights that the candidate's state does not hold. `are_new`: whether both have
    got weights that the candidate was not constructed with. `flags`: pairs of global numeric flags as the reference's
    and the candidate's constructors left them.
    """

    def __init__(self, pair: RunnerPair, program: TaskProgram, device: Device, timeout: float) -> None:
        self.missing: tuple[str, ...] = ()
        self.are_new = False
        self.flags: list[tuple[dict[str, str], dict[str, str]]] = []
        self._pair, self._program, self._device, self._timeout = pair, program, device, timeout
        self._init_inputs: list[Any] = []
        self._map: WeightMap | None = None
        self._current: dict[str, Tensor] = {}
        self._changeable = False

    def construct(self, init_inputs: list[Any]) -> nn.Module:
        """Constructs both models under one secret seed, then gives both new weights; the reference as it is then."""
        self._init_inputs = init_inputs
        first, second = secrets.randbits(48), secrets.randbits(48)
        ours, theirs = self._construct(first)
        if sorted(map(repr, ours)) == sorted(map(repr, theirs)):
            self._changeable = bool(ours)
            return self.draw() if ours else self._program.model(first, init_inputs)
        # Equal seeds must give equal weights: only one generator, the host's, does.
        if self._device.own_memory:
            self._construct(first, on_host=True)
        dtypes = {dtype for _, dtype, _ in ours}
        readable = [form for form in theirs if form[1] in dtypes]
        most_read, most_searched = _MOST[self._device.own_memory]
        if max(_numbers(ours), _numbers(readable)) <= most_read:
            is_small = max(_numbers(ours), _numbers(readable)) <= most_searched
            model = self._search(first, second, readable, pairs=is_small)
        else:
            model = self._program.model(first, init_inputs, True)
            self._changeable = not _missing_by_name(ours, theirs)
            if not self._changeable:
                self.missing = ("a state of so many numbers that it is not looked through",)
        return self.draw() if self._changeable else model

    def draw(self, factor: float = 1.0) -> nn.Module:
        """Gives both new weights, where that is possible; the reference with them. Matrices are multiplied by
        `factor`."""
        with self._pair.costs("new_weights"):
            model = self._program.model(secrets.randbits(48), self._init_inputs)
            state = model.state_dict()
            matrices = {one.data_ptr(): one for one in state.values() if one.is_floating_point() and one.dim() >= 2}
            for one in matrices.values() if factor != 1.0 else ():
                one.mul_(factor)
            theirs = state if self._map is None else self._map.translate(state, self._current)
            self._device.synchronize()
            self.are_new = True
            for runner, values in zip(self._pair.runners, (state, theirs), strict=True):
                runner.set_state(values, self._timeout)
        return model

    def _search(self, first: int, second: int, forms: list[Form], *, pairs: bool) -> nn.Module:
        """Looks for the reference's weights in the candidate's state under both seeds; the reference under the
        second."""
        runner = self._pair.runners[1]
        with self._pair.costs("new_weights"):
            before = runner.get_state(forms, self._timeout)
            own = dict(self._program.model(first, self._init_inputs, True).state_dict())
        again = self._construct(second, on_host=True)[1]
        with self._pair.costs("new_weights"):
            model = self._program.model(second, self._init_inputs, True)
            if own and is_comparable(own):
                same = [form for form in forms if form in again]
                after = runner.get_state(same, self._timeout)
                weight_map = WeightMap((own, dict(model.state_dict())), (before, after), pairs=pairs)
                self.missing = weight_map.missing
                if not weight_map.missing:
                    self._map, self._current, self._changeable = weight_map, after, True
        return model

    def _construct(self, seed: int, on_host: bool = False) -> tuple[list[Form], list[Form]]:
        """Constructs both models; name, dtype and shape of what their states hold."""
        with self._pair.costs("load_reference"):
            ours, flags = self._of_reference(
                lambda one: one.construct(seed, self._init_inputs, self._timeout, on_host=on_host)
            )
        with self._pair.costs("load_candidate"):
            theirs, their_flags = self._pair.runners[1].construct(
                seed, self._init_inputs, self._timeout, on_host=on_host
            )
        self.flags.append((flags, their_flags))
        return ours, theirs

    def _of_reference(self, work: Callable[[RunnerHandle], Any]) -> Any:
        return of_reference(self._program.task.id, lambda: work(self._pair.runners[0]))


def _numbers(forms: list[Form]) -> int:
    return sum(math.prod(shape) for _, _, shape in forms)


def _missing_by_name(ours: list[Form], theirs: list[Form]) -> list[Form]:
    """The reference's tensors that the candidate does not have by name, dtype and shape."""
    known = set(map(repr, theirs))
    return [form for form in ours if repr(form) not in known]
