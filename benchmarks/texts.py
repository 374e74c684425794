"""How long the judge itself takes for hostile texts, beside ordinary programs, and what becomes of them.

    python -m benchmarks.texts [table] [--count 200] [--seed 0] [--arch cpu] [--out FILE]

Judges texts of `benchmarks.texts_families` through the front door: built as a run builds them, then evaluated. Prints
the tables of the figures in `--out`, which it writes (`table` prints these alone). The judge's own seconds are those of
the processor in the judge's process, where nothing of a runner counts, and beside them those of the clock outside of
waits for other processes. A text that seems slow is judged twice more, each time beside the ordinary program, and the
least difference counts: other work on the machine adds to both.

Exit code 1 if a text took longer than its limits allow, or the judge more than 0.1 s longer than for the same program
without the hostile part; for a text that no runner was asked about, more than 0.1 s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from benchmarks.texts_families import HostileText, hostile_texts, right_variants
from benchmarks.texts_readers import reading_seconds, warm_up
from benchmarks.texts_tables import MOST_SECONDS, is_slow, print_tables
from configs.schema import LimitsConfig
from evaluators.compile.hints import builds_extensions, compiles_when_called, needs_build, uses_inductor
from evaluators.evaluator import Evaluator
from evaluators.records import Candidate, Outcome, Verdict
from evaluators.shared.protocol import Channel
from evaluators.tasks import load_tasks, profile_of
from evaluators.timing.presets import PairBudget
from orchestration.commands.store import open_to_runners

app = typer.Typer(add_completion=False)
_OUT = Path(f"benchmarks/results/texts/{os.cpu_count()}_cores.parquet")
_LIMITS = LimitsConfig(start_seconds=8.0, call_seconds=4.0, build_seconds=90.0, memory_gib=2.0)
_COMPILERS = {"cpp_extension": builds_extensions, "torch.compile": uses_inductor, "triton": compiles_when_called}
_TRIALS = 3
_ROUNDS = 10  # the fewest of the preset `fast`


class Waits:
    """The seconds for which this process has waited for messages of others, and how many it has received."""

    def __init__(self) -> None:
        self.seconds, self.count = 0.0, 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Within this block, all waits of the judge for runners and their zygote are counted."""
        receive = Channel.receive_body

        def timed(channel: Channel, timeout: float | None = None) -> Any:
            start = time.perf_counter()
            try:
                return receive(channel, timeout)
            finally:
                self.seconds += time.perf_counter() - start
                self.count += 1

        Channel.receive_body = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            Channel.receive_body = receive  # type: ignore[method-assign]


@dataclass(frozen=True)
class Judged:
    """A verdict with the seconds of the judge's processor, of the clock outside of waits, and of the clock in all.
    `asked`: whether any other process was asked for anything."""

    verdict: Verdict
    cpu: float
    clock: float
    total: float
    asked: bool


class Judge:
    """Judges texts as a run does: a builder first, for those that may compile something."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._tasks = {task.id: task for task in load_tasks("bundled", profile_of(evaluator.device.arch))}
        self._waits, self._ordinary = Waits(), 0

    def judge(self, task_id: str, source: str) -> Judged:
        """Judges one text, with the times that it takes."""
        task = self._tasks[task_id]
        waited, count = self._waits.seconds, self._waits.count
        cpu, start = time.process_time(), time.perf_counter()
        with self._waits.counted():
            built = None
            if needs_build(source):
                built = self.evaluator.builder.build(task, Candidate.propose(task_id, source, ""))
            verdict = self.evaluator.evaluate(task, source, artifact=built)
        total = time.perf_counter() - start
        clock = total - (self._waits.seconds - waited)
        return Judged(verdict, time.process_time() - cpu, clock, total, self._waits.count > count)

    def ordinary(self, task_id: str, source: str) -> Judged:
        """The verdict on an ordinary program, which differs in a number each time."""
        self._ordinary += 1
        return self.judge(task_id, f"{source}\nordinary = {self._ordinary}\n")

    def usual(self, task_id: str, source: str) -> Judged:
        """Of three verdicts on an ordinary program, the one of medium time."""
        return sorted((self.ordinary(task_id, source) for _ in range(3)), key=lambda judged: judged.cpu)[1]


def _row(judge: Judge, text: HostileText, ordinary: Judged, longest: float) -> dict[str, Any]:
    """The figures of one text, of the trial that comes nearest to the ordinary program. `ordinary`: an earlier verdict
    on that. `longest`: seconds of an ordinary verdict."""
    builds = 2 * _LIMITS.build_seconds if needs_build(text.source) else 0.0
    limit = builds + _LIMITS.start_seconds + _LIMITS.call_seconds + longest
    trials = [(judge.judge(text.task, text.source), ordinary)]
    while _excess(trials[-1]) > MOST_SECONDS and len(trials) < _TRIALS:
        judged = judge.judge(text.task, f"{text.source}\nagain = {len(trials)}\n")
        trials.append((judged, judge.ordinary(*_program_of(text))))
    best, ordinary = min(trials, key=_excess)
    return {
        "family": text.family,
        "number": text.number,
        "task": text.task,
        "place": text.place,
        "characters": len(text.source),
        "outcome": str(best.verdict.outcome),
        "message": best.verdict.message.partition("\n")[0][:100],
        "asked": best.asked,
        "trials": len(trials),
        "cpu": best.cpu,
        "clock": best.clock,
        "total": best.total,
        "ordinary_cpu": ordinary.cpu,
        "ordinary_clock": ordinary.clock,
        "limit": limit,
        "over_limit": best.total > limit or best.verdict.outcome is Outcome.INFRA,
        "reading": list(reading_seconds(text).items()),
    }


def _excess(trial: tuple[Judged, Judged]) -> float:
    judged, ordinary = trial
    return judged.cpu - (ordinary.cpu if judged.asked else 0.0)


def measure(count: int, seed: int, arch: str, done: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Judges `count` hostile texts, and the ordinary programs of their tasks first. Calls `done` with each row."""
    texts = hostile_texts(count, seed)
    usual = {(task, one.source) for task in {text.task for text in texts} for one in right_variants(task)}
    usual |= {_program_of(text) for text in texts}
    warm_up()
    with open_to_runners(), Evaluator(arch, limits=_LIMITS) as evaluator:
        # How many rounds are timed depends on noise, and each takes the judge some time.
        evaluator.preset = replace(evaluator.preset, criteria=(PairBudget(_ROUNDS),))
        evaluator.start()
        judge = Judge(evaluator)
        ordinary = {program: judge.usual(*program) for program in sorted(usual)}
        longest = max(judged.total for judged in ordinary.values())
        rows = [_ordinary_row(task, judged) for (task, source), judged in ordinary.items() if _is_right(task, source)]
        for text in texts:
            rows.append(_row(judge, text, ordinary[_program_of(text)], longest))
            done(rows[-1])
    return rows


