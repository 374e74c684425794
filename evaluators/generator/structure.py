"""A digest of what a program computes: its operators and their wiring, whatever its names, sizes and constants.

The program runs once on torch's `meta` device, where tensors have shapes alone, and each operator that it calls is
recorded. So two programs of the same operators have one digest, whether they call functions or modules. Two programs
that compute the same by other operators have different digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from evaluators.records import Task, digest_of
from evaluators.shared import nesting
from evaluators.tasks import ProgramError, TaskProgram
from evaluators.tasks.shapes import input_sizes

_TRANSPARENT = frozenset(
    ("view", "_unsafe_view", "reshape", "expand", "alias", "detach", "clone", "contiguous", "lift_fresh", "unsqueeze",
     "squeeze", "copy", "to", "_to_copy", "_reshape_alias", "_conj", "resolve_conj")
)  # fmt: skip
_COMMUTATIVE = frozenset(("add", "mul", "maximum", "minimum"))
_SAME = {"sub": "add", "div": "mul", "t": "transpose", "rsub": "add", "true_divide": "mul"}
"""Names that stand for another operator if their second operand is a number (or always, for `t`)."""
_MOST_OPERATIONS = 4000  # of a call: a recurrent network has as many as its sequence is long
_FEW = 8

Entry = tuple[str, tuple[Any, ...]]


class UntraceableError(Exception):
    """A program does not run without values."""


class _TooManyOperationsError(Exception):
    pass


def structure_digest(task: Task) -> str:
    """The digest of a task's structure. A program of very many operations is traced with the sizes of its inputs cut to
    a few. Raises UntraceableError."""
    try:
        return _digest(task)
    except _TooManyOperationsError:
        few = {name: min(size, _FEW) for name, size in input_sizes(task).items()}
        try:
            return _digest(task.with_sizes(**few))
        except _TooManyOperationsError:
            raise UntraceableError(f"{task.id}: more than {_MOST_OPERATIONS} operations") from None


def _digest(task: Task) -> str:
    device = torch.device("meta")
    try:
        program = TaskProgram(task, device)
        init_inputs = program.init_inputs(0)
        inputs = program.inputs(0)
        model = program.model(0, init_inputs)
        with torch.no_grad(), device, _Recorder(model, nesting.flatten(inputs)[1]) as recorder:
            output = model(*inputs)
        outputs = nesting.flatten(output)[1]
    except _TooManyOperationsError:
        raise
    except Exception as error:  # a program may fail without values in any way
        reason = error if isinstance(error, ProgramError) else repr(error)
        raise UntraceableError(f"{task.id}: {' '.join(str(reason).split())[:200]}") from error
    return digest_of("\n".join(recorder.canonical([recorder.number(tensor) for tensor in outputs])))


class _Recorder(TorchDispatchMode):
    """Numbers the values of a run. Equal operators on equal values get one number, so that it makes no difference
    whether a program computes a thing once or twice."""

    def __init__(self, model: torch.nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self._entries: list[Entry] = []
        self._numbers: dict[Entry, int] = {}
        self._of_tensor: dict[int, int] = {}
        self._operations = 0
        self._held: list[Tensor] = []  # so that no address is used twice
        leaves = [("input", inputs), ("weight", list(model.parameters())), ("buffer", list(model.buffers()))]
        for kind, tensors in leaves:
            for index, tensor in enumerate(tensors):
                self._bind(tensor, self._enter((kind, (index,))))

    def _enter(self, entry: Entry) -> int:
        if entry not in self._numbers:
            self._numbers[entry] = len(self._entries)
            self._entries.append(entry)
        return self._numbers[entry]

    def _bind(self, tensor: Tensor, number: int) -> None:
        self._held.append(tensor)
        self._of_tensor[id(tensor)] = number

    def number(self, tensor: Tensor) -> int:
        """The number of a tensor's value. A tensor from nowhere is a constant of its own."""
        if id(tensor) not in self._of_tensor:
            self._bind(tensor, self._enter(("constant", (len(self._held),))))
        return self._of_tensor[id(tensor)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._operations += 1
        if self._operations > _MOST_OPERATIONS:
            raise _TooManyOperationsError
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        arguments = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | kwargs
        tensors = [value for value in args if isinstance(value, Tensor)]
        if name in _TRANSPARENT and tensors:
            number = self.number(tensors[-1] if name == "copy" else tensors[0])
        else:
            described = tuple(self._describe(key, value, tensors, name) for key, value in arguments.items())
            number = self._enter((_renamed(name, described), tuple(part for part in described if part != ("", ""))))
        result = func(*args, **kwargs)
        results = nesting.flatten(result)[1] if not isinstance(result, Tensor) else [result]
        for index, tensor in enumerate(results):
            own = number if len(results) == 1 else self._enter(("part", (("v", number), ("n", str(index)))))
            self._bind(tensor, own)
        return result

    def _describe(self, key: str, value: Any, tensors: Sequence[Tensor], name: str) -> tuple[str, Any]:
        """An argument without its sizes: the number of a tensor, an axis, a flag, or the kind of value."""
        if isinstance(value, Tensor):
            return ("v", self.number(value))
        if isinstance(value, list | tuple) and any(isinstance(each, Tensor) for each in value):
            return ("vs", tuple(self.number(each) for each in value if isinstance(each, Tensor)))
        if key.startswith("dim") and tensors and not isinstance(value, bool):
            rank = tensors[0].dim()
            axes = value if isinstance(value, list | tuple) else [value]
            return ("d", ",".join(sorted(_axis(axis, rank) for axis in axes if isinstance(axis, int))))
        if key == "groups" and len(tensors) > 1:
            return ("g", "one" if value == 1 else "each" if value == tensors[0].shape[1] else "some")
        if key in ("stride", "padding", "output_padding") and isinstance(value, list | tuple):
            return ("n", str(len(value)))
        if isinstance(value, bool):
            return ("b", str(value))
        if isinstance(value, str):
            return ("s", value)
        if isinstance(value, int | float):
            return ("n", "#")
        return ("", "")

    def canonical(self, outputs: Sequence[int]) -> list[str]:
        """The values that the outputs depend on, one a line, numbered in the order of a walk from the outputs."""
        shapes = self._anonymous()
        places: dict[int, int] = {}
        lines: list[str] = []
        leaves: dict[str, int] = {}
        queue = [(number, False) for number in reversed(outputs)]
        while queue:
            number, is_done = queue.pop()
            if number in places:
                continue
            name, parts = self._entries[number]
            children = _children(parts)
            if name in _COMMUTATIVE:
                children = sorted(children, key=lambda child: shapes[child])
            if children and not is_done:
                queue.append((number, True))
                queue += [(child, False) for child in reversed(children)]
                continue
            if name in ("input", "weight", "buffer", "constant"):
                leaves[name] = leaves.get(name, -1) + 1
                lines.append(f"{name} {leaves[name]}")
            else:
                flags = [f"{kind}{value}" for kind, value in parts if kind not in ("v", "vs")]
                lines.append(f"{name} {[places[child] for child in children]} {flags}")
            places[number] = len(places)
        return [*lines, f"return {[places[number] for number in outputs]}"]

    def _anonymous(self) -> list[str]:
        """A digest of each value in which all inputs are alike, and all weights: the order of operands that commute."""
        digests: list[str] = []
        for name, parts in self._entries:
            if name in ("input", "weight", "buffer", "constant"):
                digests.append(name)
                continue
            children = [digests[child] for child in _children(parts)]
            children = sorted(children) if name in _COMMUTATIVE else children
            digests.append(digest_of(repr((name, children, [part for part in parts if part[0] not in ("v", "vs")]))))
        return digests


def _children(parts: Sequence[Any]) -> list[int]:
    numbers: list[int] = []
    for part in parts:
        if isinstance(part, tuple) and part[0] == "v":
            numbers.append(part[1])
        elif isinstance(part, tuple) and part[0] == "vs":
            numbers += part[1]
    return numbers


def _axis(axis: int, rank: int) -> str:
    """The last axis, whatever the rank, or the number of another."""
    axis = axis % max(rank, 1)
    return "last" if axis == rank - 1 else str(axis)


def _renamed(name: str, described: Sequence[tuple[str, Any]]) -> str:
    with_number = len(described) > 1 and described[1][0] == "n"
    return _SAME[name] if name in _SAME and (with_number or name == "t") else name
