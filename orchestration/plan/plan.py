"""The plan of a run: the nodes to rent, the time of its steps, its hours and their price.

With a target for the seconds of a step, the evaluators are the cheapest mix that keeps it (`cluster.cost.mix`). Without
one, they are those of the configuration.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.cost.mix import Mix, NodeKind, NoMix, Slice, cheapest_mix
from cluster.cost.prices import Prices
from cluster.cost.rates import Rate
from configs.load import ConfigError
from configs.node_groups import parse_group
from configs.schema import RunConfig
from orchestration.plan.earlier import EarlierRun, Pace
from orchestration.plan.notes import assumptions, gaps
from orchestration.plan.sizes import Sizes, measure_sizes
from orchestration.plan.step_time import Load, StepTime, of_training, step_time
from orchestration.setup.stages import Stage

_TRIES = 16
_LEAST_TIGHTENING = 0.98
_ASSESSMENTS = "assessments"
TARGET_PHASES = ("contrastive_rl", "self_supervised")
_ORDER = (*TARGET_PHASES, _ASSESSMENTS)


@dataclass(frozen=True)
class Wanted:
    """What a plan is made for. `types`: that may judge. `training_type`: of engines and learner. `step_seconds`: of a
    step at most; 0: the evaluators are those of the configuration."""

    types: tuple[str, ...]
    training_type: str
    step_seconds: float = 0.0


@dataclass(frozen=True)
class PlannedStage:
    """A stage of the run: so many steps of so many responses, each of which takes `step`; `hours` in all."""

    key: str
    phase: str
    steps: int
    responses: int
    step: StepTime
    hours: float


@dataclass(frozen=True)
class Option:
    """One way to rent. `nodes`: by kind, such as `H100x8`. `evaluators`: by type. `step_seconds`: of the phase that a
    target is for, or of the assessments of a run without one. `hour`, `cost`: prices of an hour and of the run, or
    GPU-hours without prices."""

    name: str
    nodes: Mapping[str, int]
    gpus: int
    evaluators: Mapping[str, int]
    stages: tuple[PlannedStage, ...]
    step_seconds: float
    hours: float
    hour: float
    cost: float


@dataclass(frozen=True)
class TypeFacts:
    """What is known of a type. `rate`: candidates that one GPU judges in an hour; 0 if that is not known."""

    accelerator: str
    rate: float
    basis: str
    price: float | None


@dataclass(frozen=True)
class Plan:
    """`options`: the best one first. `unit`: what `hour` and `cost` are in. `share`: candidates for evaluators by
    response. `assumed`, `missing`: what the figures take for granted, and what they leave out."""

    options: tuple[Option, ...]
    unit: str
    types: tuple[TypeFacts, ...]
    target: float
    share: float
    assumed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Parts:
    """What every option is made of. `taken`: GPUs by type that do not judge for `evaluator.arch`."""

    config: RunConfig
    stages: Sequence[Stage]
    wanted: Wanted
    sizes: Sizes
    prices: Mapping[str, float]
    share: float
    pace: Pace | None
    taken: Mapping[str, int] = field(default_factory=dict)

    def load(self, responses: int) -> Load:
        return Load(responses, math.ceil(responses * self.share))


def make_plan(
    config: RunConfig,
    stages: Sequence[Stage],
    assessed: int,
    runs: Sequence[EarlierRun],
    prices: Prices,
    rates: Mapping[str, Rate],
    wanted: Wanted,
) -> Plan:
    """The plan of a run with these phases, and `assessed` responses in each assessment.

    Raises ConfigError if nothing is known of a type, if prices decide and are missing, or if no number of nodes keeps
    the target.
    """
    sizes = measure_sizes(runs, rates, wanted.types, config.evaluator.preset)
    taken = _taken(config, wanted.training_type)
    known = {name: prices.gpus[name].price for name in (*wanted.types, *taken) if name in prices.gpus}
    usable = _usable(wanted, sizes, known, prices, taken)
    pace = next((run.pace for run in runs if run.pace and run.pace.model == config.policy.model), None)
    pace = pace or next((run.pace for run in runs if run.pace), None)
    share = next((run.share for run in runs if run.share is not None), 1.0)
    priced = all(name in known for name in (*usable, *taken))
    unit = prices.currency if priced else "GPU-hours"
    parts = _Parts(
        config, _with_assessments(stages, assessed), wanted, sizes, known if priced else {}, share, pace, taken
    )
    options = _for_target(parts, usable) if wanted.step_seconds else [_as_configured(parts)]
    return Plan(
        tuple(options),
        unit,
        tuple(_facts(name, sizes, prices) for name in wanted.types),
        wanted.step_seconds,
        share,
        tuple(assumptions(config, runs, pace, wanted.training_type, options[0].evaluators)),
        tuple(gaps(config, runs, pace, sizes, set(wanted.types) - set(usable), priced=priced)),
    )


def training_gpus(config: RunConfig) -> int:
    """The GPUs of engines and learner. With `placement.share: all` evaluators are on them, too."""
    rollout = config.rollout
    engines = math.ceil(rollout.engines / rollout.engines_per_gpu) * rollout.tensor_parallel
    if config.placement.share == "none":
        return engines + config.learner.ranks
    shared = max(engines, config.learner.ranks)
    return max(shared, config.evaluator.workers) if config.placement.share == "all" else shared


def _taken(config: RunConfig, training_type: str) -> dict[str, int]:
    """The GPUs, by type, of engines and learner, and of the evaluators of `evaluation.archs`."""
    taken = Counter({training_type: training_gpus(config)} if config.evaluator.arch != "cpu" else {})
    taken.update({arch: further.workers for arch, further in config.evaluation.archs.items() if arch != "cpu"})
    return dict(taken)


def _usable(
    wanted: Wanted, sizes: Sizes, known: Mapping[str, float], prices: Prices, taken: Collection[str]
) -> list[str]:
    """The types that can be planned with: those whose speed is known and, if there are several, whose price is."""
    timed = [name for name in wanted.types if name in sizes.seconds]
    if not timed:
        raise ConfigError(
            f"{'; '.join(sizes.lacking.values())}: give a run that has measured there (--like RUN), or a rate "
            f"(--rates FILE)"
        )
    if len(timed) == 1:
        return timed
    if unpriced := [name for name in (*timed, *taken) if name not in known]:
        priced = [name for name in timed if name in known]
        if not priced or any(name not in known for name in taken):
            raise ConfigError(
                f"{prices.origin}: has no price of {', '.join(dict.fromkeys(unpriced))}, and types are compared by "
                f"price: copy the file, fill it in, and give it as --prices FILE"
            )
        return priced
    return timed


def _with_assessments(stages: Sequence[Stage], responses: int) -> list[Stage]:
    """The stages of the run that sample responses."""
    assessments = Stage(_ASSESSMENTS, _ASSESSMENTS, len(stages) + 1, responses)
    return [*(stage for stage in stages if stage.responses), assessments]


def _for_target(parts: _Parts, usable: Sequence[str]) -> list[Option]:
    """The cheapest mix of all types, then each type alone. Raises ConfigError if not even the mix keeps the target."""
    if parts.config.placement.share == "all":
        raise ConfigError(
            "placement.share=all: evaluators take turns with the other roles on their GPUs, so there is no mix to "
            "choose; set placement.share=training, or leave out --step-seconds"
        )
    stage = _target_stage(parts)
    options: dict[str, Option] = {}
    groups = [tuple(usable), *((name,) for name in usable)] if len(usable) > 1 else [tuple(usable)]
    for group in groups:
        try:
            mix, evaluators = _mix_for(parts, group, stage)
        except NoMix as error:
            if group == groups[0]:
                raise ConfigError(f"--step-seconds {parts.wanted.step_seconds:g}: {error}") from error
            continue
        name = " + ".join(dict.fromkeys(mix.types))
        options.setdefault(name, _option(parts, name, mix, mix.types, evaluators))
    return sorted(options.values(), key=lambda option: option.hour)


def _target_stage(parts: _Parts) -> Stage:
    found = {stage.phase: stage for stage in parts.stages}
    for phase in TARGET_PHASES:
        if phase in found:
            return found[phase]
    raise ConfigError(
        f"--step-seconds: no phase of schedule.phases samples responses; it needs {' or '.join(TARGET_PHASES)}"
    )


def _mix_for(parts: _Parts, types: Sequence[str], stage: Stage) -> tuple[Mix, dict[str, int]]:
    """The cheapest mix of `types` with which a step keeps the target, and its evaluators.

    The load of a step is first to be judged in all the time that there is. If the end of a simulated step is later than
    the target, since the last candidates leave most evaluators idle, the same load is to be judged in less.
    """
    target, load, sizes = parts.wanted.step_seconds, parts.load(stage.responses), parts.sizes
    overlaps = parts.config.contrastive_rl.max_staleness > 0 and stage.phase == "contrastive_rl"
    generation, learning, push = of_training(parts.config, load, parts.pace) if parts.pace else (0.0, 0.0, 0.0)
    in_turns = parts.config.placement.share == "training"
    alone = push + (generation + learning if in_turns or not overlaps else max(generation, learning))
    if alone > target:
        raise NoMix(
            f"generation and learning alone take {alone:.1f} s of a step: raise rollout.engines or learner.ranks"
        )
    window = target if overlaps else target - learning - push
    for _ in range(_TRIES):
        rate = load.candidates * 3600.0 / window
        slices = [
            Slice(rate * weight, {name: 3600.0 / sizes.seconds[name][number].mean() for name in types})
            for number, weight in enumerate(sizes.weights)
        ]
        mix = cheapest_mix(slices, _kinds(parts, types), parts.taken)
        evaluators = _evaluators(parts, mix)
        took = step_time(parts.config, sizes, mix.types, evaluators, load, parts.pace, overlaps=overlaps)
        if took.total <= target:
            return mix, evaluators
        if all(count >= load.candidates for count in evaluators.values()):
            break  # each candidate has an evaluator of its own
        window *= min(_LEAST_TIGHTENING, window / (window + took.total - target))
    longest = max(sizes.longest(name) for name in types)
    raise NoMix(f"more evaluators do not help: the longest candidates take {longest:.1f} s alone")


def _evaluators(parts: _Parts, mix: Mix) -> dict[str, int]:
    """All GPUs that are left on nodes which are paid for judge, if their type judges at all."""
    return {name: mix.gpus(name) - parts.taken.get(name, 0) for name in dict.fromkeys(mix.types)}


def _as_configured(parts: _Parts) -> Option:
    config, arch = parts.config, parts.config.evaluator.arch
    needed = dict(parts.taken)
    if config.placement.share != "all" or arch == "cpu":
        needed[arch] = needed.get(arch, 0) + config.evaluator.workers
    try:
        mix = cheapest_mix([], _kinds(parts, [arch]), needed)
    except NoMix as error:
        raise ConfigError(f"cluster.gpu_nodes: {error}; the run needs {_listed(needed)}") from error
    types = (arch,) * len(parts.sizes.weights)
    return _option(parts, "as configured", mix, types, {arch: config.evaluator.workers})


def _kinds(parts: _Parts, types: Sequence[str]) -> list[NodeKind]:
    """The nodes of these types, and of that of engines and learner: those of `cluster.gpu_nodes`, else single GPUs."""
    groups = [parse_group(text) for text in parts.config.cluster.gpu_nodes]
    names = list(dict.fromkeys([*types, *parts.taken]))
    nodes = [
        NodeKind(group.accelerator, group.gpus, group.gpus * parts.prices.get(group.accelerator, 1.0), group.most)
        for group in groups
        if group.accelerator in names
    ]
    return nodes + [NodeKind(name, 1, parts.prices.get(name, 1.0)) for name in names if name == "cpu" or not groups]


def _option(parts: _Parts, name: str, mix: Mix, types: Sequence[str], evaluators: Mapping[str, int]) -> Option:
    config, planned = parts.config, []
    for stage in parts.stages:
        overlaps = stage.phase == "contrastive_rl" and config.contrastive_rl.max_staleness > 0
        step = step_time(
            config, parts.sizes, types, evaluators, parts.load(stage.responses), parts.pace,
            learns=stage.phase != _ASSESSMENTS, overlaps=overlaps,
        )  # fmt: skip
        hours = stage.steps * step.total / 3600.0
        if stage.phase == "contrastive_rl" and config.contrastive_rl.minutes:
            hours = min(hours, config.contrastive_rl.minutes / 60.0)
        planned.append(PlannedStage(stage.key, stage.phase, stage.steps, stage.responses, step, hours))
    hours = sum(stage.hours for stage in planned)
    nodes = {f"{kind.accelerator}x{kind.gpus}": count for kind, count in mix.nodes.items()}
    gpus = sum(count * kind.gpus for kind, count in mix.nodes.items())
    first = min(planned, key=lambda stage: _ORDER.index(stage.phase))
    return Option(
        name, nodes, gpus, dict(evaluators), tuple(planned), first.step.total, hours, mix.price, hours * mix.price
    )


def _facts(accelerator: str, sizes: Sizes, prices: Prices) -> TypeFacts:
    price = prices.gpus[accelerator].price if accelerator in prices.gpus else None
    if accelerator in sizes.lacking:
        return TypeFacts(accelerator, 0.0, f"missing: {sizes.lacking[accelerator]}", price)
    return TypeFacts(accelerator, 3600.0 / sizes.mean(accelerator), sizes.basis[accelerator], price)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in counts.items())
