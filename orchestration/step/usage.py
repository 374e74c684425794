"""What endpoints were asked for, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from configs.schema import EndpointConfig
from orchestration.run.answers import Answer


@dataclass
class Usage:
    """What an endpoint was asked for. `answers` and tokens include those of an earlier process, which are `kept`.

    `attempts`: requests sent, repeated ones included. `uncounted`: answers whose tokens the endpoint did not count.
    """

    asked: int = 0
    attempts: int = 0
    answers: int = 0
    kept: int = 0
    lost: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0

    def count(self, answer: Answer) -> None:
        """Adds an answer."""
        self.answers += 1
        self.prompt_tokens += answer.prompt_tokens or 0
        self.completion_tokens += answer.completion_tokens or 0
        self.uncounted += answer.completion_tokens is None

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def figures(self, config: EndpointConfig) -> dict[str, float]:
        """As metrics. The cost is in the currency of the prices, and absent without them."""
        cost = cost_of(self.prompt_tokens, self.completion_tokens, config)
        return self.counts() | ({} if cost is None else {"teacher/cost": cost})

    def counts(self) -> dict[str, float]:
        """As metrics, without a cost."""
        return {f"teacher/{name}": float(value) for name, value in vars(self).items()}


def cost_of(prompt_tokens: int, completion_tokens: int, config: EndpointConfig) -> float | None:
    """What tokens cost, in the currency of the prices; None without prices."""
    if not (config.input_price or config.output_price):
        return None
    return (prompt_tokens * config.input_price + completion_tokens * config.output_price) / 1e6
