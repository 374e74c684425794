"""How fast a step of contrastive RL is. The first argument says what is measured:

step      a whole GRPO step (generation, log-probabilities, update, weight sync) of Warpsmith and of TRL's GRPOTrainer
          with the same settings on one GPU, one after the other, by stage (benchmarks.learner_step, learner_trl)
overlap   steps with `contrastive_rl.max_staleness` 0 and 1, when evaluation takes as long as generation: the time of a
          step, and the share of it in which each role had work. Engines and learner are real; the evaluators take a
          constant time and reward every response by its digest.
gpus      the steps of `step` on 1, 2, ... GPUs of a host, with engines and a learner rank on each, in turns; and with
          half of the GPUs for engines, half for ranks, at the same time (`contrastive_rl.max_staleness` 1)

    python -m benchmarks.learner step --model FOLDER [--steps 10] [--output FOLDER] [key=value ...]
    python -m benchmarks.learner overlap [--model FOLDER] [--steps 10] [--output FOLDER] [key=value ...]
    python -m benchmarks.learner gpus --model FOLDER [--gpus 1,2] [--steps 10] [--output FOLDER] [key=value ...]
    python -m benchmarks.learner table FOLDER              # prints the tables of figures that were written there

Overrides are of `configs/local.yaml`. The first steps of each run are left out (`--warm-up`). `step` and `gpus` need
GPUs, and `step` needs TRL; `overlap` runs on a CPU, too. Weight sync alone is `benchmarks.learner_sync`, memory
`benchmarks.learner_memory`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.learner_memory import print_longest, print_peak
from benchmarks.learner_step import (
    EVALUATORS,
    ON_A_GPU,
    SETTINGS,
    RandomPrompts,
    session_without_evaluators,
    with_constant_verdicts,
)
from benchmarks.learner_step import with_whole_responses as with_whole
from benchmarks.learner_sync import print_figures as print_sync
from benchmarks.learner_trl import STAGES, listed_versions, print_summary, summarise
from configs.load import load_config
from orchestration.commands.machine import machine_arch
from orchestration.driver import take_steps
from orchestration.phases.contrastive_rl import ContrastiveRl
from orchestration.session import Session

SMALL = (
    "tasks.include=[level1/softmax,level1/gelu_tanh]",
    "policy.scratch.hidden_size=64",
    "policy.scratch.heads=2",
    "policy.scratch.kv_heads=1",
    "policy.scratch.intermediate_size=128",
    "contrastive_rl.kl=0",
    "contrastive_rl.tasks_per_step=2",
    "contrastive_rl.group_size=4",
)
"""Settings of the overlap on a CPU."""
PROMPT_TOKENS, RESPONSE_TOKENS = 512, 512
LARGE = (
    "contrastive_rl.tasks_per_step=16",
    "contrastive_rl.group_size=16",
    "rollout.max_concurrent=128",
    f"rollout.max_tokens={RESPONSE_TOKENS}",
    "policy.max_length=2048",
    "contrastive_rl.learning_rate=1e-6",
)
"""Settings of the overlap on a GPU."""
ROLES = ("engines", "evaluators", "learner")
Steps = list[dict[str, float]]


def steps_of(session: Session, cycle: int, steps: int, staleness: int, seconds: float) -> Steps:
    """Takes `steps` steps, whose evaluation takes `seconds` for each response; returns their metrics."""
    config = session.config.contrastive_rl
    config.steps, config.max_staleness = steps, staleness
    pool = with_constant_verdicts(session, seconds)
    random = session.config.policy.model != "scratch"
    context = session.context()
    phase = RandomPrompts(context, cycle, PROMPT_TOKENS) if random else ContrastiveRl(context, cycle)
    take_steps(session, phase)
    pool.stop()
    metrics: Steps = [{} for _ in range(steps)]
    for row in session.run.metrics.read(phase.key).to_pylist():
        metrics[row["step"]][row["name"]] = row["value"]
    return metrics


def overlap(model: str, overrides: Sequence[str], steps: int, warm_up: int) -> dict[str, Any]:
    """Metrics of the steps, by `max_staleness`, without the warm-up steps."""
    with tempfile.TemporaryDirectory(prefix="warpsmith-learner-") as root:
        on_gpu = torch.cuda.is_available()
        machine = (*ON_A_GPU, *LARGE, f"evaluator.arch={machine_arch()}", f"policy.model={model}") if on_gpu else SMALL
        config = load_config("local", [f"root={root}", *SETTINGS, *machine, *overrides])
        with session_without_evaluators(config) as session:
            session.complete = lambda *_: None  # type: ignore[method-assign]  # it would write a checkpoint
            if on_gpu:
                with_whole(session)
            alone = steps_of(session, 1, warm_up + 3, 0, 0.0)[warm_up:]
            generation = median(step["generate_seconds"] for step in alone)
            responses = median(step["rollouts"] for step in alone)
            seconds = generation * EVALUATORS / responses
            measured = {
                str(staleness): steps_of(session, 2 + staleness, warm_up + steps, staleness, seconds)[warm_up:]
                for staleness in (0, 1)
            }
    return {"generation_seconds": generation, "responses": responses, "evaluation_seconds": seconds, "steps": measured}


def print_overlap(figures: dict[str, Any], console: Console) -> None:
    """Prints a line for each setting: medians over the steps."""
    table = Table("max_staleness", "step, s", "faster", *(f"{role}, share" for role in ROLES), "staleness", box=None)
    whole = median(step["step_seconds"] for step in figures["steps"]["0"])
    for staleness, steps in figures["steps"].items():
        seconds = median(step["step_seconds"] for step in steps)
        shares = [median(step[f"utilisation/{role}"] for step in steps) for role in ROLES]
        age = median(step["staleness"] for step in steps)
        table.add_row(
            staleness, f"{seconds:.2f}", f"{whole / seconds:.2f}", *(f"{share:.0%}" for share in shares), f"{age:.1f}"
        )
    console.print(table)
    console.print(
        f"{figures['responses']:.0f} responses a step in {figures['generation_seconds']:.2f} s; "
        f"{EVALUATORS} evaluators take {figures['evaluation_seconds']:.3f} s for each",
        highlight=False,
    )


def run_script(arguments: argparse.Namespace, name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Runs `benchmarks.learner_step` or `learner_trl` in a process of its own; returns its figures."""
    with tempfile.TemporaryDirectory(prefix="warpsmith-learner-") as folder:
        output = Path(folder) / "figures.json"
        options = ["--model", arguments.model, "--steps", str(arguments.steps), "--output", str(output)]
        options += ["--warm-up", str(arguments.warm_up), *overrides]
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=True, stdout=sys.stderr)
        figures: dict[str, Any] = json.loads(output.read_text())
        return figures


