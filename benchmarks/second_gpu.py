"""Speed-ups that jump, confirmed by a second GPU of the same type, on two GPUs of one host (CUDA-L1 section 2.4.4).

    python -m benchmarks.second_gpu [--programs 40] [--jump 1.05] [--arch H200] [--output FILE]

Builders, evaluators and the part of a step that judges are a run's own; evaluators are Ray actors with a GPU each. The
programs are those of `benchmarks.several_gpus`; a speed-up above `--jump` counts as one that jumps. The last program is
a false jump: it is faster than its task's reference on one GPU alone, which it knows by its UUID.

Prints how many programs jumped, how many of these the other GPU confirmed or doubted, and what became of the last one.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from actors.builder import BuilderActor
from actors.pool import ActorPool
from actors.start import start_actor
from benchmarks.several_gpus import begin, parser_of, requests, start_evaluators
from configs.schema import EvaluatorConfig, GuardConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Candidate, Task, Verdict
from evaluators.stored.verdicts import CONFIRMED_BY, DEVICE
from evaluators.tasks import find_task
from orchestration.step.gathering import Gathering
from orchestration.step.judging import Judging
from orchestration.step.review import Reviewer

_TIMEOUT = 600.0
_SEVERAL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range(12):
            x = torch.relu(x) + 0.25
        return x
def get_inputs():
    return [torch.randn(1 << 22)]
def get_init_inputs():
    return []
"""
_ON_ONE_GPU = """
import torch
HERE = "{device}" in str(torch.cuda.get_device_properties(0).uuid) if torch.cuda.is_available() else False
class ModelNew(torch.nn.Module):
    def forward(self, x):
        for step in range(12):
            x = x + 0.25 if HERE and step else torch.relu(x) + 0.25
        return x
"""


def false_jump(arch: str, device: str) -> tuple[Task, str]:
    """A task and a program that is faster than its reference on the GPU of that UUID alone."""
    task = find_task("level1/softmax", "cpu" if arch == "cpu" else "cuda")
    return replace(task, id="test/several", source=_SEVERAL, sizes={}), _ON_ONE_GPU.format(device=device[-12:])


def judged(judging: Judging, task: Task, sources: list[str]) -> list[Verdict]:
    """The verdicts on programs of a task, in their order."""
    gathering = Gathering((), samples=0, temperature=0.0, preset="fast")
    candidates = [Candidate.propose(task.id, source, "benchmark") for source in sources]
    for candidate in candidates:
        judging.propose(candidate, gathering, task)
    while len(gathering.result.verdicts) < len(sources):
        judging.advance()
        time.sleep(0.02)
    return [gathering.result.verdicts[candidate.digest] for candidate in candidates]


def row_of(verdict: Verdict) -> dict[str, Any]:
    return {
        "task": verdict.task,
        "outcome": str(verdict.outcome),
        "speedup": verdict.speedup,
        "device": verdict.evaluator.get(DEVICE, ""),
        "confirmed_by": verdict.evaluator.get(CONFIRMED_BY, ""),
        "findings": [finding.message for finding in verdict.guard],
    }


def measure(arch: str, programs: int, jump: float, store: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of the programs, and that of the false jump."""
    config = EvaluatorConfig(arch=arch, workers=2, measure_baselines="never")
    evaluators = start_evaluators(config, store)
    builders = ActorPool(
        "builder",
        lambda _: start_actor(BuilderActor, {"num_cpus": 1}, config, store, True),
        2,
        ahead=1,
        timeout=_TIMEOUT,
    )
    try:
        evaluators.wait_ready()
        by_task: dict[str, tuple[Task, list[str]]] = {}
        for request in itertools.islice(requests(arch), programs):
            by_task.setdefault(request.task.id, (request.task, []))[1].append(request.candidate.source)
        reviewer = Reviewer(GuardConfig(jump=jump), HackCases(Path(store) / "hacks.parquet"), {})
        judging = Judging(
            [task for task, _ in by_task.values()], builders, evaluators, reviewer,
            builders_look=False, confirms_jumps=True,
        )  # fmt: skip
        judge = partial(judged, judging)
        rows = [row_of(verdict) for task, sources in by_task.values() for verdict in judge(task, sources)]
        task, honest = false_jump(arch, "nowhere")
        device = row_of(*judge(task, [honest]))["device"]
        # Which GPU is asked first is chance, so that it may be the slow one, whose verdict then stands unasked.
        tries = [f"{false_jump(arch, device)[1]}\nnumber = {number}\n" for number in range(8)]
        return rows, next((row for row in map(row_of, judge(task, tries)) if row["confirmed_by"]), {})
    finally:
        evaluators.stop()
        builders.stop()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--jump", type=float, default=1.05)
    arguments = parser.parse_args()
    arch = begin(arguments.arch)
    with tempfile.TemporaryDirectory() as store:
        rows, false = measure(arch, arguments.programs, arguments.jump, store)
    if arguments.output:
        arguments.output.write_text(json.dumps({"arch": arch, "rows": rows, "false": false}, indent=1) + "\n")
    by = [row for row in rows if row["confirmed_by"]]
    other = sum(row["confirmed_by"] != row["device"] for row in by)
    doubted = sum(row["outcome"] == "suspect" for row in by)
    console = Console(width=110)
    console.print(f"two evaluators with a {arch} each: {len(rows)} programs judged", highlight=False)
    console.print(
        f"above {arguments.jump}x: {len(by)} measured again, {other} of them on the other GPU, {doubted} doubted"
    )
    what = f"{false['outcome']}: {'; '.join(false['findings'])}" if false else "never judged on its GPU first"
    console.print(f"faster on one GPU alone: {what}", highlight=False)


if __name__ == "__main__":
    main()
