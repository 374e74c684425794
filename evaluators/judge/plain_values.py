"""Whether a program's values are plainly wrong on a CPU, so that no GPU is needed to say so.

Runs in the judge's process (trusted). It must never find values wrong that might be right on another device, or at the
task's own sizes. So it asks for far more than a comparison on a GPU does:

- The text says that the program computes the same function everywhere (`evaluators.judge.straight_line`).
- The reference is no source of differences: it draws no numbers, keeps no state, and float64 explains its values.
- A size of the inputs is made smaller only if the reference's outputs are then a part of those at the larger size, and
  if no number of the model is equal to it.
- An output is off by more than twice the most that any comparison allows, on two inputs with other weights.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from evaluators.failures import RunnerFailure
from evaluators.host.claims import StateForm
from evaluators.host.device import Device
from evaluators.host.look import outputs_of
from evaluators.host.runner_handle import RunnerHandle
from evaluators.judge.correctness import (
    ERROR_FACTOR,
    MAX_TOLERANCE,
    Comparison,
    compare,
    is_inexact,
    relative_errors,
    worst_of,
)
from evaluators.judge.expectation import Expectation
from evaluators.judge.straight_line import is_straight_line, numbers_of_model
from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.tasks import ProgramError, TaskProgram
from evaluators.tasks.shapes import input_sizes

PLAINLY_WRONG = 2 * MAX_TOLERANCE
"""The least error of a plainly wrong output, relative to its root mean square: no comparison allows half of it."""

_TRIALS = 2
_FINITE = 0.9  # the least share of finite elements; if fewer are, the output is plainly wrong
_SAME = 1e-4  # relative error between equal parts of outputs: sums may have another order
_LEAST_MAGNITUDE = 1e-6  # of an output's root mean square
_MOST_SECONDS = 4.0  # of all threads, for a call of the reference
_MORE = 8  # times a size, to find out what depends on it
_ALIKE = 1.5  # the most by which the magnitude of inputs may change with a size
_MOST_BYTES = 1 << 30  # that all operators of a call of the reference write


@dataclass(frozen=True)
class _Trial:
    """What both sides are given: weights, the seed of their construction, inputs, and the seed of the call."""

    weights_seed: int
    model: nn.Module
    inputs: list[Any]
    seed: int


@dataclass(frozen=True)
class PlainDifference:
    """How an output is plainly wrong: the judge's `comparison`, the root mean square `error` of its finite elements
    (the less one of two inputs), and `where`: the sizes of the inputs."""

    comparison: Comparison
    error: float
    where: str
    trials: int = _TRIALS

    def describe(self) -> str:
        """The figures, for a verdict."""
        sizes = f" at {self.where}" if self.where else ""
        return (
            f"{self.comparison.reason} (on a CPU{sizes}; root mean square error {self.error:.2e},"
            f" and no comparison allows more than {MAX_TOLERANCE})"
        )


class PlainValues:
    """The values of one task at sizes at which plainly wrong ones are wrong everywhere. `task`: at these sizes."""

    def __init__(self, program: TaskProgram, numbers: set[float]) -> None:
        """`program`: at these sizes. `numbers`: of the reference's text. Raises ProgramError."""
        self.task, self._program, self._numbers = program.task, program, numbers
        trial = self._draw()
        self._spec = nesting.flatten(self._call(trial.model, trial))[0]

    @classmethod
    def of(cls, task: Task, small: Mapping[str, int]) -> PlainValues | None:
        """Those of a task, at some `small` sizes at which the reference runs. None if the reference's values might not
        decide, or if they take too long. Raises ProgramError."""
        numbers = numbers_of_model(task)
        if numbers is None:
            return None
        decisive = task.with_sizes(**_decisive_sizes(task, small))
        if _bytes_written(decisive) > _MOST_BYTES:
            return None
        values = cls(TaskProgram(decisive), numbers)
        return values if values._are_sound() else None

    def may_decide(self, source: str) -> bool:
        """Whether the program's text says that its values are the same function of its inputs everywhere."""
        return is_straight_line(source, self._numbers)

    def difference(
        self,
        runner: RunnerHandle,
        device: Device,
        left: Callable[[], float],
        *,
        keep_weights: bool,
    ) -> PlainDifference | None:
        """Calls the program that the runner has loaded, on a CPU. Returns how a plainly wrong output differs; None if
        the program fails, or if an output is not plainly wrong. `left`: seconds that are left. `keep_weights`: both
        sides keep the weights of construction. Raises InfraError and ProgramError."""
        least, found = math.inf, None
        try:
            for _ in range(_TRIALS):
                trial = self._draw()
                self._give_weights(runner, trial, left, keep_weights=keep_weights)
                reference = nesting.flatten(self._call(trial.model, trial))[1]
                outputs = outputs_of(runner, trial.inputs, self._spec, device, trial.seed, left())
                least = min(least, _largest_error(outputs, reference))
                if not least > PLAINLY_WRONG:
                    return None
                found = trial, reference, outputs
        except RunnerFailure:
            return None
        assert found is not None
        comparison = self._comparison(*found)
        return None if comparison.passes else PlainDifference(comparison, least, self._where())

    def _give_weights(
        self, runner: RunnerHandle, trial: _Trial, left: Callable[[], float], *, keep_weights: bool
    ) -> None:
        """Constructs the candidate's model and gives it the reference's weights, as a judgement does: new ones, if both
        states agree by name; otherwise equal seeds must give equal weights. Raises RunnerFailure."""
        state = trial.model.state_dict()
        if state and not keep_weights:
            own = [nesting.form_of(name, value) for name, value in state.items()]
            forms = self._construct(runner, secrets.randbits(48), left())
            if sorted(own) == sorted([form.name, form.dtype, [*form.shape]] for form in forms):
                runner.set_state(state, left())
                return
        self._construct(runner, trial.weights_seed, left())

    def _construct(self, runner: RunnerHandle, seed: int, timeout: float) -> list[StateForm]:
        return runner.construct(seed, self._program.init_inputs(seed), timeout, on_host=True, final=False)[0]

    def _comparison(self, trial: _Trial, reference: list[Tensor], outputs: list[Tensor]) -> Comparison:
        """The judge's comparison with the reference in float64."""
        expectation = Expectation(self._program, self._model(trial.weights_seed))
        expected, own, _ = expectation.expect(trial.inputs, trial.seed, reference)
        dtypes = [tensor.dtype for tensor in reference]
        return worst_of([compare(*each) for each in zip(outputs, expected, own, dtypes, strict=True)])

    def _where(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in input_sizes(self.task).items())

    def _draw(self) -> _Trial:
        weights_seed, inputs_seed, seed = (secrets.randbits(48) for _ in range(3))
        return _Trial(weights_seed, self._model(weights_seed), self._program.inputs(inputs_seed), seed)

    def _model(self, seed: int) -> nn.Module:
        return self._program.model(seed, self._program.init_inputs(seed), on_host=True)

    def _call(self, model: nn.Module, trial: _Trial, seed: int | None = None) -> Any:
        """The reference's output on a copy of the trial's inputs. Raises ProgramError."""
        inputs = nesting.unflatten(trial.inputs, [tensor.clone() for tensor in nesting.flatten(trial.inputs)[1]])
        return _run(self._program, model, inputs, trial.seed if seed is None else seed)

    def _are_sound(self) -> bool:
        """Whether the reference gives the same values whatever was called before and whatever the seed is, in time, and
        whether these are the values of its formula and of no rounding error."""
        trial = self._draw()
        first = nesting.flatten(self._call(trial.model, trial))[1]
        start = time.process_time()
        again = nesting.flatten(self._call(trial.model, trial, secrets.randbits(48)))[1]
        if time.process_time() - start > _MOST_SECONDS or not all(map(torch.equal, first, again)):
            return False
        inexact = [output for output in first if is_inexact(output.dtype)]
        if not inexact or not all(_has_magnitude(output) for output in inexact):
            return False
        nearby = Expectation(self._program, self._model(trial.weights_seed)).expect_rounded(
            trial.inputs, trial.seed, first
        )
        return nearby is not None and all(ERROR_FACTOR * max(errors) <= MAX_TOLERANCE for errors in nearby[1])