def step(arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of both trainers."""
    sides = (("learner_step", arguments.overrides), ("learner_trl", ()))
    return {name: run_script(arguments, name, overrides) for name, overrides in sides}


def several_gpus(arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of the steps by placement. Saves them after each placement, so that a later failure loses none."""
    places, each = dict[str, list[str]](), 2 if torch.cuda.is_available() else 1
    for count in map(int, arguments.gpus.split(",")):
        places[f"{count}, shared"] = [f"rollout.engines={each * count}", f"learner.ranks={count}"]
        if count > 1:
            half = [f"rollout.engines={count // 2}", f"learner.ranks={count // 2}", "rollout.engines_per_gpu=1"]
            separate = ["placement.share=none", "placement.mps=false", "contrastive_rl.max_staleness=1"]
            places[f"{count}, apart"] = [*half, *separate]
    figures = dict[str, Any]()
    for name, overrides in places.items():
        figures[name] = run_script(arguments, "learner_step", [*overrides, *arguments.overrides])
        if arguments.output:
            save(figures, arguments)
    return figures


def print_gpus(figures: dict[str, Any], console: Console) -> None:
    """Prints a line for each placement: medians over the steps."""
    at_work = ("engines", "learner")
    columns = ("GPUs", "step, s", *(f"{stage}, s" for stage in STAGES), *at_work, "tokens/s", "times faster")
    table = Table(*columns, box=None)
    medians = {name: summarise(trial) for name, trial in figures.items()}
    first = next(iter(medians.values()))["step_seconds"]
    for name, row in medians.items():
        # Stages that overlap do not add up to a step.
        stages = ("-" if row[f"{stage}_seconds"] < 0 else f"{row[f'{stage}_seconds']:.2f}" for stage in STAGES)
        seconds = row["step_seconds"]
        shares = (median(step[f"utilisation/{role}"] for step in figures[name]["metrics"]) for role in at_work)
        speed = (f"{row['tokens_per_second']:,.0f}", f"{first / seconds:.2f}")
        table.add_row(name, f"{seconds:.2f}", *stages, *(f"{share:.0%}" for share in shares), *speed)
    console.print(table)
    first_figures = next(iter(figures.values()))
    about = first_figures["settings"]
    console.print(
        f"medians of {len(first_figures['steps'])} steps of {about['prompts']} x {about['responses']} responses, "
        f"{about['prompt_tokens']} and {about['response_tokens']} tokens; {about['model']} on {about['device']}; "
        f"{listed_versions(first_figures)}",
        highlight=False,
    )


def print_step(figures: dict[str, Any], console: Console) -> None:
    """Prints a line for each trainer: medians over the steps."""
    columns = ("trainer", "step, s", *(f"{stage}, s" for stage in STAGES), "tokens/s", "peak, GB", "times faster")
    table = Table(*columns, box=None)
    medians = {name: summarise(trial) for name, trial in figures.items()}
    slowest = max(row["step_seconds"] for row in medians.values())
    for name, row in medians.items():
        table.add_row(
            {"learner_step": "Warpsmith", "learner_trl": "TRL"}[name],
            f"{row['step_seconds']:.2f}",
            *(f"{row[f'{stage}_seconds']:.2f}" for stage in STAGES),
            f"{row['tokens_per_second']:,.0f}",
            f"{row['peak_bytes'] / 1e9:.1f}",
            f"{slowest / row['step_seconds']:.2f}",
        )
    console.print(table)
    ours = figures["learner_step"]
    outside = median(metrics["train/mismatch_outside"] for metrics in ours["metrics"])
    about = ours["settings"]
    console.print(
        f"medians of {len(ours['steps'])} steps of {about['prompts']} x {about['responses']} responses, "
        f"{about['prompt_tokens']} and {about['response_tokens']} tokens; trainer's / engine's probability outside 0.9 "
        f"to 1.1 for {outside:.2%} of the tokens; {about['model']} on {about['device']}; {listed_versions(ours)}",
        highlight=False,
    )


def save(figures: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Writes the figures to a JSON file."""
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / f"{arguments.what}.json").write_text(json.dumps(figures, indent=1))


PRINTERS = {
    "alone": print_summary,
    "gpus": print_gpus,
    "longest": print_longest,
    "overlap": print_overlap,
    "peak": print_peak,
    "step": print_step,
    "sync": print_sync,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "overlap", "gpus", "table"])
    parser.add_argument("overrides", nargs="*", help="key=value; the folder, for `table`")
    parser.add_argument("--model", default="scratch", help="a folder")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each setting")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    parser.add_argument("--gpus", default="1,2", help="how many, one after the other (gpus)")
    parser.add_argument("--output", type=Path, help="a folder for a JSON file of all metrics")
    arguments = parser.parse_intermixed_args()
    console = Console(width=120)
    if arguments.what == "table":
        for what, printed in PRINTERS.items():
            for file in sorted(Path(arguments.overrides[0]).glob(f"{what}*.json")):
                console.print(f"== {file.stem}")
                printed(json.loads(file.read_text()), console)
        return
    if arguments.what == "overlap":
        figures = overlap(arguments.model, arguments.overrides, arguments.steps, arguments.warm_up)
    else:
        figures = (step if arguments.what == "step" else several_gpus)(arguments)
    if arguments.output:
        save(figures, arguments)
    PRINTERS[arguments.what](figures, console)


if __name__ == "__main__":
    main()
