"""Writes a run in KernelBench's layout, so that its scripts score it: programs, `eval_results.json`, baseline times.

KernelBench divides a baseline's time by a program's. Both of ours were measured at other moments for each program, so a
quotient of the two would carry the machine's drift, which our paired speed-ups do not. So the `runtime` of a program is
the time of its task's baseline divided by its speed-up, and its scripts give our speed-ups. The time as it was measured
stands beside it (`metadata.warpsmith.measured_ms`).
"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs.schema import RunConfig
from evaluators.records import Outcome, Verdict
from orchestration.kernelbench.layout import NO_TIME, RESULTS, LayoutError, Problem
from orchestration.report.keys import ASSESSMENT, phase_order
from orchestration.report.rows import baselines_of
from orchestration.run.directory import RunDirectory

BASELINE_FILES = {
    "eager": "baseline_time_torch.json",
    "torch_compile": "baseline_time_torch_compile_inductor_default.json",
    "torch_compile_reduce_overhead": "baseline_time_torch_compile_inductor_reduce-overhead.json",
}
"""KernelBench's names of the files of our baselines. The others it does not have."""
BEST, ALL = "best", "all"
_NOT_COMPILED = {Outcome.BUILD_ERROR, Outcome.INFRA}


@dataclass(frozen=True)
class Entry:
    """A sample to export. `source` and `verdict`: None for a response without a program, or one that nobody judged."""

    source: str | None
    verdict: Verdict | None
    author: str = ""


@dataclass(frozen=True)
class Exported:
    """What was written. `runs`: by level, the folder of the run. `left_out`: tasks without a number of KernelBench."""

    runs: Mapping[int, Path]
    timing: Path
    problems: int
    kernels: int
    correct: int
    left_out: tuple[str, ...] = field(default=())


def export_run(run: RunDirectory, folder: Path, samples: str = BEST) -> Exported:
    """Writes a run below `folder`: `runs/NAME-level1/...` for each level, `results/timing/warpsmith-NAME/*.json`.

    `samples`: `best`, the run's best program of each task, as sample 0; `all`, those of the last stage. If `folder` is
    a checkout of KernelBench, all of its problems of a level get a result, a failed one if the run has no task of it,
    so that a share is of all of them. Raises LayoutError for a run of which nothing can be exported.
    """
    config = run.read_config()
    judged, sources = _judged(run, config)
    chosen = _best(run, config) if samples == BEST else _last_stage(run, judged, sources)
    numbered: dict[Problem, list[Entry]] = defaultdict(list)
    left_out = []
    for task_id, entries in chosen.items():
        if (problem := Problem.of_task(task_id)) is None:
            left_out.append(task_id)
        else:
            numbered[problem] += entries
    if not numbered:
        known = f"its tasks are {', '.join(sorted(left_out)[:3])}, ..." if left_out else "it has no sample of a stage"
        raise LayoutError(f"{run}: no task of it has a number of KernelBench (level1/23); {known}")
    names = {level: _names(folder, level, numbered) for level in sorted({problem.level for problem in numbered})}
    eager = _eager_milliseconds(judged.values(), config)
    runs = {}
    for level, of_level in names.items():
        runs[level] = folder / "runs" / f"{run.name}-level{level}"
        _write_level(runs[level], level, of_level, numbered, eager)
    timing = folder / "results" / "timing" / f"warpsmith-{run.name}"
    _write_baselines(timing, names, eager, baselines_of(judged.values()), config.evaluator.arch)
    entries = [entry for of_problem in numbered.values() for entry in of_problem]
    return Exported(
        runs,
        timing,
        len(numbered),
        sum(entry.source is not None for entry in entries),
        sum(entry.verdict is not None and entry.verdict.succeeded for entry in entries),
        tuple(sorted(left_out)),
    )


_ByTask = Mapping[str, Sequence[Entry]]


def _judged(run: RunDirectory, config: RunConfig) -> tuple[dict[str, Verdict], dict[str, tuple[str, str]]]:
    """By digest: the last verdict on the run's own architecture, and source and author."""
    judged = {}
    for row in run.verdicts.read().to_pylist():
        verdict = Verdict.from_row({name: value for name, value in row.items() if name not in ("phase", "step")})
        if verdict.arch == config.evaluator.arch:
            judged[verdict.candidate] = verdict
    rows = run.candidates.read().to_pylist()
    return judged, {row["digest"]: (row["source"], row["author"]) for row in rows}


def _best(run: RunDirectory, config: RunConfig) -> _ByTask:
    """The best program of every task that the run has sampled; none, as one failed sample, without a right one."""
    kernels = {each.task_id: each for each in run.kernels.read() if each.arch == config.evaluator.arch}
    sampled = set(run.samples.read(columns=["task_id"])["task_id"].to_pylist())
    return {
        task_id: [Entry(kernel.candidate.source, kernel.verdict, kernel.candidate.author)]
        if (kernel := kernels.get(task_id))
        else [Entry(None, None)]
        for task_id in sorted(sampled | kernels.keys())
    }


