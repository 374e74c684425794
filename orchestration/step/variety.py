"""How much the responses of a step differ from each other. Pure functions over rollouts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from learners.records import Rollout


def variety(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Metrics of rollouts. A metric without anything to measure is absent.

    `token_entropy`: nats per token (`token_entropy`). `distinct_bigrams`: distinct pairs of tokens in a row, as a share
    of all pairs in the responses to a task, as a mean over tasks (distinct-2, Li et al. 2016, arXiv 1510.03055); it
    falls with more and longer responses, so compare it at equal numbers of them. `distinct_programs`: distinct programs
    per response with a program.
    """
    programs = [rollout.candidate_digest for rollout in rollouts if rollout.candidate_digest]
    figures = {
        "token_entropy": token_entropy(rollouts),
        "distinct_bigrams": _distinct_bigrams(rollouts),
        "distinct_programs": len(set(programs)) / len(programs) if programs else None,
    }
    return {name: value for name, value in figures.items() if value is not None}


def token_entropy(rollouts: Iterable[Rollout]) -> float | None:
    """The policy's entropy in nats per token, at the temperature at which the rollouts were sampled; None without
    tokens.

    It is the mean negative log-probability of the sampled tokens. Its expectation is the entropy of the policy's next
    token, averaged over the prefixes that the policy itself writes.
    """
    total, tokens = 0.0, 0
    for rollout in rollouts:
        total -= sum(rollout.logprobs)
        tokens += len(rollout.logprobs)
    return total / tokens if tokens else None


def _distinct_bigrams(rollouts: Iterable[Rollout]) -> float | None:
    by_task: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for rollout in rollouts:
        by_task[rollout.task_id] += pairwise(rollout.response_ids)
    shares = [len(set(pairs)) / len(pairs) for pairs in by_task.values() if pairs]
    return sum(shares) / len(shares) if shares else None
