"""Checks of a run whose responses come from an endpoint, and of budgets. Looks at values only."""

from __future__ import annotations

from collections.abc import Iterator

from configs.frozen import asks_endpoint, has_engines, learns
from configs.schema import LEARNING, RunConfig

Violations = Iterator[tuple[tuple[str, ...], str]]


def endpoint_violations(config: RunConfig) -> Violations:
    """Faults of `rollout.endpoint` and `evolve.budget`: the keys concerned, and a sentence with value and remedy."""
    source = config.rollout.endpoint
    if asks_endpoint(config):
        yield from _endpoint(config)
    elif source.model:
        yield (
            ("rollout.endpoint.model", "rollout.endpoint.url"),
            f"rollout.endpoint.model={source.model} needs rollout.endpoint.url, the address of the endpoint",
        )
    if not has_engines(config):
        yield from _without_engines(config)
    asking, budget = source.asking, config.evolve.budget
    if budget.money and not (asks_endpoint(config) and (asking.input_price or asking.output_price)):
        yield (
            ("evolve.budget.money",),
            "evolve.budget.money needs rollout.endpoint.url, and its prices as rollout.endpoint.asking.input_price and "
            f"output_price (of a million tokens), got {budget.money:g} without them",
        )


def _endpoint(config: RunConfig) -> Violations:
    source = config.rollout.endpoint
    if not source.url.startswith(("http://", "https://")):
        yield ("rollout.endpoint.url",), f"rollout.endpoint.url must be an http(s) address, got {source.url!r}"
    if not source.model:
        yield (
            ("rollout.endpoint.model", "rollout.endpoint.url"),
            "rollout.endpoint.model must name the model to ask the endpoint for, got ''",
        )
    if learns(config):
        trained = next(phase for phase in config.schedule.phases if phase in LEARNING)
        yield (
            ("rollout.endpoint.url", "schedule.phases"),
            f"rollout.endpoint.url answers only if nothing is learnt: set schedule.phases=[evolve], got {trained}",
        )


def _without_engines(config: RunConfig) -> Violations:
    """Faults of a run without a policy of its own."""
    key = "rollout.endpoint.url" if asks_endpoint(config) else "schedule.phases"
    words = key if asks_endpoint(config) else "schedule.phases=[collect]"
    if config.guard.checker == "policy":
        yield (
            ("guard.checker", key),
            f"guard.checker=policy asks the run's own engines, which it has none of with {words}: give an address, or "
            "leave it empty",
        )
    if config.placement.share != "none":
        yield (
            ("placement.share", key),
            f"placement.share must be none with {words}, since evaluators alone need GPUs, got "
            f"{config.placement.share}",
        )
