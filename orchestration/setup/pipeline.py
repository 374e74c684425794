"""Connects the pools of a run: the pipeline, the reviewer of its verdicts, and the reward checker that it asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from configs.archs import counted_archs, sampled_archs
from configs.schema import RunConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Task
from orchestration.fleet.roles import Roles
from orchestration.run.set_aside import SetAside
from orchestration.step.checker import POLICY, Background, EndpointChecker, PolicyChecker
from orchestration.step.elsewhere import Elsewhere
from orchestration.step.endpoint_engines import EndpointEngines, NoEngines
from orchestration.step.judging import Judging
from orchestration.step.known import RunVerdicts
from orchestration.step.pipeline import Pipeline
from orchestration.step.prompts import PromptWriter
from orchestration.step.review import Checker, Reviewer


def open_pipeline(
    config: RunConfig,
    tasks: Sequence[Task],
    roles: Roles,
    prompts: PromptWriter,
    cases: HackCases,
    known: RunVerdicts,
    set_aside: SetAside,
    on_progress: Callable[[dict[str, float]], None],
    stack: ExitStack,
    known_elsewhere: Mapping[str, RunVerdicts] | None = None,
    endpoint: EndpointEngines | None = None,
) -> Pipeline:
    """The pipeline over started roles. `stack` closes what a reward checker opened; `on_progress` gets rates. `known`:
    the verdicts on `evaluator.arch`, `known_elsewhere`: on each of `evaluation.archs`. `endpoint`: answers in place of
    engines."""
    checker = _open_checker(config, roles, prompts, stack)
    sampled = sampled_archs(config)

    def judging_on(arch: str) -> Judging:
        pools = roles.further[arch]
        return Judging(
            tasks,
            pools.builders,
            pools.evaluators,
            Reviewer(config.guard, cases, prompts.references, checker),
            builders_look=False,
            remeasure_best=config.evaluator.remeasure_best,
            confirms_jumps=pools.confirms,
            known=(known_elsewhere or {})[arch],
            store=Path(roles.store),
            set_aside=set_aside,
            arch=arch,
            is_sampled=arch in sampled,
        )

    elsewhere = Elsewhere(
        {arch: judging_on(arch) for arch in counted_archs(config)},
        {arch: (judging_on(arch), share) for arch, share in sampled.items()},
    )
    engines = endpoint or roles.engines or NoEngines()
    return Pipeline(
        tasks,
        engines,
        roles.builders,
        roles.evaluators,
        config.rollout,
        Reviewer(config.guard, cases, prompts.references, checker),
        on_progress,
        roles.turns,
        config.evaluator.remeasure_best,
        roles.looks_on_cpu,
        known,
        Path(roles.store),
        set_aside,
        elsewhere,
        confirms_jumps=roles.confirms_jumps,
    )


def _open_checker(config: RunConfig, roles: Roles, prompts: PromptWriter, stack: ExitStack) -> Checker | None:
    """The reward checker that the configuration names; None without one."""
    guard = config.guard
    if not guard.enabled or not guard.checker:
        return None
    if guard.checker == POLICY:
        engines = roles.engines
        assert engines is not None  # `configs.checks_endpoint`
        return PolicyChecker(
            lambda request: engines.submit(request, "generate"), prompts.encode_text, config.policy.max_length
        )
    background = Background(EndpointChecker(guard), guard.checker_timeout)
    stack.callback(background.close)
    return background
