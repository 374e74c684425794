"""`warpsmith evolve`: optimises tasks with a model that stays as it is, behind an endpoint or in engines of its own."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.options import Arch, DryRun, parse_words
from orchestration.commands.reachable import refuse_silent
from orchestration.commands.refusal import refuse

if TYPE_CHECKING:
    from configs.schema import RunConfig

_CONFIG = "evolve"


Tasks = Annotated[
    str, typer.Argument(metavar="TASKS", help="A KernelBench folder, a .jsonl or .py file, or `bundled`.")
]
Endpoint = Annotated[
    str, typer.Option(metavar="URL", help="An OpenAI-compatible endpoint (OPENAI_API_KEY).", show_default=False)
]
Model = Annotated[
    str,
    typer.Option(
        help="The endpoint's model. Without --endpoint: a folder or Hugging Face id for vLLM here.", show_default=False
    ),
]
Feedback = Annotated[
    str, typer.Option(help="What prompts say of the latest program: profile, messages, both, or none.")
]
Name = Annotated[
    str, typer.Option(help="Of the run, in `runs`. Default: evolve- and the tasks' name.", show_default=False)
]
Price = Annotated[float, typer.Option(help="Of a million tokens of prompts, or of answers.", min=0.0)]


def evolve(
    tasks: Tasks,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    endpoint: Endpoint = "",
    model: Model = "",
    rounds: Annotated[int, typer.Option(help="Rounds over all tasks.", min=1)] = 8,
    samples: Annotated[int, typer.Option(help="Answers per task and round.", min=1)] = 4,
    budget_evaluations: Annotated[int, typer.Option(help="Programs to judge in all; 0: no limit.", min=0)] = 0,
    budget_tokens: Annotated[int, typer.Option(help="Tokens of prompts and answers; 0: no limit.", min=0)] = 0,
    budget_money: Annotated[float, typer.Option(help="Money for an endpoint's answers; 0: no limit.", min=0.0)] = 0.0,
    input_price: Price = 0.0,
    output_price: Price = 0.0,
    feedback: Feedback = "profile,messages",
    arch: Arch = "auto",
    name: Name = "",
    dry_run: DryRun = False,
) -> None:
    """Optimise tasks with a model that stays as it is. The same command again resumes it."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if not model:
        raise refuse("--model: name the model of the endpoint, or without --endpoint one for vLLM on this machine")
    settings = {
        "name": name or f"{_CONFIG}-{Path(tasks.split(',')[0]).stem}",
        "tasks.source": tasks,
        "rollout.endpoint.url": endpoint,
        "rollout.endpoint.model" if endpoint else "policy.model": model,
        "rollout.endpoint.asking.input_price": input_price,
        "rollout.endpoint.asking.output_price": output_price,
        "evolve.rounds": rounds,
        "evolve.samples": samples,
        "evolve.feedback": [] if feedback == "none" else list(parse_words(feedback)),
        "evolve.budget.evaluations": budget_evaluations,
        "evolve.budget.tokens": budget_tokens,
        "evolve.budget.money": budget_money,
        "evaluator.arch": arch,
    }
    config = _checked(settings, overrides or [], dry_run=dry_run)
    if not dry_run:
        from orchestration.commands.run import carry_out

        carry_out(config)
        for line in best_programs(config):
            print(line)


def _checked(settings: dict[str, object], overrides: list[str], *, dry_run: bool) -> RunConfig:
    """The configuration that the options mean. Everything is checked that can be before actors start; a dry run also
    prints the plan. Refuses bad input."""
    from configs.load import load_config
    from evaluators.tasks import load_tasks
    from orchestration.commands.machine import machine_arch
    from orchestration.setup.tasks import refuse_broken, select_tasks

    arch = machine_arch() if settings["evaluator.arch"] == "auto" else settings["evaluator.arch"]
    levels = sorted({task.level for task in load_tasks(str(settings["tasks.source"]), "source")})
    profile = "cpu" if arch == "cpu" else "cuda"
    settings |= {"evaluator.arch": arch, "tasks.profile": profile, "tasks.levels": levels}
    if arch != "cpu" and not settings["rollout.endpoint.url"]:
        settings["placement.share"] = "all"  # engine and evaluator take turns, so one GPU is enough
    words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    config = load_config(_CONFIG, [*words, *overrides])
    refuse_broken(select_tasks(config.tasks))
    if config.rollout.endpoint.url:
        refuse_silent("--endpoint", config.rollout.endpoint.url)
    if dry_run:
        from rich.console import Console

        from orchestration.commands.dry_run import print_plan

        print_plan(config, Console())
    return config


def best_programs(config: RunConfig) -> Iterator[str]:
    """Lines on the best program of each task: its speed-up over eager, and its file. The first says what was spent."""
    from configs.frozen import asks_endpoint
    from orchestration.report import format as fmt
    from orchestration.run.directory import RunDirectory
    from orchestration.run.state import RunState, phase_key
    from orchestration.setup.tasks import RunTasks, select_tasks
    from orchestration.step.spending import Spending

    run = RunDirectory(config.root, config.name)
    state = run.read_state() or RunState()
    spent = Spending(**state.extra.get(phase_key(1, "evolve"), {}).get("spent", {}))
    cost = f", {spent.money:.4g} in money" if asks_endpoint(config) and spent.money else ""
    yield f"{spent.evaluations} programs judged, {spent.tokens} tokens{cost}"
    best = {kernel.task_id: kernel for kernel in run.kernels.read() if kernel.arch == config.evaluator.arch}
    tasks = RunTasks.of_begun_run(select_tasks(config.tasks), config.tasks, run.read_marks(), run.read_held_out())
    width = max(len(task.id) for task in tasks.assessed)
    for task in tasks.assessed:
        kernel = best.get(task.id)
        if kernel is None:
            yield f"{task.id:<{width}}  no right program"
            continue
        estimate = kernel.verdict.speedups["eager"]
        interval = fmt.speed_interval(estimate)
        yield f"{task.id:<{width}}  {fmt.speed(estimate.value):>7} ({interval})  {run.kernels.place(kernel)}"
