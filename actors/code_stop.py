"""Ends a response behind its program: nobody reads the text that a policy would add, and it costs tokens.

vLLM's scheduler stops at tokens that hold a fence, without decoding any text, so no token is sampled in vain. Then the
parser of answers (`prompts.parse`) says whether the program is complete. If it is not, the request goes on from there,
and the prefix cache holds the tokens so far. Never changes a token or a log-probability before the end.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from prompts.parse import end_of_program

if TYPE_CHECKING:
    from actors.generation import GenerationRequest

_MOST_STOPS = 32  # in one response; a response with more fences runs to its own end, and is then cut
_FENCES = ("```", "~~~")
_HOLDS_FENCE = re.compile(r"(?:.*\n)?[ \t]*(?:`{3,}|~{3,})[ \t]*(?:\r?\n.*)?", re.DOTALL)
_REASONING = re.compile(r"<think(?:ing)?>\s*$")
_TAIL = 16  # tokens at the end of a prompt, in which a chat template may open the reasoning with a tag


@dataclass(frozen=True)
class Sampled:
    """What vLLM sampled: a log-probability for each token, `stop` or `length`, and the stop token if one ended it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    stop_token: int | None = None


Sampler = Callable[["GenerationRequest"], Awaitable[list[Sampled]]]


class CodeStop:
    """Samples responses that end behind their program, for one tokenizer. `max_length`: tokens of prompt and response
    together."""

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._fences = fence_tokens(tokenizer)

    async def responses(self, request: GenerationRequest, sample: Sampler) -> list[Sampled]:
        """The responses to a request: `n`, or one if it is greedy. Raises what `sample` raises.

        A schema binds a response from the first token to the last, and leaves no room for a program: such a response is
        sampled whole.
        """
        if request.schema:
            return await sample(request)
        single = replace(request, n=1)
        if request.n == 1 or request.temperature == 0.0:
            return [await self._response(single, sample)]
        each = [replace(single, seed=request.seed_of(index)) for index in range(request.n)]
        tasks = [asyncio.ensure_future(self._response(one, sample)) for one in each]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _response(self, request: GenerationRequest, sample: Sampler) -> Sampled:
        """One response, sampled from fence to fence until its program is complete."""
        room = min(request.max_tokens, self._max_length - len(request.prompt_ids))
        so_far = Sampled((), (), "")
        read = 0  # characters in which no program ends
        for stops in range(_MOST_STOPS + 1):
            fences = self._fences if stops < _MOST_STOPS else ()
            part = replace(
                request,
                prompt_ids=request.prompt_ids + so_far.token_ids,
                max_tokens=request.max_tokens - len(so_far.token_ids),
                stop_token_ids=(*request.stop_token_ids, *fences),
                seed=request.seed_of(stops) if stops else request.seed,  # no random number is used twice
            )
            (more,) = await sample(part)
            so_far = Sampled(so_far.token_ids + more.token_ids, so_far.logprobs + more.logprobs, more.finish_reason)
            text = self._text(request, so_far.token_ids)
            end = end_of_program(text, read)
            if end is not None:
                return self._up_to(so_far, end, request)
            if more.stop_token not in fences or more.stop_token in request.stop_token_ids:
                break
            if len(so_far.token_ids) >= room:
                return replace(so_far, finish_reason="length")
            read = len(text)
        return so_far

    def _up_to(self, sampled: Sampled, end: int, request: GenerationRequest) -> Sampled:
        """The response up to the token that holds the character before `end`."""
        ids = sampled.token_ids

        def characters(tokens: int) -> int:
            return len(self._text(request, ids[:tokens]))

        tokens = len(ids)
        if characters(tokens - 1) >= end:
            tokens = bisect_left(range(tokens), end, key=characters)
        return Sampled(ids[:tokens], sampled.logprobs[:tokens], "stop")

    def _text(self, request: GenerationRequest, token_ids: Sequence[int]) -> str:
        """The text of a response, behind the tag of the reasoning if its prompt opens one."""
        tag = _REASONING.search(self._tokenizer.decode(request.prompt_ids[-_TAIL:]))
        return (tag[0] if tag else "") + self._tokenizer.decode(token_ids, skip_special_tokens=True)


def fence_tokens(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that may complete a fence with nothing else on its line.

    These are the tokens that hold a fence, and, if the tokenizer writes a fence with several tokens, the last of them.
    A fence written in another way is found when the response has ended.
    """
    vocabulary = tokenizer.get_vocab()
    holding = [index for token, index in vocabulary.items() if any(fence in token for fence in _FENCES)]
    stops = {index for index in holding if _HOLDS_FENCE.fullmatch(tokenizer.decode([index]))}
    for fence in _FENCES:
        for after in ("", "\n"):
            ids = tokenizer.encode(f"pass\n{fence}{after}", add_special_tokens=False)
            whole = (count for count in range(1, len(ids) + 1) if fence in tokenizer.decode(ids[:count]))
            stops.update(ids[count - 1] for count in islice(whole, 1))
    return tuple(sorted(stops))
