"""Requests to a rollout engine, and its answers. Only records, so that a caller need not import vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def derive_seed(*parts: int | Sequence[int]) -> int:
    """A seed below 2**63 that depends on all of its parts, none of them negative."""
    entropy = [number for part in parts for number in ([part] if isinstance(part, int) else part)]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)


@dataclass(frozen=True)
class GenerationRequest:
    """`n` responses to one prompt of token ids. Temperature 0 is greedy; `key` names the request to its sender.

    `schema`: a JSON schema as text; only text that fits it can be sampled. `stop_after_code`: a response ends behind
    its program (`actors.code_stop`), and then has no end-of-sequence token. `ignore_eos`: a response goes on behind the
    end-of-sequence token. `group`: requests of the same group have the same prompt, which an engine computes once.
    `seed`: of the responses, if they must not depend on what else the engine does; engines on a GPU do not heed it.
    `text`: the prompt's text, for an endpoint, which has a tokenizer of its own.
    """

    key: str
    prompt_ids: tuple[int, ...]
    n: int
    max_tokens: int
    temperature: float
    stop_token_ids: tuple[int, ...] = ()
    schema: str = ""
    stop_after_code: bool = False
    ignore_eos: bool = False
    group: str = ""
    seed: int | None = None
    text: str = ""

    def seed_of(self, part: int) -> int | None:
        """The seed of one of several responses, or of one of several parts of a response."""
        return None if self.seed is None else derive_seed(self.seed, part)


@dataclass(frozen=True)
class Completion:
    """One response, sampled by one version of the policy.

    `token_ids` ends with the end-of-sequence token if that was sampled. `logprobs` has one natural log-probability per
    token, at the sampling temperature. `finish_reason` is `stop` or `length`.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    policy_version: int
