"""`warpsmith plan`: the GPUs of a run, the time of its steps, and what it costs, before anyone pays."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.options import parse_words
from orchestration.commands.refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.cost.prices import Prices
    from cluster.cost.rates import Rate
    from configs.schema import RunConfig
    from orchestration.plan.earlier import EarlierRun
    from orchestration.plan.plan import Plan, Wanted


Like = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RUN",
        help="A run that has measured how long candidates take, or its published folder. May be repeated.",
        show_default=False,
    ),
]
StepSeconds = Annotated[
    float, typer.Option(min=0.0, help="Choose the cheapest evaluators for steps of at most so many seconds.")
]
Types = Annotated[
    str,
    typer.Option(
        help="GPU types that may judge, with commas between. Default: cluster.gpu_nodes, else evaluator.arch.",
        show_default=False,
    ),
]
TrainingType = Annotated[
    str, typer.Option(help="GPU type of engines and learner. Default: evaluator.arch.", show_default=False)
]
PricesFile = Annotated[
    Path | None, typer.Option(help="Prices of GPUs: a file like cluster/cost/prices.yaml.", show_default=False)
]
RatesFile = Annotated[
    Path | None,
    typer.Option(
        help="Candidates that a GPU judges in an hour: a file like cluster/cost/rates.yaml.", show_default=False
    ),
]


def plan(
    config: Annotated[str, typer.Argument(help="A configuration file, or the name of one of ours (`local`).")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    like: Like = None,
    step_seconds: StepSeconds = 0.0,
    types: Types = "",
    training_type: TrainingType = "",
    prices: PricesFile = None,
    rates: RatesFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Print which GPUs a run needs, how long its steps take and what it costs, from what earlier runs measured."""
    from cluster.cost.prices import SHIPPED_PRICES, read_prices
    from cluster.cost.rates import SHIPPED_RATES, read_rates
    from configs.load import load_config
    from orchestration.commands.machine import machine_arch
    from orchestration.plan.earlier import read_earlier

    try:
        settings = load_config(config, overrides or [])
        if settings.evaluator.arch == "auto":
            settings.evaluator.arch = machine_arch()
        wanted = _wanted(settings, parse_words(types), training_type, step_seconds)
        found_prices, found_rates = read_prices(prices or SHIPPED_PRICES), read_rates(rates or SHIPPED_RATES)
        looks = settings.placement.share == "all"
        runs = [read_earlier(place, builders_look=looks) for place in like or ()]
        made = _make(settings, wanted, runs, found_prices, found_rates)
    except OSError as error:
        raise refuse(f"--like: {error}") from None
    if as_json:
        print(json.dumps(asdict(made)))
    else:
        from rich.console import Console

        from orchestration.plan.show import show

        show(made, Console())


def _wanted(config: RunConfig, types: tuple[str, ...], training_type: str, step_seconds: float) -> Wanted:
    """What to plan for. Without a target, the configuration's own evaluators are planned with."""
    from configs.load import ConfigError
    from configs.node_groups import parse_group
    from orchestration.plan.plan import Wanted

    arch = config.evaluator.arch
    if types and not step_seconds:
        raise ConfigError("--types: give --step-seconds, too; without it the evaluators are those of the configuration")
    groups = tuple(dict.fromkeys(parse_group(text).accelerator for text in config.cluster.gpu_nodes))
    chosen = (types or (groups if arch != "cpu" else ()) or (arch,)) if step_seconds else (arch,)
    if (arch == "cpu") != (chosen == ("cpu",)):
        raise ConfigError(f"--types: evaluator.arch={arch} is judged by {arch} alone, got {','.join(chosen)}")
    if config.placement.share == "all" and training_type not in ("", arch):
        raise ConfigError(f"--training-type: with placement.share=all engines and learner are on {arch}, too")
    return Wanted(chosen, training_type or arch, step_seconds)


def _make(
    config: RunConfig, wanted: Wanted, runs: Sequence[EarlierRun], prices: Prices, rates: Mapping[str, Rate]
) -> Plan:
    from orchestration.plan.plan import make_plan
    from orchestration.setup.stages import assessed_responses, phase_stages
    from orchestration.setup.tasks import RunTasks, select_tasks

    tasks = RunTasks.draw(select_tasks(config.tasks), config)
    stages = phase_stages(config, len(tasks.training), len(tasks.held_out))
    return make_plan(config, stages, assessed_responses(config, tasks), runs, prices, rates, wanted)
