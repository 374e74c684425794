"""Judges the programs of a KernelBench run, or of a published file, against their tasks: our verdict beside theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evaluators.compile.ahead import Job, build_all
from evaluators.compile.hints import needs_build
from evaluators.evaluator import Evaluator
from evaluators.records import Candidate, Outcome, Task
from orchestration.kernelbench.layout import LayoutError, Sample, read_published, read_run
from orchestration.kernelbench.rows import Judged, read_judged, write_judged
from orchestration.report.fast_p import fast_p_as_json
from orchestration.report.statistics import AssessmentRow
from orchestration.run.judged_rollouts import NO_CODE

BOTH, OURS, THEIRS, NEITHER, UNKNOWN = "right by both", "by ours alone", "by theirs alone", "by neither", "no result"
"""How two judgements on one program agree. `no result`: KernelBench has none."""


def read_samples(place: Path) -> list[Sample]:
    """The programs of a run's folder, or of a JSON Lines file. Raises LayoutError."""
    if place.is_dir():
        return read_run(place)
    if place.is_file() and place.suffix == ".jsonl":
        return read_published(place)
    raise LayoutError(f"{place}: neither the folder of a KernelBench run nor a .jsonl file of programs")


def tasks_beside(place: Path) -> str | None:
    """The source of a run's tasks if none is named: the checkout that the run lies in, or the file itself."""
    if place.is_file():
        return str(place)
    checkout = place.resolve().parent.parent / "KernelBench"
    return str(checkout) if place.resolve().parent.name == "runs" and checkout.is_dir() else None


@dataclass(frozen=True)
class Work:
    """What is to be judged: programs with their tasks. `without_task`: ids of tasks that their source does not have."""

    origin: str
    pairs: tuple[tuple[Task, Sample], ...]
    without_task: tuple[str, ...]

    @classmethod
    def of(cls, place: Path, samples: Sequence[Sample], tasks: Sequence[Task], levels: Sequence[int]) -> Work:
        """`levels`: empty for all. Raises LayoutError if no program has a task."""
        by_id = {task.id: task for task in tasks}
        wanted = [each for each in samples if not levels or each.problem.level in levels]
        pairs = tuple((by_id[each.problem.task_id], each) for each in wanted if each.problem.task_id in by_id)
        missing = sorted({each.problem.task_id for each in wanted} - by_id.keys())
        if not pairs:
            raise LayoutError(f"{place}: none of its {len(samples)} programs is for one of the {len(tasks)} tasks")
        return cls(place.stem if place.is_file() else place.resolve().name, pairs, tuple(missing))


def build_ahead(evaluator: Evaluator, work: Work, builders: int) -> int:
    """Builds what must be compiled, `builders` at once, if there is more than one program. Returns how many."""
    jobs: list[Job] = []
    for task, sample in work.pairs:
        candidate = Candidate.propose(task.id, sample.source, work.origin)
        if needs_build(sample.source) and not evaluator.builder.is_built(task, candidate):
            jobs.append((task, candidate))
    if min(len(jobs), builders) < 2:
        return 0
    build_all(jobs, evaluator.device.arch, evaluator.store, evaluator.limits, builders)
    return len(jobs)


def judge_all(evaluator: Evaluator, work: Work, strict: str, output: Path | None) -> Iterator[Judged]:
    """Judges one program after another and writes each verdict to `output` at once.

    A program whose verdict stands there already is not judged again, if it would be judged alike: same text, task,
    preset, strictness, versions and baselines. Raises LayoutError and OSError of `output`, ContainmentError.
    """
    rows = {each.key: each for each in read_judged(output)} if output and output.is_file() else {}
    for task, sample in work.pairs:
        key = (work.origin, task.id, sample.sample)
        earlier = rows.get(key)
        if earlier is None or not _is_same(earlier, evaluator, task, sample, strict):
            verdict = evaluator.evaluate(task, sample.source, author=work.origin)
            rows[key] = Judged(work.origin, sample.sample, sample.source, verdict, sample.result)
            if output is not None:
                write_judged(output, rows.values())
        yield rows[key]


def _is_same(earlier: Judged, evaluator: Evaluator, task: Task, sample: Sample, strict: str) -> bool:
    verdict = earlier.verdict
    about = {**evaluator.device.versions(), "task_digest": task.digest, "preset": evaluator.preset.name}
    return (
        verdict.outcome is not Outcome.INFRA
        and verdict.candidate == Candidate.propose(task.id, sample.source, "").digest
        and about.items() <= dict(verdict.evaluator).items()
        and verdict.strict == strict
        and (not verdict.succeeded or set(evaluator.baselines) <= verdict.speedups.keys())
    )


def agreement(judged: Judged) -> str:
    """Whether KernelBench found the program right, and we."""
    if judged.theirs is None:
        return UNKNOWN
    ours, theirs = judged.verdict.succeeded, judged.theirs.correct
    return (BOTH if theirs else OURS) if ours else (THEIRS if theirs else NEITHER)


def summary(rows: Sequence[Judged], work: Work, tasks: Sequence[Task]) -> dict[str, Any]:
    """All of it as plain data: every program with both judgements, how these agree, and `fast_p` by our verdicts over
    all tasks of the levels that the run has, where a task without a program counts as failed."""
    levels = {task.level for task, _ in work.pairs}
    judged = {row.verdict.task for row in rows}
    assessed = [AssessmentRow.of(row.verdict) for row in rows]
    absent = [AssessmentRow(task.id, NO_CODE) for task in tasks if task.level in levels and task.id not in judged]
    return {
        "origin": work.origin,
        "arch": rows[0].verdict.arch if rows else None,
        "programs": [_as_json(row) for row in rows],
        "agreement": dict(Counter(map(agreement, rows))),
        "without_task": list(work.without_task),
        "without_program": len(absent),
        "fast_p": fast_p_as_json([*assessed, *absent]),
    }


def _as_json(row: Judged) -> Mapping[str, Any]:
    verdict = row.verdict
    return {
        "task": verdict.task,
        "sample": row.sample,
        "outcome": str(verdict.outcome),
        "message": verdict.message,
        "speedups": {name: asdict(estimate) for name, estimate in verdict.speedups.items()},
        "findings": [asdict(finding) for finding in verdict.guard],
        "theirs": asdict(row.theirs) if row.theirs else None,
        "agreement": agreement(row),
        "digest": verdict.candidate,
    }
