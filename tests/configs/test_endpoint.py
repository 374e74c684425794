"""A run with an endpoint in place of engines, and budgets: what does not fit together is refused in one line."""

from __future__ import annotations

import pytest

from configs.frozen import asks_endpoint, learns
from configs.load import ConfigError, load_config, may_change

ENDPOINT = ["rollout.endpoint.url=http://127.0.0.1:1/v1", "rollout.endpoint.model=m"]
FROZEN = "schedule.phases=[evolve]"


def test_schedules_that_learn_nothing_are_told_from_others() -> None:
    assert learns(load_config("local"))
    assert learns(load_config("local", ["schedule.phases=[sft,evolve]"]))
    assert not learns(load_config("local", ["schedule.phases=[vanilla,evolve]"]))
    assert asks_endpoint(load_config("local", [FROZEN, *ENDPOINT]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (ENDPOINT, "rollout.endpoint.url answers only if nothing is learnt: .* got sft"),
        ([FROZEN, ENDPOINT[0]], "rollout.endpoint.model must name the model"),
        ([FROZEN, ENDPOINT[1]], "rollout.endpoint.model=m needs rollout.endpoint.url"),
        ([FROZEN, "rollout.endpoint.url=ftp://x", ENDPOINT[1]], "must be an http.s. address, got 'ftp://x'"),
        ([FROZEN, *ENDPOINT, "guard.checker=policy"], "guard.checker=policy asks the run's own engines"),
        ([FROZEN, *ENDPOINT, "placement.share=all"], "placement.share must be none with rollout.endpoint.url"),
        ([FROZEN, *ENDPOINT, "evolve.budget.money=1"], "evolve.budget.money needs .* prices"),
        (["evolve.budget.money=1", "rollout.endpoint.asking.input_price=1"], "evolve.budget.money needs"),
        (["evolve.feedback=[speed]"], "evolve.feedback must be a list of profile or messages"),
        (["stall_minutes=11", FROZEN, *ENDPOINT, "rollout.endpoint.asking.patience=9999"], "stall_minutes must be"),
    ],
)
def test_what_does_not_fit_together_is_refused(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        load_config("local", words)
    assert "\n" not in str(raised.value)


def test_a_run_goes_on_with_a_larger_budget_or_another_address_and_not_with_another_model() -> None:
    changeable = ("evolve.budget.tokens", "evolve.rounds", "rollout.endpoint.url", "rollout.endpoint.asking.share")
    assert all(map(may_change, changeable))
    assert not may_change("rollout.endpoint.model")
    assert not may_change("evolve.samples")
