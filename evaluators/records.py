"""The records that cross layers and processes, with their Arrow schemas (docs/architecture.md, "Records").

They are frozen, plain data, and Parquet is their one storage format. Nothing here may import torch or ray.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import msgspec
import pyarrow as pa

from evaluators.syntax import normalised_source


class Outcome(StrEnum):
    """The result of an evaluation. `INFRA` is our own failure, never the candidate's, and is retried, unless a run has
    set the candidate aside, since it lost too many workers."""

    OK = "ok"
    WRONG = "wrong"
    BUILD_ERROR = "build_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    SUSPECT = "suspect"
    HACK = "hack"
    INFRA = "infra"


def digest_of(text: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of `text`, which name a thing by its content."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Task:
    """A reference program in KernelBench's format.

    `sizes` overrides module-level constants by name without changing `source`; `evaluators.tasks.program_source` gives
    the text with the overrides applied. `tags` are free words (`matmul`, `reduction`).
    """

    id: str
    level: int
    name: str
    source: str
    tags: tuple[str, ...] = ()
    sizes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Names the task by its source and sizes. Verdicts and baselines belong to one digest."""
        return digest_of(self.source + repr(sorted(self.sizes.items())))

    @property
    def text_digest(self) -> str:
        """Names the task by its program's text alone, at whatever sizes, for statements that hold for no other text.
        Blanks at the ends of lines do not count, so that a copy in another file has the same digest."""
        return digest_of("\n".join(line.rstrip() for line in self.source.strip().splitlines()))

    def with_sizes(self, **sizes: Any) -> Task:
        """The same task at other sizes: `task.with_sizes(batch_size=64)`."""
        return replace(self, sizes={**self.sizes, **sizes})


@dataclass(frozen=True)
class Candidate:
    """Source text that defines `ModelNew`, proposed for a task.

    `author`: `teacher:NAME`, `policy:VERSION`, or a file.
    """

    digest: str
    task_id: str
    source: str
    author: str

    @classmethod
    def propose(cls, task_id: str, source: str, author: str) -> Candidate:
        """Makes the candidate with its digest, which is that of the task's id and the normalised source."""
        return cls(digest_of(f"{task_id}\n{normalised_source(source)}"), task_id, source, author)


