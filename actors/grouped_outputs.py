"""vLLM's schedulers with fewer messages: tokens leave the engine's process in groups instead of one by one.

A rollout is read when it is complete. vLLM encodes, sends and decodes three small arrays for every token of it, for
which its engine has to wait: threads of one process share the interpreter. Imports vLLM, whose engine imports this
module (`scheduler_cls`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import LogprobsLists

from actors.seldom_allocation import AllocatesSeldom

_Base: Any = Scheduler if TYPE_CHECKING else object
GROUP = 64
"""Tokens of a response that leave together, and are read while others are generated: whole responses often end at the
same time."""


@dataclass
class Group:
    """Tokens of one request that have not left yet. `room`: how many leave together. `row`: where in `_Held` their
    log-probabilities are, if they have any. `first`: the request's first output, if that was held back."""

    room: int
    row: int
    with_logprobs: bool
    first: Any = None
    token_ids: list[int] = field(default_factory=list)


class GroupsOutputs(_Base):
    """Before one of vLLM's schedulers (0.26 to 0.33): requests that want their final output alone, and of
    log-probabilities those of the sampled tokens at most, get it in groups of `GROUP` tokens; all others as ever."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._groups: dict[str, Group] = {}
        self._held = _Held()
        self._begun = itertools.count()

    def add_request(self, request: Any, *arguments: Any, **keywords: Any) -> None:
        """Takes in a request. First groups differ in length, so that not all are full at once."""
        if len(self._groups) > 2 * len(self.requests) + GROUP:  # of requests that were aborted
            for name in [name for name in self._groups if name not in self.requests]:
                self._held.give_back(self._groups.pop(name).row)
        self._end(request.request_id)
        if _is_grouped(wanted := request.sampling_params):
            room, with_logprobs = 1 + next(self._begun) % GROUP, wanted.num_logprobs is not None
            self._groups[request.request_id] = Group(room, self._held.take(), with_logprobs)
        super().add_request(request, *arguments, **keywords)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
        """What a step of the model gives to the frontend, by client: vLLM's, less what is held back."""
        lists, row_of = model_runner_output.logprobs, model_runner_output.req_id_to_index
        if lists is not None and lists.cu_num_generated_tokens is not None:  # several tokens a request: speculation
            raise ValueError("an engine whose outputs are grouped gives one token a request and step: no speculation")
        others = {name for name in row_of if name not in self._groups and self._wants_logprobs(name)}
        model_runner_output.logprobs = None  # vLLM would cut it into three arrays a request
        answers: dict[int, Any] = super().update_from_output(scheduler_output, model_runner_output)
        for client, answer in list(answers.items()):
            grouped = [output for output in answer.outputs if output.request_id in self._groups]
            for output in answer.outputs:
                if lists is not None and (name := output.request_id) in others:
                    output.new_logprobs = lists.slice_request(row_of[name], len(output.new_token_ids))
            at_once = [output for output in answer.outputs if output.request_id not in self._groups]
            answer.outputs = [*at_once, *self._leaving(grouped, lists, row_of)]
            if not answer.outputs and answer.scheduler_stats is None and answer.finished_requests is None:
                del answers[client]
        return answers

    def _wants_logprobs(self, name: str) -> bool:
        request = self.requests.get(name)
        wanted = None if request is None else request.sampling_params
        return wanted is not None and wanted.num_logprobs is not None

    def _leaving(self, outputs: list[Any], lists: Any, row_of: dict[str, int]) -> list[Any]:
        """Of outputs that are grouped those that leave now, each for a whole group."""
        groups = [self._groups[output.request_id] for output in outputs]
        if lists is not None:
            fresh = [(group, output) for group, output in zip(groups, outputs, strict=True) if output.new_token_ids]
            self._held.put(
                lists,
                [row_of[output.request_id] for _, output in fresh],
                [group.row for group, _ in fresh],
                [len(group.token_ids) for group, _ in fresh],
            )
        leaving = []
        for group, output in zip(groups, outputs, strict=True):
            group.token_ids += output.new_token_ids
            if output.finish_reason is None and len(group.token_ids) < group.room:
                group.first = group.first or output
                continue
            if group.first is not None:  # what came with the first token alone
                output.prefill_stats = group.first.prefill_stats
            output.new_token_ids = group.token_ids
            if group.with_logprobs and group.token_ids:
                output.new_logprobs = self._held.whole(group.row, len(group.token_ids))
            leaving.append(output)
            group.room, group.first, group.token_ids = GROUP, None, []
            if output.finish_reason is not None:
                self._end(output.request_id)
        return leaving

    def _end(self, name: str) -> None:
        if (group := self._groups.pop(name, None)) is not None:
            self._held.give_back(group.row)


def _is_grouped(wanted: Any) -> bool:
    if wanted is None or wanted.output_kind != RequestOutputKind.FINAL_ONLY:
        return False
    return not wanted.num_logprobs and wanted.prompt_logprobs is None


class _Held:
    """Log-probabilities of sampled tokens that have not left yet, their token ids and ranks: a row a request, [rows,
    GROUP], written for all requests of a step at once."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._ids = np.zeros((0, GROUP), np.int32)
        self._logprobs = np.zeros((0, GROUP), np.float32)
        self._ranks = np.zeros((0, GROUP), np.int32)

    def take(self) -> int:
        """A row that nobody has."""
        if not self._free:
            size = len(self._ids)
            more = max(size, GROUP)
            self._free = list(range(size, size + more))
            self._ids, self._logprobs, self._ranks = (
                np.concatenate((held, np.zeros((more, GROUP), held.dtype)))
                for held in (self._ids, self._logprobs, self._ranks)
            )
        return self._free.pop()

    def give_back(self, row: int) -> None:
        """To those that nobody has."""
        self._free.append(row)

    def put(self, lists: Any, of: list[int], rows: list[int], places: list[int]) -> None:
        """Of each given row of a step's `LogprobsLists` the sampled token's numbers, to a row and a place in it."""
        self._ids[rows, places] = lists.logprob_token_ids[of, 0]
        self._logprobs[rows, places] = lists.logprobs[of, 0]
        self._ranks[rows, places] = lists.sampled_token_ranks[of]

    def whole(self, row: int, tokens: int) -> LogprobsLists:
        """The first so many of a row, as vLLM has them."""
        ids, logprobs = (held[row, :tokens, None].copy() for held in (self._ids, self._logprobs))
        return LogprobsLists(ids, logprobs, self._ranks[row, :tokens].copy())


class GroupingScheduler(GroupsOutputs, AllocatesSeldom, Scheduler):
    """The one that waits for a step before it plans the next."""


class GroupingAsyncScheduler(GroupsOutputs, AllocatesSeldom, AsyncScheduler):
    """The one that plans a step while the one before runs."""
