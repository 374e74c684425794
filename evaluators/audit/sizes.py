"""Sizes at which a CPU can audit a task: the sizes of its inputs, halved until one call is cheap.

Nothing is computed to find them: the task runs on the `meta` device, where tensors have shapes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.tasks import TaskProgram
from evaluators.tasks.shapes import input_sizes

_LEAST_SIZE = 2  # so that batch statistics exist
_SMALL = 16  # a size up to this is halved only if the load is above this many times the limit:
_MOST_LOAD_IF_SMALL = 4.0
_MOST_HELD = 2**20  # elements of all inputs, and of all outputs
_MOST_WRITTEN = 2**25  # elements that all operations of a call give
_MOST_FLOPS = 2**32  # of a call
_MOST_OPERATIONS = 4000  # of a call: a recurrent network has as many as its sequence is long
_TOO_LONG = (1e300, 1e300)
_UNKNOWN = (float("inf"), float("inf"))


def audited_sizes(task: Task) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Two overrides of the sizes on which only `get_inputs` depends. The first halves the largest of these sizes again
    and again until inputs, outputs and work are small. The second stops one halving earlier, so that an accident of the
    first sizes is not found at the second. Both are empty if no size has to be reduced, or none can be."""
    sizes = input_sizes(task)
    reduced: dict[str, int] = {}
    before = reduced
    load = _load(task)
    while shrinkable := [name for name, size in sizes.items() if size > _LEAST_SIZE]:
        name = max(shrinkable, key=sizes.__getitem__)
        if load[0] <= (1.0 if sizes[name] > _SMALL else _MOST_LOAD_IF_SMALL):
            break
        trial = {**reduced, name: max(_LEAST_SIZE, sizes[name] // 2)}
        smaller = _load(task.with_sizes(**trial))
        if smaller < load or smaller == load == _TOO_LONG:
            before, reduced, load = reduced, trial, smaller
            sizes[name] = trial[name]
        else:
            del sizes[name]  # at that size the program does not run, or is no smaller
    return reduced, before


def _load(task: Task) -> tuple[float, float]:
    """The inputs, the outputs and the work of a call as multiples of what an audit allows: the largest multiple, and
    their sum. `_TOO_LONG` for too many operations, `_UNKNOWN` if the task does not run without values."""
    device = torch.device("meta")
    try:
        program = TaskProgram(task, device)
        inputs = program.inputs(0)
        model = program.model(0, program.init_inputs(0))
        with torch.no_grad(), device, FlopCounterMode(display=False) as flops, _WrittenElements() as written:
            outputs = model(*inputs)
    except _TooManyOperations:
        return _TOO_LONG
    except Exception:  # noqa: BLE001  (programs fail in any way, some only without values)
        return _UNKNOWN
    held = [sum(tensor.numel() for tensor in nesting.flatten(tree)[1]) / _MOST_HELD for tree in (inputs, outputs)]
    shares = [*held, written.elements / _MOST_WRITTEN, flops.get_total_flops() / _MOST_FLOPS]
    return max(shares), sum(shares)


class _TooManyOperations(Exception):
    pass


class _WrittenElements(TorchDispatchMode):
    """Counts the elements that operations give. Raises _TooManyOperations after `_MOST_OPERATIONS`, which take
    seconds."""

    elements = 0
    operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        if self.operations > _MOST_OPERATIONS:
            raise _TooManyOperations
        result = func(*args, **(kwargs or {}))
        self.elements += sum(tensor.numel() for tensor in nesting.flatten(result)[1])
        return result
