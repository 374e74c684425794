"""A scheduler that asks its KV cache seldom plans as vLLM's own: the same requests, tokens and blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vllm import EngineArgs, SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from actors.grouped_outputs import GroupingAsyncScheduler, GroupingScheduler
from actors.seldom_allocation import SeldomAskedManager

BLOCK = 16
PROMPT = 40  # tokens, shared by four
SCHEDULERS = {"waits": (Scheduler, GroupingScheduler), "ahead": (AsyncScheduler, GroupingAsyncScheduler)}


def make(kind: type, folder: Path, blocks: int, **changes: Any) -> Any:
    """A scheduler for a cache with this number of blocks."""
    asked = {"max_num_batched_tokens": 512, "enable_prefix_caching": True, "block_size": BLOCK, "dtype": "float32"}
    config = EngineArgs(str(folder), max_model_len=256, max_num_seqs=16, **asked).create_engine_config()
    config.scheduler_config.async_scheduling = issubclass(kind, AsyncScheduler)
    config.cache_config.num_gpu_blocks = blocks
    size = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 32, "dtype": torch.float32}
    spec = SlidingWindowSpec(**size, **changes) if changes else FullAttentionSpec(**size)
    cache = KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)])
    return kind(
        vllm_config=config,
        kv_cache_config=cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=False,
    )


def request(name: int, tokens: int) -> Request:
    wanted = SamplingParams(
        max_tokens=tokens, ignore_eos=True, logprobs=0, output_kind=RequestOutputKind.FINAL_ONLY, detokenize=False
    )
    prompt = np.random.default_rng(name // 4).integers(5, 200, PROMPT).tolist()
    hasher = get_request_block_hasher(BLOCK, sha256)
    return Request(str(name), prompt, wanted, None, arrival_time=float(name), block_hasher=hasher)


def answer(planned: Any, rng: np.random.Generator) -> ModelRunnerOutput:
    """The model's output: a token for each planned request."""
    names = sorted(planned.num_scheduled_tokens, key=int)
    ids = rng.integers(5, 200, (len(names), 1)).astype(np.int32)
    lists = LogprobsLists(ids, -ids.astype(np.float32), np.zeros(len(names), np.int32))
    return ModelRunnerOutput(names, {name: row for row, name in enumerate(names)}, ids.tolist(), lists)


def run(scheduler: Any, lengths: list[int], aborted: dict[int, int]) -> tuple[list[Any], dict[str, list[int]], int]:
    """The plan of each step, the tokens of each request, and the number of preemptions. `aborted`: requests by step."""
    rng = np.random.default_rng(7)
    ahead = isinstance(scheduler, AsyncScheduler)
    for name, tokens in enumerate(lengths):
        scheduler.add_request(request(name, tokens))
    plans: list[Any] = []
    tokens_of: dict[str, list[int]] = {}
    under_way: list[Any] = []
    preempted = 0
    while scheduler.has_requests() and len(plans) < 2000:
        if (name := aborted.get(len(plans))) is not None:
            scheduler.finish_requests(str(name), RequestStatus.FINISHED_ABORTED)
        planned = scheduler.schedule()
        preempted += len(planned.preempted_req_ids or ())
        cached = planned.scheduled_cached_reqs
        new = {request.req_id: request.block_ids for request in planned.scheduled_new_reqs}
        plans.append((dict(planned.num_scheduled_tokens), new, cached.req_ids, cached.new_block_ids))
        for running in scheduler.running:
            room = BLOCK * len(scheduler.kv_cache_manager.get_blocks(running.request_id).blocks[0])
            assert room >= running.num_computed_tokens, "each planned token has a place"
        under_way.append(planned)
        if ahead and len(under_way) < 2 and planned.num_scheduled_tokens:
            continue
        oldest = under_way.pop(0)
        if not oldest.num_scheduled_tokens:
            continue
        # As in an engine: the model's output still holds requests that were aborted meanwhile.
        for outputs in scheduler.update_from_output(oldest, answer(oldest, rng)).values():
            for output in outputs.outputs:
                tokens_of.setdefault(output.request_id, []).extend(output.new_token_ids)
    return plans, tokens_of, preempted


@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.parametrize("blocks", [400, 40], ids=["room", "too few blocks"])
def test_plans_are_the_same_as_vllms(kind: str, blocks: int, policy_folder: Path) -> None:
    init_none_hash(sha256)
    lengths = [1 + 53 * name % 150 for name in range(24)]
    aborted = {9: 3, 30: 17, 31: 20}
    own, seldom = (make(one, policy_folder, blocks) for one in SCHEDULERS[kind])
    assert type(seldom.kv_cache_manager) is SeldomAskedManager
    expected, tokens, preempted = run(own, lengths, aborted)
    plans, same, _ = run(seldom, lengths, aborted)
    assert plans == expected
    whole = {name: same[name] for name in tokens if int(name) not in aborted.values()}
    assert whole == {name: tokens[name] for name in whole}
    assert len(whole) == len(lengths) - len(aborted)
    assert all(len(whole[name]) == lengths[int(name)] for name in whole)
    assert bool(preempted) == (blocks == 40), "requests are preempted in the case without room, and only there"
    manager = seldom.kv_cache_manager
    assert (manager.room, manager.kept) == ({}, {})
    assert manager.block_pool.get_num_free_blocks() == own.kv_cache_manager.block_pool.get_num_free_blocks()


def test_a_model_with_a_sliding_window_keeps_vllms_manager(policy_folder: Path) -> None:
    scheduler = make(GroupingAsyncScheduler, policy_folder, 100, sliding_window=64)
    assert type(scheduler.kv_cache_manager) is not SeldomAskedManager