def _has_magnitude(output: Tensor) -> bool:
    return bool(torch.isfinite(output).all()) and _rms(output) > _LEAST_MAGNITUDE


def _rms(values: Tensor) -> float:
    magnitudes = values.abs() if values.is_complex() else values
    return float(magnitudes.to(torch.float64).square().mean().sqrt())


def _largest_error(outputs: list[Tensor], expected: list[Tensor]) -> float:
    """The largest error of an output that carries rounding errors."""
    pairs = zip(outputs, expected, strict=True)
    return max(_error(actual, exact) for actual, exact in pairs if is_inexact(exact.dtype))


def _error(actual: Tensor, expected: Tensor) -> float:
    """The relative root mean square error of the finite elements; infinite if too few are finite. Single elements that
    are not may be so by rounding."""
    finite = torch.isfinite(actual)
    if float(finite.to(torch.float64).mean()) < _FINITE:
        return math.inf
    return relative_errors(actual[finite], expected[finite])[0]


def _run(program: TaskProgram, model: nn.Module, inputs: list[Any], seed: int) -> Any:
    """A call of the reference. Raises ProgramError."""
    with program.seeded(seed), torch.no_grad():
        try:
            return model(*inputs)
        except Exception as error:
            raise ProgramError(f"task {program.task.id}: forward fails: {error!r}") from error


