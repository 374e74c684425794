"""How many right programs a look on a CPU would end, and how many of those that fail or are wrong on a GPU.

    warpsmith tasks --generate 260 --seed 31 --output generated.jsonl
    python -m benchmarks.cpu_look docs/results/* --generated generated.jsonl

The programs are those that policies wrote in published runs, with the verdicts of their GPU; the programs that come
with bundled and generated tasks; and the honest ones of the gauntlet that run on a CPU. A generated program counts if
an evaluator on the CPU finds it right at small sizes. The look itself is for a GPU, at the sizes for a GPU. Exit code 1
if a right program is ended. Runs on any machine; the seconds are this one's.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

from configs.schema import LimitsConfig
from evaluators.compile.builder import Builder
from evaluators.compile.hints import is_plain_torch
from evaluators.evaluator import Evaluator
from evaluators.gauntlet.programs import discover
from evaluators.judge.cpu_look import CpuLook
from evaluators.records import Outcome, Task, Verdict
from evaluators.tasks import find_task, load_tasks
from evaluators.tasks.loader import TaskVariants
from prompts.parse import parse_response

_ARCH = "H200"


@dataclass(frozen=True)
class Known:
    """A program, where it is from, and the outcome that is known of it. `check`: the task at the sizes at which that is
    still to be found out."""

    task: Task
    source: str
    place: str
    outcome: str
    check: Task | None = None


@dataclass
class Count:
    """The looks at the programs of one place and outcome: seconds of each, and the programs that were ended."""

    programs: int = 0
    seconds: list[float] = field(default_factory=list)
    ended: list[tuple[Known, Verdict]] = field(default_factory=list)


def published(folder: Path) -> Iterator[Known]:
    """The distinct programs of a published run whose text and task are known, with their verdicts. Raises OSError
    without the run's rows."""
    tasks = {task.id: task for task in load_tasks("bundled", "cuda")}
    verdicts = pq.read_table(folder / "verdicts.parquet", columns=["candidate", "task", "outcome", "evaluator"])
    outcomes = {
        (row["task"], row["candidate"]): (row["outcome"], dict(row["evaluator"]).get("task_digest"))
        for row in verdicts.to_pylist()
    }
    samples = pq.read_table(folder / "samples.parquet", columns=["task_id", "candidate_digest", "response"])
    for row in samples.to_pylist():
        found = outcomes.pop((row["task_id"], row["candidate_digest"]), None)
        task = tasks.get(row["task_id"])
        if found is None or task is None or row["response"] is None or found[1] != task.digest:
            continue  # only responses to bundled tasks are published
        code = parse_response(row["response"]).code
        if code is not None:
            yield Known(task, code, f"policy, {folder.name}", found[0])


def shipped(generated: Path | None) -> Iterator[Known]:
    """The right programs of the bundled and generated tasks, and the honest ones of the gauntlet."""
    for place, name, small in (("bundled", "bundled", ""), ("generated", str(generated or ""), "small")):
        variants = TaskVariants(name, "cuda") if name else None
        at_small_sizes = {task.id: task for task in load_tasks(name, small)} if name and small else {}
        for task in load_tasks(name, "cuda") if name else ():
            assert variants is not None
            right = [one.source for one in variants.of(task.id) if one.expect != "wrong"]
            yield from (Known(task, source, place, str(Outcome.OK), at_small_sizes.get(task.id)) for source in right)
    for program in discover("cpu"):
        if not program.is_exploit:
            yield Known(find_task(program.task, "cuda"), program.source, "gauntlet", str(Outcome.OK))


def sampled(programs: Sequence[Known], most: int) -> list[Known]:
    """All right programs, and at most so many of each other outcome of a place, drawn under a fixed seed. Those of a
    task stand together."""
    groups: dict[tuple[str, str], list[Known]] = defaultdict(list)
    for program in programs:
        groups[program.place, program.outcome].append(program)
    draw = random.Random(0)
    kept = [
        one
        for (_, outcome), group in groups.items()
        for one in (group if outcome == str(Outcome.OK) else draw.sample(group, min(most, len(group))))
    ]
    return sorted(kept, key=lambda one: one.task.digest)


