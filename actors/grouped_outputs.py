"""vLLM's schedulers with fewer messages: tokens leave the engine's process in groups instead of one by one.

A rollout is read when it is complete. To encode, send and decode three small arrays for every token of it keeps a core
busy in each of the two processes, and the engine's own waits for the interpreter's lock meanwhile. Imports vLLM, whose
engine imports this module (`scheduler_cls`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import LogprobsLists

_Base: Any = Scheduler if TYPE_CHECKING else object
GROUP = 64
"""Tokens of a response that leave together. Reading them takes the frontend a few microseconds each: in groups it does
so while others are generated, and not for whole responses at the end."""


@dataclass
class Group:
    """Tokens of one request that have not left yet, with their log-probabilities, the token ids of these, and ranks.

    `room`: tokens that it leaves with, and `next_room`: the one behind it. `first`: the request's first output, if that
    was held back.
    """

    room: int
    next_room: int
    with_logprobs: bool
    first: Any = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[list[float]] = field(default_factory=list)
    logprob_ids: list[list[int]] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)


class GroupsOutputs(_Base):
    """Before one of vLLM's schedulers (0.26 to 0.33): requests that want their final output alone get it in groups of
    `GROUP` tokens, all others as ever."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._groups: dict[str, Group] = {}
        self._begun = itertools.count()

    def add_request(self, request: Any, *arguments: Any, **keywords: Any) -> None:
        """Takes in a request. First groups differ in length, so that not all are full at once."""
        if len(self._groups) > 2 * len(self.requests) + GROUP:  # of requests that were aborted
            self._groups = {name: group for name, group in self._groups.items() if name in self.requests}
        wanted = request.sampling_params
        final_only = wanted is not None and wanted.output_kind == RequestOutputKind.FINAL_ONLY
        room, next_room = (1 + next(self._begun) % GROUP, GROUP) if final_only else (1, 1)
        with_logprobs = wanted is not None and wanted.num_logprobs is not None
        self._groups[request.request_id] = Group(room, next_room, with_logprobs)
        super().add_request(request, *arguments, **keywords)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
        """What a step of the model gives to the frontend, by client: vLLM's, less what is held back."""
        lists = model_runner_output.logprobs
        if lists is not None and lists.cu_num_generated_tokens is not None:  # several tokens a request: speculation
            raise NotImplementedError("outputs are grouped for steps of one token a request")
        model_runner_output.logprobs = None  # vLLM would cut it into three arrays a request
        answers: dict[int, Any] = super().update_from_output(scheduler_output, model_runner_output)
        rows = _Rows(lists, model_runner_output.req_id_to_index)
        for client, answer in list(answers.items()):
            answer.outputs = list(self._leaving(answer.outputs, rows))
            if not answer.outputs and answer.scheduler_stats is None and answer.finished_requests is None:
                del answers[client]
        return answers

    def _leaving(self, outputs: list[Any], rows: _Rows) -> Iterator[Any]:
        """The outputs that leave now, each for a whole group."""
        for output in outputs:
            group = self._groups.get(output.request_id) or Group(1, 1, with_logprobs=False)
            rows.add_to(group, output)
            if output.finish_reason is None and len(group.token_ids) < group.room:
                group.first = group.first or output
                continue
            if output.finish_reason is not None:
                self._groups.pop(output.request_id, None)
            else:
                self._groups[output.request_id] = Group(group.next_room, group.next_room, group.with_logprobs)
            yield rows.whole(group, output)


class _Rows:
    """Log-probabilities of one step, [requests, 1 + those asked for beside the sampled one's], as lists."""

    def __init__(self, lists: Any, row_of: dict[str, int]) -> None:
        self._lists, self._row_of = lists, row_of
        if lists is not None:
            self._logprobs, self._ids = lists.logprobs.tolist(), lists.logprob_token_ids.tolist()
            self._ranks = lists.sampled_token_ranks.tolist()

    def add_to(self, group: Group, output: Any) -> None:
        """Puts the token of this step, where it gave one, behind those before."""
        group.token_ids.extend(output.new_token_ids)
        if group.with_logprobs and output.new_token_ids:
            row = self._row_of[output.request_id]
            group.logprobs.append(self._logprobs[row])
            group.logprob_ids.append(self._ids[row])
            group.ranks.append(self._ranks[row])

    def whole(self, group: Group, output: Any) -> Any:
        """The step's output of a request, for all tokens of its group."""
        output.new_token_ids = group.token_ids
        if group.ranks:
            output.new_logprobs = LogprobsLists(
                np.array(group.logprob_ids, np.int32),
                np.array(group.logprobs, np.float32),
                np.array(group.ranks, np.int32),
            )
        if group.first is not None:  # what came with the first token alone
            output.prefill_stats = group.first.prefill_stats
            output.new_prompt_logprobs_tensors = group.first.new_prompt_logprobs_tensors
        return output


class GroupingScheduler(GroupsOutputs, Scheduler):
    """The one that waits for a step before it plans the next."""


class GroupingAsyncScheduler(GroupsOutputs, AsyncScheduler):
    """The one that plans a step while the one before runs."""