def _last_stage(
    run: RunDirectory, judged: Mapping[str, Verdict], sources: Mapping[str, tuple[str, str]]
) -> dict[str, list[Entry]]:
    """The samples of the last assessment, or of the last phase that learns nothing, in their order."""
    rows = run.samples.read(columns=["task_id", "candidate_digest"]).to_pylist()
    phases = {row["phase"] for row in rows}
    stages = [phase for phase in phases if phase.startswith(ASSESSMENT)] or list(phases)
    if not stages:
        return {}
    last = max(stages, key=lambda phase: phase_order(phase.removeprefix(ASSESSMENT)))
    by_task: dict[str, list[Entry]] = defaultdict(list)
    for row in rows:
        if row["phase"] == last:
            digest = row["candidate_digest"] or ""
            if digest and digest not in sources:
                raise LayoutError(f"{run}: has no program {digest} (a published run keeps none); export the run itself")
            source, author = sources.get(digest, (None, ""))
            by_task[row["task_id"]].append(Entry(source, judged.get(digest), author))
    return by_task


def _names(folder: Path, level: int, numbered: Iterable[Problem]) -> dict[int, str]:
    """By number, in order, the files of the problems of a level: all of a checkout in `folder`, and the run's."""
    places = [folder / "KernelBench" / f"level{level}", folder / f"level{level}"]
    names = {problem.number: f"{problem.number}_level{level}.py" for problem in numbered if problem.level == level}
    for path in (path for place in places for path in sorted(place.glob("*.py"))):
        if match := re.match(r"(\d+)_", path.name):
            names[int(match[1])] = path.name
    return dict(sorted(names.items()))


def _eager_milliseconds(verdicts: Iterable[Verdict], config: RunConfig) -> dict[str, float]:
    """By task, the median time of the reference beside the run's programs."""
    times: dict[str, list[float]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.timing is not None and verdict.arch == config.evaluator.arch:
            times[verdict.task].append(1e3 * verdict.timing.reference_seconds.value)
    return {task_id: statistics.median(values) for task_id, values in times.items()}


def _write_level(
    place: Path,
    level: int,
    names: Mapping[int, str],
    numbered: Mapping[Problem, Sequence[Entry]],
    eager: Mapping[str, float],
) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for path in place.glob("level_*_kernel.py"):  # of an earlier export, which may have had more samples
        path.unlink()
    results = {}
    for number in names:  # KernelBench's analysis pairs results and baselines by their order
        problem = Problem(level, number)
        entries = numbered.get(problem, [Entry(None, None)])
        results[str(number)] = [
            result_of(entry, sample, eager.get(problem.task_id)) for sample, entry in enumerate(entries)
        ]
        for sample, entry in enumerate(entries):
            if entry.source is not None:
                (place / problem.kernel_name(sample)).write_text(entry.source, "utf-8", errors="replace")
    (place / RESULTS).write_text(json.dumps(results, indent=4, allow_nan=False), "utf-8")


def result_of(entry: Entry, sample: int, eager: float | None) -> dict[str, Any]:
    """A sample's result as KernelBench has it. `eager`: milliseconds of a call of its task's reference.

    Only `ok` is correct: a program that the guard doubts is not. A failure of our own counts as one of the program.
    """
    verdict = entry.verdict
    about: dict[str, Any] = {"outcome": "no_program" if entry.source is None else "not_judged"}
    result: dict[str, Any] = {
        "sample_id": sample,
        "compiled": verdict is not None and verdict.outcome not in _NOT_COMPILED,
        "correctness": verdict is not None and verdict.succeeded,
        "metadata": {"warpsmith": about},
        "runtime": NO_TIME,
        "runtime_stats": {},
    }
    if verdict is None:
        return result
    about |= {
        "outcome": str(verdict.outcome),
        "message": verdict.message,
        "findings": [f"{each.severity} {each.kind}: {each.message}" for each in verdict.guard],
        "speedups": {name: [each.value, each.low, each.high] for name, each in verdict.speedups.items()},
        "digest": verdict.candidate,
        "author": entry.author,
        "preset": verdict.evaluator.get("preset", ""),
    }
    result["metadata"]["hardware"] = verdict.arch
    if verdict.timing is not None:
        about["measured_ms"] = 1e3 * verdict.timing.candidate_seconds.value
    if verdict.succeeded and verdict.speedup and eager:
        speedup = verdict.speedups["eager"]
        result["runtime"] = eager / speedup.value
        result["runtime_stats"] = {
            "mean": eager / speedup.value,
            "interval": [eager / speedup.high, eager / speedup.low],
            "num_trials": speedup.n,
            "hardware": verdict.arch,
        }
    return result


def _write_baselines(
    place: Path,
    names: Mapping[int, Mapping[int, str]],
    eager: Mapping[str, float],
    over_eager: Mapping[str, Mapping[str, float]],
    arch: str,
) -> None:
    """`over_eager`: the speed-ups of the baselines, by task. A baseline that no task has gets no file."""
    place.mkdir(parents=True, exist_ok=True)
    for baseline, file in BASELINE_FILES.items():
        levels: dict[str, dict[str, Any]] = {}
        for level, of_level in names.items():
            for number, name in of_level.items():
                task_id = Problem(level, number).task_id
                speedup = 1.0 if baseline == "eager" else over_eager.get(task_id, {}).get(baseline)
                known = task_id in eager and speedup is not None
                time = eager[task_id] / speedup if known and speedup else NO_TIME
                levels.setdefault(f"level{level}", {})[name] = {"mean": time, "hardware": arch}
        has_one = any(row["mean"] > 0 for rows in levels.values() for row in rows.values())
        if has_one or baseline == "eager":
            (place / file).write_text(json.dumps(levels, indent=4, allow_nan=False), "utf-8")