def checked(programs: Sequence[Known]) -> list[Known]:
    """The programs with the outcomes that an evaluator on the CPU finds, where they are still to be found out. Those
    that are never looked at are left as they are."""
    with Evaluator(arch="cpu") as evaluator:
        return [
            replace(one, outcome=str(evaluator.evaluate(one.check, one.source).outcome))
            if one.check is not None and is_plain_torch(one.source)
            else one
            for one in programs
        ]


def look_at(programs: Sequence[Known]) -> dict[tuple[str, str], Count]:
    """Looks at each program, by place and outcome. No right program is known to the look: it finds itself which tasks
    it can be used for."""
    counts: dict[tuple[str, str], Count] = defaultdict(Count)
    with tempfile.TemporaryDirectory() as store:
        builder = Builder(_ARCH, Path(store), LimitsConfig())
        try:
            looks = CpuLook(builder)
            for known in programs:
                count = counts[known.place, known.outcome]
                count.programs += 1
                if not is_plain_torch(known.source) or not looks.is_used_for(known.task):
                    continue
                start = time.perf_counter()
                verdict = looks.look(known.task, known.source, preset="fast")
                count.seconds.append(time.perf_counter() - start)
                if verdict is not None:
                    count.ended.append((known, verdict))
        finally:
            builder.close()
    return counts


def table_of(counts: dict[tuple[str, str], Count]) -> Table:
    """A row for each place and outcome, and one for all right programs."""
    columns = "programs of", "outcome", "distinct", "looked at", "ended", "by values", "median, ms"
    table = Table(*columns, box=box.SIMPLE_HEAD)
    right = [count for (_, outcome), count in counts.items() if outcome == str(Outcome.OK)]
    total = Count(
        sum(count.programs for count in right),
        [second for count in right for second in count.seconds],
        [one for count in right for one in count.ended],
    )
    for (place, outcome), count in [*sorted(counts.items()), (("all", "ok"), total)]:
        milliseconds = f"{1000 * float(np.median(count.seconds)):.0f}" if count.seconds else ""
        looked, ended = str(len(count.seconds)), str(len(count.ended))
        by_values = str(sum(verdict.correctness is not None for _, verdict in count.ended))
        table.add_row(place, outcome, str(count.programs), looked, ended, by_values, milliseconds)
    return table


def agreement(counts: dict[tuple[str, str], Count]) -> str:
    """How many programs that were ended got the outcome that was known of them, and what the others got."""
    ended = [(known.outcome, str(verdict.outcome)) for count in counts.values() for known, verdict in count.ended]
    others = Counter(f"{was} here {now}" for was, now in ended if was != now)
    same = f"{len(ended) - others.total()} of {len(ended)} programs that were ended have the outcome of their GPU"
    return "; ".join([same, *(f"{count} {change}" for change, count in others.most_common())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", help="folders of `warpsmith report RUN --publish FOLDER`")
    parser.add_argument("--generated", type=Path, help="a file of `warpsmith tasks --generate`")
    parser.add_argument("--sample", type=int, default=100, help="most programs of a run of each outcome but ok")
    arguments = parser.parse_args()
    known = [one for folder in arguments.folders if (folder / "verdicts.parquet").exists() for one in published(folder)]
    counts = look_at(sampled(checked([*known, *shipped(arguments.generated)]), arguments.sample))
    console = Console(width=140)
    console.print(table_of(counts))
    console.print(agreement(counts))
    refused = [one for (_, outcome), count in counts.items() if outcome == str(Outcome.OK) for one in count.ended]
    for program, verdict in refused:
        console.print(f"{program.place}, {program.task.id}: {verdict.message}\n{program.source}\n", markup=False)
    raise SystemExit(1 if refused else 0)


if __name__ == "__main__":
    main()
