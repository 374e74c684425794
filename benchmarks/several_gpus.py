"""Verdicts a minute of one pool with one evaluator a GPU, on 1, 2, 4 GPUs of one host.

    python -m benchmarks.several_gpus [--gpus 1 2 4] [--seconds 60] [--arch H200] [--output FILE]

Evaluators are a run's own: Ray actors with a GPU each, which a pool gives the next program as soon as one is free. The
programs are the right ones that come with the bundled tasks and need no compiler, in turns, each once for every GPU, so
that all have the same work; each is told apart from the one before by its docstring, so that no verdict is known. After
every evaluator has judged four, verdicts are counted for so many seconds, while more programs wait than they can judge.

Prints verdicts a minute for each number of GPUs, what share that is of so many times one GPU's, and the median of the
time that a verdict waits for the processes that start behind the one before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import ray
from rich.console import Console
from rich.table import Table

from actors.evaluation import EvaluationRequest
from actors.evaluator import EvaluatorActor
from actors.pool import ActorPool
from actors.start import start_actor
from configs.schema import EvaluatorConfig
from evaluators.compile.hints import needs_build
from evaluators.host.open_device import open_device
from evaluators.judge.cpu_look import right_programs
from evaluators.records import Candidate
from evaluators.tasks import load_tasks, profile_of

WARM = 4  # verdicts of each evaluator before the count
_BACKLOG = 8  # programs that wait for each evaluator


def requests(arch: str, times: int = 1) -> Iterator[EvaluationRequest]:
    """Endless programs, each another text, and each so many times in a row but for its docstring."""
    profile = profile_of(arch)
    tasks = {task.id: task for task in load_tasks("bundled", profile)}
    programs = [
        (tasks[name], source)
        for name, sources in right_programs("bundled", profile).items()
        for source in sources
        if not needs_build(source)
    ]
    in_turn = (program for program in itertools.cycle(programs) for _ in range(times))
    for number, (task, source) in enumerate(in_turn):
        candidate = Candidate.propose(task.id, f'"""Number {number} of {time.time_ns()}."""\n{source}', "benchmark")
        yield EvaluationRequest(task, candidate, "fast")


def start_evaluators(config: EvaluatorConfig, store: str) -> ActorPool:
    """A pool of `config.workers` evaluators with a GPU each."""
    options = {"num_gpus": 0 if config.arch == "cpu" else 1, "num_cpus": 1}
    return ActorPool(
        "evaluators",
        lambda _: start_actor(EvaluatorActor, options, config, store),
        config.workers,
        ahead=1,
        timeout=600.0,
    )


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """The options that benchmarks of several GPUs have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="auto")
    parser.add_argument("--output", type=Path)
    return parser


def begin(arch: str) -> str:
    """Starts Ray. Returns the architecture that `arch` names, which may be `auto`."""
    ray.init(include_dashboard=False, log_to_driver=False)
    return open_device(arch).arch if arch == "auto" else arch


def count(arch: str, gpus: int, seconds: float, store: str) -> dict[str, Any]:
    """Judges for `seconds` seconds on so many GPUs."""
    pool = start_evaluators(EvaluatorConfig(arch=arch, workers=gpus, measure_baselines="never"), store)
    try:
        pool.wait_ready()
        source = requests(arch, gpus)
        outcomes: Counter[str] = Counter()
        waits = list[float]()
        done, begun, ended = 0, 0.0, float("inf")
        while (now := time.monotonic()) < ended:
            for request in itertools.islice(source, max(gpus * _BACKLOG - pool.queued, 0)):
                pool.submit(request, "evaluate")
            for _, verdict in pool.poll(min(1.0, max(ended - now, 0.0))):
                done += 1
                if begun and time.monotonic() < ended:
                    outcomes[str(getattr(verdict, "outcome", type(verdict).__name__))] += 1
                    waits.append(getattr(verdict, "cost", {}).get("turn_over", 0.0))
                elif not begun and done >= gpus * WARM:
                    begun = time.monotonic()
                    ended = begun + seconds
        return {
            "gpus": gpus,
            "seconds": seconds,
            "verdicts": sum(outcomes.values()),
            "outcomes": dict(outcomes),
            "waits": waits,
        }
    finally:
        pool.stop()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    arch = begin(arguments.arch)
    rows = []
    with tempfile.TemporaryDirectory() as store:
        for gpus in arguments.gpus:
            rows.append(count(arch, gpus, arguments.seconds, store))
            if arguments.output:
                arguments.output.write_text(json.dumps({"arch": arch, "rows": rows}, indent=1) + "\n")
    table = Table("GPUs", "verdicts a minute", "of one GPU's", "wait, ms", "outcomes", box=None)
    one = rows[0]["verdicts"] / rows[0]["gpus"]
    for row in rows:
        share = f"{row['verdicts'] / (row['gpus'] * one):.1%}" if one else "-"
        outcomes = ", ".join(f"{number} {name}" for name, number in sorted(row["outcomes"].items()))
        wait = f"{1e3 * median(row['waits'] or [0.0]):.0f}"
        table.add_row(str(row["gpus"]), f"{60 * row['verdicts'] / row['seconds']:.0f}", share, wait, outcomes)
    console = Console(width=110)
    console.print(f"one evaluator a GPU, {arch}", highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
