"""What a run would do, for `--dry-run`: tasks, policy, phases and how many responses and verdicts they ask for."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from configs.load import dump_config
from configs.schema import RunConfig
from learners.policy import PolicyError
from orchestration.setup.memory_plan import memory_plan, memory_table, refuse_what_cannot_fit
from orchestration.setup.tasks import (
    describe_held_out,
    describe_marked,
    draw_held_out,
    marks_of_tasks,
    select_tasks,
    without_marked,
)


def print_plan(config: RunConfig, console: Console) -> None:
    """Prints the resolved configuration and the plan. Raises TaskError for a selection without tasks, ConfigError for
    what cannot fit into memory."""
    named = select_tasks(config.tasks)
    marks = marks_of_tasks(named, config.tasks)
    chosen = without_marked(named, marks, config.tasks)
    held_out = draw_held_out([task for task in chosen if task.id not in marks], config.tasks.held_out, config.seed)
    tasks = [task for task in chosen if task.id not in held_out]
    console.print(dump_config(config), markup=False, highlight=False)
    table = Table("phase", "steps", "responses a step", "trains on", box=None)
    rows = {
        "sft": (1 + config.sft.epochs, 0, f"verified programs of {', '.join(config.sft.teachers)}"),
        "self_supervised": (
            config.self_supervised.max_rounds,
            config.self_supervised.samples * len(tasks),
            "its own correct programs",
        ),
        "contrastive_rl": (
            config.contrastive_rl.steps,
            config.contrastive_rl.group_size * min(config.contrastive_rl.tasks_per_step, len(tasks)),
            f"speed-up over {config.reward.baseline}",
        ),
    }
    for cycle in range(1, config.schedule.cycles + 1):
        for name in config.schedule.phases:
            steps, responses, source = rows[name]
            table.add_row(f"{cycle}-{name}", str(steps), str(responses or "-"), source)
    console.print(table)
    if said := describe_marked(marks, config.tasks):
        console.print(said, markup=False, highlight=False)
    if said := describe_held_out(held_out):
        console.print(said, markup=False, highlight=False)
    assessed = config.assessment.samples * len(chosen)
    console.print(
        f"{len(tasks)} tasks on {config.evaluator.arch}; policy {config.policy.model}; "
        f"{config.rollout.engines} engine(s), {config.learner.ranks} learner rank(s), "
        f"{config.evaluator.workers} evaluator(s); {assessed} fresh samples at the start and after each phase"
    )
    try:
        memory = memory_plan(config)
    except PolicyError as error:
        console.print(f"memory is not estimated: {error}", markup=False, highlight=False)
        return
    console.print(memory_table(memory))
    refuse_what_cannot_fit(config, memory)
