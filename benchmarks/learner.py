"""How fast contrastive RL learns, by what is measured:

overlap   steps with `contrastive_rl.max_staleness` 0 and 1, where evaluation takes as long as generation: time of a
          step, and the share of it that each role had work. Engines and learner are real; the evaluators take a
          constant time and reward every response, by its digest.

    python -m benchmarks.learner overlap [--steps 10] [key=value ...]

Overrides are of `configs/local.yaml`; on a GPU name a model and `evaluator.arch`. The first steps of each run are left
out (`--warm-up`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import ray
from ray.rllib.utils.actor_manager import FaultAwareApply
from rich.console import Console
from rich.table import Table

import orchestration.gathering
from actors.evaluator import EvaluationRequest
from actors.pool import ActorPool
from configs.load import load_config
from evaluators.records import Estimate, Outcome, Verdict
from orchestration.driver import take_steps
from orchestration.phases.contrastive_rl import ContrastiveRl
from orchestration.progress import Progress
from orchestration.session import Session
from prompts.parse import ParsedResponse

SETTINGS = (
    "name=learner",
    "schedule.phases=[contrastive_rl]",
    "tracking.enabled=false",
    "tasks.include=[level1/softmax,level1/gelu_tanh]",
    "policy.scratch.hidden_size=64",
    "policy.scratch.heads=2",
    "policy.scratch.kv_heads=1",
    "policy.scratch.intermediate_size=128",
    "contrastive_rl.kl=0",
    "contrastive_rl.tasks_per_step=2",
    "contrastive_rl.group_size=4",
    "checkpoint_every=1000",
)
EVALUATORS = 8
ROLES = ("engines", "evaluators", "learner")
Steps = list[dict[str, float]]


@ray.remote(num_cpus=0)
class ConstantEvaluator(FaultAwareApply):
    """Takes the same time for every program; the digest decides on its speed-up, between 1 and 2."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def evaluate(self, request: EvaluationRequest) -> Verdict:
        """A verdict after so many seconds."""
        time.sleep(self._seconds)
        digest = request.candidate.digest
        value = 1 + int(digest[:4], 16) / 0xFFFF
        speedups = {"eager": Estimate(value, value, value, 1)}
        about = {"preset": request.preset}
        return Verdict(digest, request.task.id, "cpu", Outcome.OK, speedups=speedups, evaluator=about)


def program_of(text: str, finish_reason: str) -> ParsedResponse:
    """Takes every response for a program, each for another."""
    return ParsedResponse(None, None, f"RESPONSE = {text!r}, {time.monotonic_ns()}", None)


def steps_of(session: Session, cycle: int, steps: int, staleness: int, seconds: float) -> Steps:
    """The metrics of so many steps, whose evaluation takes `seconds` for a response."""
    config = session.config.contrastive_rl
    config.steps, config.max_staleness = steps, staleness
    pool = ActorPool("constant", lambda _: ConstantEvaluator.remote(seconds), EVALUATORS)
    pool.wait_ready(120)
    session.pipeline.evaluators = session.roles.evaluators = pool
    phase = ContrastiveRl(session, cycle)
    take_steps(session, phase)
    pool.stop()
    found: Steps = [{} for _ in range(steps)]
    for row in session.run.read_metrics(phase.key).to_pylist():
        found[row["step"]][row["name"]] = row["value"]
    return found


def overlap(overrides: Sequence[str], steps: int, warm_up: int) -> dict[str, Any]:
    """Metrics of the steps, by `max_staleness`, without those of the warm-up."""
    orchestration.gathering.parse_response = program_of
    with tempfile.TemporaryDirectory(prefix="warpsmith-learner-") as root:
        config = load_config("local", [f"root={root}", *SETTINGS, *overrides])
        with Session(config, Progress(Console(stderr=True))) as session:
            session.roles.evaluators.stop()
            alone = steps_of(session, 1, warm_up + 3, 0, 0.0)[warm_up:]
            generation = median(step["generate_seconds"] for step in alone)
            responses = median(step["rollouts"] for step in alone)
            seconds = generation * EVALUATORS / responses
            measured = {
                staleness: steps_of(session, 2 + staleness, warm_up + steps, staleness, seconds)[warm_up:]
                for staleness in (0, 1)
            }
    return {"generation_seconds": generation, "responses": responses, "evaluation_seconds": seconds, "steps": measured}


def print_overlap(found: dict[str, Any], console: Console) -> None:
    """One line a setting: medians over the steps."""
    table = Table("max_staleness", "step, s", "faster", *(f"{role}, share" for role in ROLES), "staleness", box=None)
    whole = median(step["step_seconds"] for step in found["steps"][0])
    for staleness, steps in found["steps"].items():
        seconds = median(step["step_seconds"] for step in steps)
        shares = [median(step[f"utilisation/{role}"] for step in steps) for role in ROLES]
        age = median(step["staleness"] for step in steps)
        table.add_row(
            str(staleness), f"{seconds:.2f}", f"{whole / seconds:.2f}", *(f"{one:.0%}" for one in shares), f"{age:.1f}"
        )
    console.print(table)
    console.print(
        f"{found['responses']:.0f} responses a step in {found['generation_seconds']:.2f} s; {EVALUATORS} evaluators "
        f"take {found['evaluation_seconds']:.3f} s for each",
        highlight=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overlap"])
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each setting")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    parser.add_argument("--output", type=Path, help="a JSON file for all metrics")
    arguments = parser.parse_args()
    found = overlap(arguments.overrides, arguments.steps, arguments.warm_up)
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))
    print_overlap(found, Console(width=120))


if __name__ == "__main__":
    main()
