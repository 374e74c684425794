"""vLLM's schedulers with fewer messages: tokens leave the engine's process in groups instead of one by one.

A rollout is read only when it is complete. For every token of it vLLM encodes, sends and decodes three small arrays.
The engine waits meanwhile, because threads of one process share the interpreter. Imports vLLM, whose engine imports
this module (`scheduler_cls`). Must never change, drop or reorder a request's tokens.
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
"""Tokens of a response that leave together. They are read while others are generated; whole responses would often all
arrive at the same time."""


@dataclass
class Group:
    """Tokens of one request that have not left yet.

    `room`: how many leave together. `row`: where in `_HeldLogprobs` their log-probabilities are, if the request wants
    any. `first`: the request's first output, if that was held back.
    """

    room: int
    row: int
    with_logprobs: bool
    first: Any = None
    token_ids: list[int] = field(default_factory=list)


class GroupsOutputs(_Base):
    """A base class in front of one of vLLM's schedulers (0.26 to 0.33).

    Requests that want only their final output, and at most the log-probabilities of the sampled tokens, get them in
    groups of `GROUP` tokens. All other requests are served as by vLLM itself.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._groups: dict[str, Group] = {}
        self._held = _HeldLogprobs()
        self._begun = itertools.count()

    def add_request(self, request: Any, *arguments: Any, **keywords: Any) -> None:
        """Accepts a request. The first groups differ in length, so that not all are full at once."""
        if len(self._groups) > 2 * len(self.requests) + GROUP:  # some are of requests that were aborted
            for name in [name for name in self._groups if name not in self.requests]:
                self._held.give_back(self._groups.pop(name).row)
        self._end(request.request_id)
        if _is_grouped(wanted := request.sampling_params):
            room, with_logprobs = 1 + next(self._begun) % GROUP, wanted.num_logprobs is not None
            self._groups[request.request_id] = Group(room, self._held.take(), with_logprobs)
        super().add_request(request, *arguments, **keywords)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
        """The outputs of a step of the model for the frontend, by client: vLLM's, without those that are held back."""
        lists, row_of = model_runner_output.logprobs, model_runner_output.req_id_to_index
        if lists is not None and lists.cu_num_generated_tokens is not None:  # several tokens for a request: speculation
            raise ValueError("grouped outputs need one token for each request and step: switch speculation off")
        others = {name for name in row_of if name not in self._groups and self._wants_logprobs(name)}
        model_runner_output.logprobs = None  # vLLM would cut it into three arrays for each request
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
        """The outputs that leave now, each for a whole group, among outputs of grouped requests."""
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
            if group.first is not None:  # vLLM says this with the first token only
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
        """Forgets a request's group."""
        if (group := self._groups.pop(name, None)) is not None:
            self._held.give_back(group.row)


def _is_grouped(wanted: Any) -> bool:
    if wanted is None or wanted.output_kind != RequestOutputKind.FINAL_ONLY:
        return False
    return not wanted.num_logprobs and wanted.prompt_logprobs is None


class _HeldLogprobs:
    """Log-probabilities, token ids and ranks of sampled tokens that have not left yet.

    Arrays of [rows, GROUP] with a row for each request, written for all requests of a step at once.
    """

    def __init__(self) -> None:
        self._free: list[int] = []
        self._ids = np.zeros((0, GROUP), np.int32)
        self._logprobs = np.zeros((0, GROUP), np.float32)
        self._ranks = np.zeros((0, GROUP), np.int32)

    def take(self) -> int:
        """A row that no request has."""
        if not self._free:
            size = len(self._ids)
            more = max(size, GROUP)
            self._free = list(range(size, size + more))
            self._ids = np.concatenate((self._ids, np.zeros((more, GROUP), np.int32)))
            self._logprobs = np.concatenate((self._logprobs, np.zeros((more, GROUP), np.float32)))
            self._ranks = np.concatenate((self._ranks, np.zeros((more, GROUP), np.int32)))
        return self._free.pop()

    def give_back(self, row: int) -> None:
        """Frees a row."""
        self._free.append(row)

    def put(self, lists: Any, of: list[int], rows: list[int], places: list[int]) -> None:
        """Copies the numbers of sampled tokens from rows `of` of a step's `LogprobsLists` to these rows and places."""
        self._ids[rows, places] = lists.logprob_token_ids[of, 0]
        self._logprobs[rows, places] = lists.logprobs[of, 0]
        self._ranks[rows, places] = lists.sampled_token_ranks[of]

    def whole(self, row: int, tokens: int) -> LogprobsLists:
        """The numbers of the first `tokens` tokens of a row, in vLLM's form."""
        ids, logprobs = (held[row, :tokens, None].copy() for held in (self._ids, self._logprobs))
        return LogprobsLists(ids, logprobs, self._ranks[row, :tokens].copy())


class GroupingScheduler(GroupsOutputs, AllocatesSeldom, Scheduler):
    """vLLM's scheduler that waits for a step before it plans the next."""


class GroupingAsyncScheduler(GroupsOutputs, AllocatesSeldom, AsyncScheduler):
    """vLLM's scheduler that plans a step while the previous one runs."""