@dataclass(frozen=True)
class Artifact:
    """The result of a build.

    `path`: a folder for what the candidate compiles as it runs (Inductor, Triton). `extensions`: those that it asks
    for, each with the key of the request and the digest under which the build cache has it. `store`: the identity of
    the store that has it. `seconds`: how long building took when it was done.
    """

    digest: str
    kind: str
    path: str
    arch: str
    extensions: tuple[tuple[str, str], ...] = ()
    store: str = ""
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class BuildError:
    """Why a candidate did not build. `stage`: `parse`, `import` or `compile`. `message` is cut to a length that a model
    can use."""

    stage: str
    message: str
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Estimate:
    """A measured figure and its 95 % confidence interval over `n` samples."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Correctness:
    """How the outputs compared with the expected ones.

    `trials`: the number of inputs on which outputs were compared, timed calls included. `error` and `tolerance` are
    relative (`evaluators.judge.correctness`). `deterministic`: whether the same call gave the same bits twice; None if
    the reference itself does not.
    """

    trials: int
    error: float
    tolerance: float
    deterministic: bool | None = None


@dataclass(frozen=True)
class ClockSample:
    """The state of a GPU at one moment, `seconds` after the evaluator started.

    Clocks are in MHz, the temperature in °C. `throttled_by`: the reasons for which it runs slower than it could, words
    that are separated by blanks.
    """

    seconds: float
    sm_mhz: int
    memory_mhz: int
    celsius: int
    throttled_by: str


@dataclass(frozen=True)
class Timing:
    """Seconds per call of both sides, and why sampling stopped.

    `pairs`: the number of pairs of bursts. `clock_disagreement`: the share of the candidate's time that the judge's
    clock saw and the runner's did not, beyond that of the reference; large values are evidence of work outside the
    timed region. `clocks`: the GPU's state beside each pair.
    """

    candidate_seconds: Estimate
    reference_seconds: Estimate
    pairs: int
    stopped_by: str
    clock_disagreement: float
    clocks: tuple[ClockSample, ...] = ()


@dataclass(frozen=True)
class KernelUse:
    """A kernel that a call of the candidate ran: how often, on which stream, for how many seconds in all.

    `own`: whether the candidate brought it, rather than torch or one of its libraries.
    """

    name: str
    own: bool
    stream: int
    calls: int
    seconds: float


@dataclass(frozen=True)
class Trace:
    """The work of a GPU in one call.

    `kernels`: the longest ones. `gpu_seconds`: during which any kernel ran. `own_kernel_share`: the share of kernel
    time in kernels that the candidate brought. `streams`: on how many the kernels ran. `outside_seconds`: of kernels
    before or after the events by which a call is timed.
    """

    kernels: tuple[KernelUse, ...]
    gpu_seconds: float
    own_kernel_share: float
    streams: int
    outside_seconds: float = 0.0


JUDGED_ON = "judged_on"
"""The key in `Verdict.evaluator` that says `cpu` for a program that a look by a builder ended."""

DROP_IN, VALUES = "drop_in", "values"
"""How strictly a program is judged (`evaluators.judge.demands`)."""

HINT, SUSPECT, HACK = "hint", "suspect", "hack"
"""Severities of findings. A hint changes no outcome."""
BLIND_TASK = "task"
"""The kind of finding on a task that cannot tell a good program from a cheat."""


@dataclass(frozen=True)
class Finding:
    """One piece of evidence, in a sentence that a person understands. `severity`: `hint`, `suspect` or `hack`."""

    kind: str
    severity: str
    message: str


@dataclass(frozen=True)
class Verdict:
    """The outcome of evaluating one candidate on one architecture.

    `speedups` maps a baseline's name to the speed-up over it, and is empty unless `outcome` is `ok`. `doubted` holds
    the measured speed-ups of a `suspect` or a `hack`: they earn no reward, but are restored if a person clears the
    program. `guard`: the findings. `evaluator` says how it was measured (preset, versions, active containment). `cost`:
    seconds by stage; `compile` is how long building took, whenever that was. `strict`: `drop_in` or `values`.
    `measurements`: the speed-ups over eager of each measurement of a program that was measured again because it seemed
    the fastest of its task. The first one is not part of `speedups`. Empty for other programs.
    """

    candidate: str
    task: str
    arch: str
    outcome: Outcome
    message: str = ""
    correctness: Correctness | None = None
    speedups: Mapping[str, Estimate] = field(default_factory=dict)
    timing: Timing | None = None
    guard: tuple[Finding, ...] = ()
    evaluator: Mapping[str, str] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    trace: Trace | None = None
    doubted: Mapping[str, Estimate] = field(default_factory=dict)
    strict: str = DROP_IN
    measurements: tuple[Estimate, ...] = ()

    @property
    def succeeded(self) -> bool:
        """Whether the candidate built, ran and was correct."""
        return self.outcome is Outcome.OK

    @property
    def best_baseline(self) -> str | None:
        """The name of the baseline that is hardest to beat, or None without speed-ups."""
        return min(self.speedups, key=lambda name: self.speedups[name].value) if self.speedups else None

    @property
    def speedup(self) -> float | None:
        """The speed-up over eager, or None without one."""
        return self.speedup_over("eager")

    def speedup_over(self, baseline: str) -> float | None:
        """The speed-up over a baseline, or over the one that is hardest to beat (`best`); None without it."""
        estimate = self.estimate_over(baseline)
        return estimate.value if estimate else None

    def estimate_over(self, baseline: str) -> Estimate | None:
        """The same with its interval."""
        return self.speedups.get((self.best_baseline or "") if baseline == "best" else baseline)

    @property
    def deciding(self) -> tuple[Finding, ...]:
        """The findings that are more than hints."""
        return tuple(finding for finding in self.guard if finding.severity != HINT)

    def cleared(self, finding: Finding) -> Verdict:
        """A doubted verdict after somebody trusted has said that the program is honest, which `finding`, a hint,
        records. All earlier findings become hints, too."""
        return replace(
            self,
            outcome=Outcome.OK,
            speedups={**self.speedups, **self.doubted},
            doubted={},
            guard=(*(replace(earlier, severity=HINT) for earlier in self.guard), finding),
        )

    def doubted_by(self, finding: Finding) -> Verdict:
        """The verdict with one more finding, `suspect` or `hack`, which decides the outcome, whatever it was before."""
        return replace(
            self,
            outcome=Outcome(finding.severity),
            speedups={},
            doubted={**self.doubted, **self.speedups},
            guard=(*self.guard, finding),
        )

    def to_row(self) -> dict[str, Any]:
        """The verdict as a row of `VERDICT_SCHEMA`, which can be written as JSON, too."""
        return {**asdict(self), "outcome": str(self.outcome)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Verdict:
        """The inverse of `to_row`. Also reads rows as pyarrow's `to_pylist` gives them, and rows of older versions.

        Raises msgspec.ValidationError for a row that is no verdict's.
        """
        columns = _without_nulls(row)
        for name in _MAPS & columns.keys():
            columns[name] = dict(columns[name])
        for name in _STRUCTS & columns.keys():
            columns[name] = _without_nulls(columns[name])
        with _CONVERTING:
            return msgspec.convert(columns, cls)


# msgspec 0.22 ends the process if threads convert to a class at once that it has not seen before.
_CONVERTING = threading.Lock()
_MAPS = {"speedups", "evaluator", "cost", "doubted"}  # as `to_pylist` gives them, they are lists of pairs
_STRUCTS = {"correctness", "timing", "trace"}


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without its null columns or fields. They stand for their defaults: for None, or for what an older writer
    did not know."""
    return {name: value for name, value in row.items() if value is not None}


