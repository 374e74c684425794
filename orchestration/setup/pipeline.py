"""Connects the pools of a run: the pipeline, the reviewer of its verdicts, and the reward checker that it asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from configs.schema import RunConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Task
from orchestration.fleet.roles import Roles
from orchestration.run.set_aside import SetAside
from orchestration.step.checker import POLICY, Background, EndpointChecker, PolicyChecker
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
) -> Pipeline:
    """The pipeline over started roles. `stack` closes what a reward checker opened; `on_progress` gets rates."""
    checker = _open_checker(config, roles, prompts, stack)
    return Pipeline(
        tasks,
        roles.engines,
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
    )


def _open_checker(config: RunConfig, roles: Roles, prompts: PromptWriter, stack: ExitStack) -> Checker | None:
    """The reward checker that the configuration names; None without one."""
    guard = config.guard
    if not guard.enabled or not guard.checker:
        return None
    if guard.checker == POLICY:
        return PolicyChecker(
            lambda request: roles.engines.submit(request, "generate"), prompts.encode_text, config.policy.max_length
        )
    background = Background(EndpointChecker(guard), guard.checker_timeout)
    stack.callback(background.close)
    return background