def _program_of(text: HostileText) -> tuple[str, str]:
    """The task of a text, and the ordinary program to compare it with: its own, or one that is right. It is built in
    the same ways as the text, since a builder runs a program that mentions a compiler."""
    source = text.base or right_variants(text.task)[0].source
    for word, mentions in _COMPILERS.items():
        if mentions(text.source) and not mentions(source):
            source += f"\n# {word}"
    return text.task, source


def _is_right(task: str, source: str) -> bool:
    return any(source == variant.source for variant in right_variants(task))


def _ordinary_row(task: str, judged: Judged) -> dict[str, Any]:
    return {
        "family": "",
        "task": task,
        "outcome": str(judged.verdict.outcome),
        "cpu": judged.cpu,
        "clock": judged.clock,
        "total": judged.total,
        "reading": [],
    }


_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("family", "task", "place", "outcome", "message")),
        *((name, pa.int64()) for name in ("number", "characters", "trials")),
        *((name, pa.float64()) for name in ("cpu", "clock", "total", "ordinary_cpu", "ordinary_clock", "limit")),
        *((name, pa.bool_()) for name in ("asked", "over_limit")),
        ("reading", pa.map_(pa.string(), pa.float64())),
    ]
)


@app.command()
def main(
    section: Annotated[str, typer.Argument(help="`table` prints the tables of earlier figures alone.")] = "",
    count: Annotated[int, typer.Option(help="Texts.")] = 200,
    seed: Annotated[int, typer.Option(help="Another one gives other texts.")] = 0,
    arch: Annotated[str, typer.Option(help="`cpu`, or `auto` for the GPU.")] = "cpu",
    out: Annotated[Path, typer.Option(help="File of the figures.")] = _OUT,
    verbose: Annotated[bool, typer.Option(help="A line for each text.")] = False,
) -> None:
    """Judges hostile texts, and prints what became of them and how long the judge took."""
    if section not in ("", "table"):
        raise typer.BadParameter(f"no section {section}")
    if not section:
        out.parent.mkdir(parents=True, exist_ok=True)
        rows = measure(count, seed, arch, _print_row if verbose else lambda row: None)
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), out, compression="zstd")
    figures = pq.read_table(out).to_pylist()
    print_tables(figures)
    raise typer.Exit(1 if any(row["over_limit"] or is_slow(row) for row in figures) else 0)


def _print_row(row: dict[str, Any]) -> None:
    slow = {name: round(seconds, 3) for name, seconds in row["reading"] if seconds > MOST_SECONDS}
    print(
        f"{row['family']} {row['number']} {row['task']} {row['place']} {row['characters']}: {row['outcome']} "
        f"cpu {row['cpu']:.3f} clock {row['clock']:.3f} total {row['total']:.2f} ({row['ordinary_cpu']:.3f}) "
        f"trials {row['trials']} {slow or ''} {row['message']!r}",
        flush=True,
    )


if __name__ == "__main__":
    app()