_TEXT, _FLOAT, _INT, _BOOL = pa.string(), pa.float64(), pa.int64(), pa.bool_()


def _struct(**types: pa.DataType) -> pa.DataType:
    return pa.struct(list(types.items()))


_ESTIMATE = _struct(value=_FLOAT, low=_FLOAT, high=_FLOAT, n=_INT)
_CORRECTNESS = _struct(trials=_INT, error=_FLOAT, tolerance=_FLOAT, deterministic=_BOOL)
_CLOCK_SAMPLE = _struct(seconds=_FLOAT, sm_mhz=_INT, memory_mhz=_INT, celsius=_INT, throttled_by=_TEXT)
_TIMING = _struct(
    candidate_seconds=_ESTIMATE,
    reference_seconds=_ESTIMATE,
    pairs=_INT,
    stopped_by=_TEXT,
    clock_disagreement=_FLOAT,
    clocks=pa.list_(_CLOCK_SAMPLE),
)
_FINDING = _struct(kind=_TEXT, severity=_TEXT, message=_TEXT)
_KERNEL_USE = _struct(name=_TEXT, own=_BOOL, stream=_INT, calls=_INT, seconds=_FLOAT)
_TRACE = _struct(
    kernels=pa.list_(_KERNEL_USE), gpu_seconds=_FLOAT, own_kernel_share=_FLOAT, streams=_INT, outside_seconds=_FLOAT
)

CANDIDATE_SCHEMA = pa.schema([(name, _TEXT) for name in ("digest", "task_id", "source", "author")])

VERDICT_SCHEMA = pa.schema(
    [
        ("candidate", _TEXT),
        ("task", _TEXT),
        ("arch", _TEXT),
        ("outcome", _TEXT),
        ("message", _TEXT),
        ("correctness", _CORRECTNESS),
        ("speedups", pa.map_(_TEXT, _ESTIMATE)),
        ("timing", _TIMING),
        ("guard", pa.list_(_FINDING)),
        ("trace", _TRACE),
        ("evaluator", pa.map_(_TEXT, _TEXT)),
        ("cost", pa.map_(_TEXT, _FLOAT)),
        ("doubted", pa.map_(_TEXT, _ESTIMATE)),
        ("strict", _TEXT),
        ("measurements", pa.list_(_ESTIMATE)),
    ]
)


def verdict_table(verdicts: Iterable[Verdict]) -> pa.Table:
    """Verdicts as an Arrow table of `VERDICT_SCHEMA`."""
    return pa.Table.from_pylist([verdict.to_row() for verdict in verdicts], schema=VERDICT_SCHEMA)


def candidate_table(candidates: Iterable[Candidate]) -> pa.Table:
    """Candidates as an Arrow table of `CANDIDATE_SCHEMA`."""
    return pa.Table.from_pylist([asdict(candidate) for candidate in candidates], schema=CANDIDATE_SCHEMA)