# Sizes


def _decisive_sizes(task: Task, small: Mapping[str, int]) -> dict[str, int]:
    """Sizes of the inputs at which a plainly wrong output is wrong at the task's own sizes, too: the `small` one where
    the reference's outputs are a part of those at larger sizes, else the task's own. A size that is also a number of
    the model stays, since a program may take one for the other."""
    own = input_sizes(task)
    numbers = _numbers_of_forms(task, small)
    sizes = {name: value if value in numbers else small[name] for name, value in own.items()}
    kept = {name for name, value in own.items() if sizes[name] < value and not _gives_parts(task, sizes, name, value)}
    return {name: own[name] if name in kept else value for name, value in sizes.items()}


def _numbers_of_forms(task: Task, small: Mapping[str, int]) -> set[int]:
    """The numbers of the constructor, and the dimensions of weights and of inputs that do not depend on the sizes."""
    program, resized = (TaskProgram(one, torch.device("meta")) for one in (task, task.with_sizes(**small)))
    init_inputs = program.init_inputs(0)
    numbers = {value for value in _leaves(init_inputs) if isinstance(value, int)}
    for weight in program.model(0, init_inputs).state_dict().values():
        numbers |= {*weight.shape}
    inputs = (nesting.flatten(one.inputs(0))[1] for one in (program, resized))
    for large, other in zip(*inputs, strict=True):
        numbers |= {size for size, changed in zip(large.shape, other.shape, strict=False) if size == changed}
    return numbers


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list | tuple) else [value]


def _gives_parts(task: Task, sizes: Mapping[str, int], name: str, most: int) -> bool:
    """Whether the reference's outputs are a part of those for inputs with more of the size `name`, if its inputs are a
    part of those; and whether the inputs are as large there as here."""
    try:
        few = TaskProgram(task.with_sizes(**sizes))
        many = few.resized(**{name: min(most, _MORE * sizes[name])})
        seed = secrets.randbits(48)
        large, example = many.inputs(seed), few.inputs(seed)
        drawn = nesting.flatten(large)[1], nesting.flatten(example)[1]
        if not all(map(_are_alike, *drawn)):
            return False
        parts = _parts(*drawn)
        outputs = []
        for program, inputs in ((many, large), (few, nesting.unflatten(example, [part.clone() for part in parts]))):
            model = program.model(seed, program.init_inputs(seed))
            outputs.append(nesting.flatten(_run(program, model, inputs, seed))[1])
        whole, alone = outputs
        return all(map(_is_same, alone, _parts(whole, alone)))
    except (ProgramError, ValueError, IndexError):
        return False


def _parts(large: list[Tensor], small: list[Tensor]) -> list[Tensor]:
    """The beginnings of some tensors, of the shapes of others. Raises ValueError if there are none."""
    for one, other in zip(large, small, strict=True):
        if one.dim() != other.dim() or any(a < b for a, b in zip(one.shape, other.shape, strict=True)):
            raise ValueError("the shapes differ otherwise than in size")
    return [one[tuple(map(slice, other.shape))] for one, other in zip(large, small, strict=True)]


def _are_alike(large: Tensor, small: Tensor) -> bool:
    """Whether the numbers of two inputs have about the same magnitude."""
    one, other = sorted((_rms(large), _rms(small)))
    return other <= _ALIKE * one or other == 0.0


def _is_same(one: Tensor, other: Tensor) -> bool:
    return relative_errors(one, other)[1] <= _SAME if is_inexact(one.dtype) else torch.equal(one, other)


class _Written(TorchFunctionMode):
    """Counts the bytes of the tensors that operators return."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.bytes += result.nbytes
        return result


def _bytes_written(task: Task) -> int:
    """Bytes that the operators of a call of the reference write, and of its weights and inputs. Raises ProgramError."""
    program = TaskProgram(task, torch.device("meta"))
    init_inputs, inputs = program.init_inputs(0), program.inputs(0)
    model = program.model(0, init_inputs)
    tensors = [*model.state_dict().values(), *nesting.flatten(inputs)[1]]
    with _Written() as written:
        _run(program, model, inputs, 0)
    return written.bytes + sum(tensor.nbytes for tensor in tensors)
