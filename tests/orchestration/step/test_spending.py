"""A budget is never exceeded by what is planned, and never left over."""

from __future__ import annotations

import pytest

from configs.schema import BudgetConfig
from orchestration.step.spending import Spending

TASKS = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("budget", "spent", "says"),
    [
        (BudgetConfig(), Spending(10**9, 10**9, 1e9), ""),
        (BudgetConfig(evaluations=4), Spending(3), ""),
        (BudgetConfig(evaluations=4), Spending(4), "4 evaluations of 4"),
        (BudgetConfig(tokens=100), Spending(0, 101), "101 tokens of 100"),
        (BudgetConfig(money=0.5), Spending(0, 0, 0.5), "0.5 of 0.5 in money"),
    ],
)
def test_a_budget_is_spent_once_one_of_its_limits_is_reached(budget: BudgetConfig, spent: Spending, says: str) -> None:
    assert spent.exceeds(budget).startswith(says)
    assert bool(spent.exceeds(budget)) == bool(says)


@pytest.mark.parametrize("evaluations", range(1, 14))
def test_rounds_use_all_of_a_budget_and_no_more(evaluations: int) -> None:
    spent, rounds = Spending(), 0
    while not spent.exceeds(BudgetConfig(evaluations=evaluations)):
        tasks, samples = spent.affordable(BudgetConfig(evaluations=evaluations), TASKS, 2)
        assert tasks
        spent += Spending(len(tasks) * samples)
        rounds += 1
    assert spent.evaluations == evaluations
    assert rounds <= evaluations // 6 + 3


def test_without_a_limit_a_round_is_whole() -> None:
    assert Spending(10**6).affordable(BudgetConfig(tokens=5), TASKS, 4) == (TASKS, 4)
