"""Samples and small runs that the tests of reports share."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from evaluators.records import Candidate, Correctness, Estimate, Finding, Outcome, Timing, Verdict
from learners.records import Rollout
from orchestration.report import Report, print_report
from orchestration.report.statistics import AssessmentRow
from orchestration.run.directory import RunDirectory

TASK_MEANS, TASK_CHANCES = np.linspace(1, 2, 12), np.linspace(0.4, 0.95, 12)


def row(task: str, speed: float | None, best: float | None = None) -> AssessmentRow:
    """A sample with speed-ups over eager and over the best baseline (by default the same). None: a wrong sample."""
    if speed is None:
        return AssessmentRow(task, "wrong")
    return AssessmentRow(task, "ok", {"eager": speed, "torch_compile": speed if best is None else best})


def synthetic(seed: int, samples: int = 4, gain: float = 1.0) -> list[AssessmentRow]:
    """Samples of 12 tasks that differ in difficulty and in speed, as real tasks do."""
    generator = np.random.default_rng(seed)
    rows = []
    for index, (mean, chance) in enumerate(zip(TASK_MEANS, TASK_CHANCES, strict=True)):
        for _ in range(samples):
            speed = float(mean * gain * np.exp(generator.normal(-0.045, 0.3)))
            rows.append(row(f"t{index}", speed if generator.random() < chance else None))
    return rows


def drawn(seed: int, tasks: int, samples: int, *, spread: float, gain: float = 1.0) -> list[AssessmentRow]:
    """Right samples of tasks that are drawn anew with each seed. `spread`: the deviation of the logarithms of the
    tasks' own speed-ups, of which the geometric mean is `gain`; that of the samples of a task is 0.3."""
    generator = np.random.default_rng([seed, tasks])
    of_tasks = generator.normal(np.log(gain), spread, tasks)
    return [
        row(f"t{index}", float(np.exp(generator.normal(of_tasks[index], 0.3))))
        for index in range(tasks)
        for _ in range(samples)
    ]


def write_step(
    run: RunDirectory,
    phase: str,
    step: int,
    speeds: dict[str, list[float | None]],
    guard: dict[float, tuple[Finding, ...]] | None = None,
) -> None:
    """Writes one sample per speed-up over eager (None: wrong), and one that does not compile for each task.

    `guard`: the guard's findings on samples, by their speed-up.
    """
    rollouts, verdicts = [], []
    for task, values in speeds.items():
        for index, speed in enumerate(values):
            candidate = Candidate.propose(task, f"class ModelNew:\n    '<b>&'\n    n = {speed}, {index}", "policy:1")
            estimate = Estimate(speed or 1.0, (speed or 1.0) * 0.95, (speed or 1.0) * 1.05, 30)
            verdict = Verdict(
                candidate.digest,
                task,
                "cpu",
                Outcome.WRONG if speed is None else Outcome.OK,
                correctness=Correctness(8, 1e-7, 1e-4),
                speedups={} if speed is None else {"eager": estimate},
                timing=Timing(Estimate(1e-3, 9e-4, 1.1e-3, 30), Estimate(2e-3, 1e-3, 3e-3, 30), 30, "interval", 0.0),
                evaluator={"preset": "fast", "machine": "two cores"},
                guard=(guard or {}).get(speed or 0.0, ()),
            )
            verdicts.append(verdict)
            run.kernels.save(task, "cpu", candidate, verdict)
            rollout = Rollout(task, task, "p", "r", (1,), (2,), (-1.0,), 1, candidate_digest=candidate.digest)
            rollouts.append(rollout)
        rollouts.append(Rollout(task, task, "p", "r", (1,), (2,), (-1.0,), 1, outcome="build_error", reward=0.0))
    run.samples.write(phase, step, rollouts)
    run.verdicts.write(phase, step, verdicts)


def terminal_text(report: Report) -> str:
    """The report as it is printed if the output is no terminal."""
    console = Console(file=io.StringIO())
    print_report(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
