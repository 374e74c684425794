"""What a run without learning has spent, and what of a round it can still afford. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from configs.schema import BudgetConfig

Item = TypeVar("Item")


@dataclass(frozen=True)
class Spending:
    """Programs that were judged, tokens of prompts and answers, and money in the currency of the endpoint's prices."""

    evaluations: int = 0
    tokens: int = 0
    money: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.evaluations + other.evaluations, self.tokens + other.tokens, self.money + other.money)

    def exceeds(self, budget: BudgetConfig) -> str:
        """Which part of the budget is spent, in words; empty if none is."""
        if 0 < budget.evaluations <= self.evaluations:
            return f"{self.evaluations} evaluations of {budget.evaluations} are spent"
        if 0 < budget.tokens <= self.tokens:
            return f"{self.tokens} tokens of {budget.tokens} are spent"
        if 0.0 < budget.money <= self.money:
            return f"{self.money:g} of {budget.money:g} in money is spent"
        return ""

    def affordable(self, budget: BudgetConfig, tasks: Sequence[Item], samples: int) -> tuple[list[Item], int]:
        """The first tasks that can be asked about with so many samples each, if every response is judged. If that is
        none, one task with fewer samples: the budget is never exceeded, and never left."""
        if not budget.evaluations:
            return list(tasks), samples
        left = budget.evaluations - self.evaluations
        if left < samples:
            return list(tasks[:1]), left
        return list(tasks[: left // samples]), samples
