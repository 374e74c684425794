"""Tokens leave the engine's process in groups, but the tokens and their order stay the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.outputs import LogprobsLists

from actors.grouped_outputs import GROUP, GroupsOutputs


@dataclass
class Steps:
    """A scheduler in which each request gets the token `100 * step + request` in each step, up to its `max_tokens`."""

    requests: dict[str, Any] = field(default_factory=dict)

    def add_request(self, request: Any) -> None:
        self.requests[request.request_id] = request

    def update_from_output(self, step: int, model_runner_output: Any) -> dict[int, EngineCoreOutputs]:
        assert model_runner_output.logprobs is None, "vLLM must not cut them up, too"
        outputs = []
        for name, request in list(self.requests.items()):
            request.tokens += 1
            done = request.tokens == request.sampling_params.max_tokens
            reason = FinishReason.LENGTH if done else None
            outputs.append(EngineCoreOutput(name, [100 * step + int(name)], finish_reason=reason))
            if done:
                del self.requests[name]
        return {0: EngineCoreOutputs(outputs=outputs)} if outputs else {}


class Grouping(GroupsOutputs, Steps):
    pass


def request(name: int, tokens: int, **changes: Any) -> SimpleNamespace:
    asked = {"output_kind": RequestOutputKind.FINAL_ONLY, "logprobs": 0, **changes}
    return SimpleNamespace(request_id=str(name), sampling_params=SamplingParams(max_tokens=tokens, **asked), tokens=0)


def run(scheduler: Grouping, steps: range) -> list[list[EngineCoreOutput]]:
    """The outputs that leave in each step. A token has the log-probability `-token`, and its step as rank."""
    left = []
    for step in steps:
        names = list(scheduler.requests)[::-1]  # in another order than the requests came
        ids = np.array([[100 * step + int(name), 7] for name in names], np.int32).reshape(-1, 2)
        lists = LogprobsLists(ids, -ids.astype(np.float32), np.full(len(names), step, np.int32))
        rows = {name: row for row, name in enumerate(names)}
        answers = scheduler.update_from_output(step, SimpleNamespace(logprobs=lists, req_id_to_index=rows))
        left.append([output for answer in answers.values() for output in answer.outputs])
    return left


def test_all_tokens_come_once_and_in_order() -> None:
    scheduler = Grouping()
    lengths = {name: 1 + 37 * name % 200 for name in range(90)}
    for name, length in lengths.items():
        scheduler.add_request(request(name, length))
    steps = run(scheduler, range(max(lengths.values())))
    for name, length in lengths.items():
        mine = [output for step in steps for output in step if output.request_id == str(name)]
        expected = [100 * step + name for step in range(length)]
        assert [token for output in mine for token in output.new_token_ids] == expected
        assert np.concatenate([output.new_logprobs.logprob_token_ids for output in mine])[:, 0].tolist() == expected
        assert np.concatenate([output.new_logprobs.logprobs for output in mine])[:, 0].tolist() == [
            -t for t in expected
        ]
        assert np.concatenate([output.new_logprobs.sampled_token_ranks for output in mine]).tolist() == [*range(length)]
        assert [output.finish_reason for output in mine] == [None] * (len(mine) - 1) + [FinishReason.LENGTH]
        assert len(mine) <= 2 + length / GROUP
    assert not scheduler._groups


def test_groups_do_not_all_leave_at_once() -> None:
    scheduler = Grouping()
    for name in range(GROUP):
        scheduler.add_request(request(name, 10 * GROUP))
    assert [len(step) for step in run(scheduler, range(5 * GROUP))] == [1] * 5 * GROUP


@pytest.mark.parametrize(
    "changes",
    [{"output_kind": RequestOutputKind.DELTA}, {"logprobs": 1}, {"prompt_logprobs": 1}],
)
def test_other_requests_get_every_token_at_once(changes: dict[str, Any]) -> None:
    scheduler = Grouping()
    scheduler.add_request(request(0, 5))
    scheduler.add_request(request(1, 3, **changes))
    steps = run(scheduler, range(5))
    mine = [[output for output in step if output.request_id == "1"] for step in steps]
    assert [len(step) for step in mine] == [1, 1, 1, 0, 0]
    assert [output.new_logprobs.logprobs.tolist() for step in mine for output in step] == [
        [[-(100.0 * step + 1), -7.0]] for step in range(3)
    ]


def test_no_request_gets_log_probabilities_without_asking() -> None:
    scheduler = Grouping()
    scheduler.add_request(request(0, 5))
    scheduler.add_request(request(1, 5, logprobs=None))
    scheduler.add_request(request(2, 5, logprobs=None, output_kind=RequestOutputKind.DELTA))
    with_logprobs = {
        output.request_id for step in run(scheduler, range(5)) for output in step if output.new_logprobs is not None
    }
    assert with_logprobs == {"0"}


def test_tokens_held_for_an_aborted_request_go_to_no_other() -> None:
    scheduler = Grouping()
    for round_ in range(20):
        for name in range(40):
            scheduler.add_request(request(40 * round_ + name, 100))
        run(scheduler, range(1))
        scheduler.requests.clear()  # as an abort does
    assert len(scheduler._groups) <= 40 + GROUP
    assert len(scheduler._held._ids) <= 4 * GROUP, "rows are used again"
    scheduler.add_request(request(780, 3))  # under a name that was aborted
    (last,) = run(scheduler, range(5, 8))[-1]
    assert last.new_token_ids[-1] == 700 + 780
    assert len([t for t in last.new_token_ids if t < 500 + 780]) == 0
