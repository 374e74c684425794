"""A task's reference program, with its sizes overridden by name.

It runs in the judge's own process, since tasks are trusted. A candidate's text must never be run here.
"""

from __future__ import annotations

import ast
import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import nn

from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.shared.construct import construct
from evaluators.syntax import parse_source

_CACHED_TASKS = 64


def program_source(task: Task) -> str:
    """The task's source with the values of its size constants replaced by `task.sizes`.

    Only module-level assignments are changed (`batch_size = 16`, `height, width = 32, 32`). Constants that are derived
    from them follow. Raises ValueError for a size that the program does not define.
    """
    if not task.sizes:
        return task.source
    tree = parse_source(task.source)
    missing = set(task.sizes)
    spans: list[tuple[ast.expr, str]] = []
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in task.sizes:
                spans.append((node.value, repr(task.sizes[target.id])))
                missing.discard(target.id)
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for name, value in zip(target.elts, node.value.elts, strict=True):
                    if isinstance(name, ast.Name) and name.id in task.sizes:
                        spans.append((value, repr(task.sizes[name.id])))
                        missing.discard(name.id)
    if missing:
        raise ValueError(f"task {task.id}: no module-level constant named {', '.join(sorted(missing))}")
    lines = task.source.encode().splitlines(keepends=True)  # ast columns count UTF-8 bytes
    for value, text in sorted(spans, key=lambda span: (span[0].lineno, span[0].col_offset), reverse=True):
        first, last = value.lineno - 1, (value.end_lineno or value.lineno) - 1
        head, tail = lines[first][: value.col_offset], lines[last][value.end_col_offset :]
        lines[first : last + 1] = [head + text.encode() + tail]
    return b"".join(lines).decode()


class ProgramError(ValueError):
    """A task's own program fails. That is no verdict on any candidate."""


class TaskProgram:
    """The executed reference module of a task. Whatever its functions raise is raised again as ProgramError."""

    def __init__(self, task: Task, device: torch.device | None = None, *, any_strides: bool = False) -> None:
        """`device`: for inputs and models. `any_strides`: outputs need not have the strides of the reference's. Raises
        ProgramError if the program does not run, or is not in KernelBench's format."""
        self.task = task
        self._any_strides = any_strides
        self.device = device or torch.device("cpu")
        self._generators = [torch.default_generator]
        if self.device.type == "cuda":
            self._generators.append(torch.cuda.default_generators[self.device.index or 0])
        module = ModuleType(f"task_{task.digest}")
        with self._running(0, "import"):
            self.source = program_source(task)
            exec(compile(self.source, f"<task {task.id}>", "exec"), module.__dict__)
        self._module = module
        for name in ("Model", "get_inputs", "get_init_inputs"):
            if not hasattr(module, name):
                raise ProgramError(f"task {task.id}: the program does not define {name}")

    def resized(self, **sizes: Any) -> TaskProgram:
        """The program of the same task at other sizes. Raises ProgramError if it does not run."""
        return TaskProgram(self.task.with_sizes(**sizes), self.device, any_strides=self._any_strides)

    def seed(self, seed: int) -> None:
        """Seeds every generator that the program may draw from, as a runner does before a call."""
        for generator in self._generators:
            generator.manual_seed(seed)

    @contextlib.contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Within this block, random numbers come from the seed. Afterwards the generators continue as before it."""
        states = [generator.get_state() for generator in self._generators]
        self.seed(seed)
        try:
            yield
        finally:
            for generator, state in zip(self._generators, states, strict=True):
                generator.set_state(state)

    @contextlib.contextmanager
    def _running(self, seed: int, part: str) -> Iterator[None]:
        """Within this block, a `part` of the program runs under a seed. Raises ProgramError if it fails."""
        with self.seeded(seed):
            try:
                yield
            except Exception as error:
                raise ProgramError(f"task {self.task.id}: {part} fails: {error!r}") from error

    def init_inputs(self, seed: int) -> list[Any]:
        """The arguments of the constructor."""
        with self._running(seed, "get_init_inputs"):
            return list(self._module.get_init_inputs())

    def inputs(self, seed: int) -> list[Any]:
        """Fresh inputs of one call, drawn on the device under a seed."""
        with self._running(seed, "get_inputs"), self.device:
            values = list(self._module.get_inputs())
        _, tensors = nesting.flatten(values)
        return nesting.unflatten(values, [tensor.to(self.device) for tensor in tensors])

    def model(self, seed: int, init_inputs: list[Any], on_host: bool = False) -> nn.Module:
        """The reference model, constructed under a seed: on the device, or `on_host` and then moved to the device."""
        with self._running(seed, "Model"):
            return construct(lambda: self._module.Model(*init_inputs), self.device, lambda: self.seed(seed), on_host)

    def output_spec(self, seed: int, init_inputs: list[Any], inputs: list[Any]) -> nesting.Spec:
        """The form that outputs on `inputs` must have: that of the reference's, from a model that is constructed for
        this call."""
        model = self.model(seed, init_inputs)
        with self._running(seed, "forward"), torch.no_grad():
            spec = nesting.flatten(model(*inputs))[0]
        return nesting.of_any_strides(spec) if self._any_strides else spec


class TaskPrograms:
    """The executed programs of the tasks that were used last, at most 64."""

    def __init__(self, device: torch.device, *, any_strides: bool = False) -> None:
        """`any_strides`: see `TaskProgram`."""
        self._device, self._any_strides = device, any_strides
        self._programs: OrderedDict[str, TaskProgram] = OrderedDict()

    def get(self, task: Task) -> TaskProgram:
        """The program of a task, executed now or before. Raises ProgramError if it does not run."""
        if task.digest not in self._programs:
            self._programs[task.digest] = TaskProgram(task, self._device, any_strides=self._any_strides)
            if len(self._programs) > _CACHED_TASKS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(task.digest)
        return self._programs[task.digest]
