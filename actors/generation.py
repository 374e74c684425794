"""What is asked of a rollout engine, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GenerationRequest:
    """`n` responses to one prompt. Temperature 0 is greedy; `key` names the request to its sender.

    With `seed`, response i is drawn from seed + i: repeatable as far as batched arithmetic is. With `schema` (a JSON
    schema, as text) only what fits it can be sampled. With `stop_after_code` a response ends behind its program
    (`actors.code_stop`), and then has no end-of-sequence token. It has at least `min_tokens` tokens, and with
    `ignore_eos` goes on behind the end-of-sequence token. `group`: others of that name have the same prompt, which an
    engine computes once.
    """

    key: str
    prompt_ids: tuple[int, ...]
    n: int
    max_tokens: int
    temperature: float
    top_p: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    schema: str = ""
    stop_after_code: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    group: str = ""


@dataclass(frozen=True)
class Completion:
    """One response. `token_ids` ends with the end-of-sequence token where there was one; `logprobs` has one natural
    log-probability per token, at the sampling temperature (and top-p). `finish_reason` is `stop` or `length`."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    policy_version: int
