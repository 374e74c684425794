"""Constructs both models with equal weights, and gives both others that neither has seen, wherever that can be done.

What a program prepared from the weights of its constructor, or of its first calls, is wrong from then on.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from evaluators import tree
from evaluators.device import Device
from evaluators.pair import RunnerPair, of_reference
from evaluators.renaming import MOST_ELEMENTS, Renaming, forms_missing, is_comparable
from evaluators.runner_handle import RunnerHandle
from evaluators.tasks import TaskProgram

_log = logging.getLogger(__name__)
_MOST_TENSORS = 10_000
Form = list[Any]  # name, dtype and shape of a tensor, as a runner says


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
        self._renaming: Renaming | None = None
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
        self.missing = forms_missing(ours, theirs)
        # Equal seeds must give equal weights: only one generator, the host's, does.
        if self._device.own_memory:
            self._construct(first, on_host=True)
        before = self._state_of_candidate(theirs)
        self._construct(second, on_host=True)
        model = self._program.model(second, init_inputs, True)
        if before is not None and model.state_dict():
            with self._pair.costs("new_weights"):
                self._rename(first, theirs, before, model)
        return self.draw() if self._changeable else model

    def draw(self) -> nn.Module:
        """Gives both new weights, where that is possible; the reference with them."""
        with self._pair.costs("new_weights"):
            model = self._program.model(secrets.randbits(48), self._init_inputs)
            state = model.state_dict()
            theirs = state if self._renaming is None else self._renaming.translate(state, self._current)
            self._device.synchronize()
            self.are_new = True
            for runner, values in zip(self._pair.runners, (state, theirs), strict=True):
                runner.set_state(values, self._timeout)
        return model

    def _rename(self, seed: int, forms: list[Form], before: dict[str, Tensor], model: nn.Module) -> None:
        """Looks for the reference's weights in the candidate's state under both seeds."""
        after = self._state_of_candidate(forms)
        states = [self._program.model(seed, self._init_inputs, True).state_dict(), model.state_dict()]
        if after is None or not is_comparable(states[0]):
            return
        renaming = Renaming(states, (before, after))
        self.missing = renaming.missing
        if not renaming.missing:
            self._renaming, self._current, self._changeable = renaming, after, True

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

    def _state_of_candidate(self, forms: list[Form]) -> dict[str, Tensor] | None:
        """The values of its state, None where it is said to be larger than what is looked through."""
        if not _is_sound(forms):
            _log.debug("task %s: the candidate's state is not looked through", self._program.task.id)
            return None
        with self._pair.costs("new_weights"):
            return self._pair.runners[1].get_state(forms, self._timeout)


def _is_sound(forms: Any) -> bool:
    """Whether what an untrusted process says of its state describes tensors, not too large."""
    if not forms or len(forms) > _MOST_TENSORS:
        return False
    total = 0
    for form in forms:
        if not isinstance(form, list | tuple) or len(form) != 3:
            return False
        name, dtype, shape = form
        if not isinstance(name, str) or not tree.is_dtype(dtype) or not isinstance(shape, list):
            return False
        if not all(isinstance(size, int) and 0 <= size <= MOST_ELEMENTS for size in shape):
            return False
        total += math.prod(shape)
    return total <= MOST_ELEMENTS
