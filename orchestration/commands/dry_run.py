"""Prints the plan of a run, for `--dry-run`: tasks, policy, phases, and how many responses they ask for."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from configs.addresses import without_login
from configs.archs import counted_archs
from configs.frozen import asks_endpoint, has_engines, learns
from configs.load import dump_config
from configs.schema import RunConfig
from learners.tokenizing import PolicyError
from orchestration.run.directory import RunDirectory
from orchestration.setup.inputs import check_inputs, resumable
from orchestration.setup.memory_plan import memory_plan, memory_table, refuse_what_cannot_fit
from orchestration.setup.stages import assessed_responses, phase_stages
from orchestration.setup.tasks import RunTasks, describe_held_out, describe_marked, refuse_broken, select_tasks


def print_plan(config: RunConfig, console: Console) -> None:
    """Prints the resolved configuration and the plan.

    First makes the checks of `Session`, except for two that need a network: whether the hub has the policy, and whether
    a `root` that is a URI holds another run. Raises what they raise, and ConfigError if the roles cannot fit into
    memory.
    """
    named = select_tasks(config.tasks)
    check_inputs(config, hub=False)
    if "://" not in config.root:
        resumable(RunDirectory(config.root, config.name), config)
    tasks = RunTasks.draw(named, config)
    refuse_broken(tasks.assessed)
    held_out = [task.id for task in tasks.held_out]
    console.print(dump_config(config), markup=False, highlight=False)
    console.print(_phase_table(config, len(tasks.training), len(held_out)))
    for description in (describe_marked(tasks.marks, config.tasks), describe_held_out(held_out)):
        if description:
            console.print(description, markup=False, highlight=False)
    samples, source = assessed_responses(config, tasks), config.rollout.endpoint
    answering = f"{config.rollout.engines} engine(s)"
    policy = config.policy.model
    if asks_endpoint(config):
        answering, policy = f"answers of {without_login(source.url)}", source.model
    elif not has_engines(config):
        answering, policy = "0 engine(s)", "none"
    console.print(
        f"{len(tasks.training)} tasks on {config.evaluator.arch}; policy {policy}; {answering}, "
        f"{config.learner.ranks if learns(config) else 0} learner rank(s), {config.evaluator.workers} evaluator(s)"
        + (f"; {samples} fresh samples at the start and after each phase that learns" if learns(config) else ""),
        markup=False,
        highlight=False,
    )
    for arch, further in config.evaluation.archs.items():
        which = "every program" if arch in counted_archs(config) else f"{further.share:.0%} of the right programs"
        console.print(f"{further.workers} evaluator(s) on {arch}, which judge {which} and the best ones at the end")
    if not has_engines(config):
        return
    try:
        memory = memory_plan(config)
    except PolicyError as error:
        console.print(f"memory is not estimated: {error}", markup=False, highlight=False)
        return
    console.print(memory_table(memory))
    refuse_what_cannot_fit(config, memory)


def _phase_table(config: RunConfig, tasks: int, held_out: int) -> Table:
    """A row per phase of the schedule, for a run that trains on this number of tasks and holds out others."""
    table = Table("phase", "steps", "responses a step", "trains on", box=None)
    sources = {
        "sft": f"verified programs of {', '.join(config.sft.teachers)}",
        "self_supervised": "its own correct programs",
        "contrastive_rl": f"speed-up over {config.reward.baseline}",
        "collect": f"nothing: it keeps verified programs of {', '.join(config.sft.teachers)}",
        "vanilla": "nothing",
        "evolve": "nothing",
    }
    for stage in phase_stages(config, tasks, held_out):
        table.add_row(stage.key, str(stage.steps), str(stage.responses or "-"), sources[stage.phase])
    return table
