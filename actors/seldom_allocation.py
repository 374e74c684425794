"""vLLM's schedulers with fewer calls into the KV cache: a decoding request asks it once for each block of tokens.

For each running request and step, vLLM asks its cache for room for one more token, and then to keep complete blocks for
other requests: a dozen calls, which change nothing until a block is full. Imports vLLM, whose engine imports this
module. Must never plan a step in another way than vLLM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec

_KEYWORDS_WHILE_RUNNING: tuple[dict[str, int], ...] = ({"num_lookahead_tokens": 0}, {})
"""The keywords with which vLLM asks on behalf of a running request. For a waiting one it adds what the cache holds."""
_Base: Any = Scheduler if TYPE_CHECKING else object


class SeldomAskedManager(KVCacheManager):
    """vLLM's manager (0.26 to 0.33), for a model whose layers attend to all earlier tokens, without parallel contexts.

    For such a model nothing is freed before a request ends, and a token changes only the last block.
    """

    room: dict[str, int]
    """Tokens that each request has blocks for."""
    kept: dict[str, int]
    """Full blocks of each request that are kept for others."""
    block_size: int
    """Tokens."""

    def allocate_slots(self, request: Any, num_new_tokens: int, *arguments: Any, **keywords: Any) -> Any:
        """New blocks for so many more tokens; None if there are not enough left."""
        name, tokens = request.request_id, request.num_computed_tokens + num_new_tokens
        runs = not arguments and keywords in _KEYWORDS_WHILE_RUNNING
        if runs and tokens <= self.room.get(name, 0) and tokens % self.block_size:
            return self.empty_kv_cache_blocks
        blocks = super().allocate_slots(request, num_new_tokens, *arguments, **keywords)
        if blocks is not None:
            self.room[name] = len(self.get_blocks(name).blocks[0]) * self.block_size
        return blocks

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        """Keeps the full blocks among the first so many tokens for other requests."""
        name, full = request.request_id, num_computed_tokens // self.block_size
        if full != self.kept.get(name):
            super().cache_blocks(request, num_computed_tokens)
            self.kept[name] = full

    def free(self, request: Any) -> None:
        """Frees a request's blocks."""
        self._forget(request.request_id)
        super().free(request)

    def pop_blocks_for_free(self, request: Any) -> Any:
        """A request's blocks, for the caller to free."""
        self._forget(request.request_id)
        return super().pop_blocks_for_free(request)

    def _forget(self, name: str) -> None:
        self.room.pop(name, None)
        self.kept.pop(name, None)


class AllocatesSeldom(_Base):
    """A base class in front of one of vLLM's schedulers: it asks the KV cache only once a block, if that is enough."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        manager, parallel = self.kv_cache_manager, self.vllm_config.parallel_config
        groups = manager.kv_cache_config.kv_cache_groups
        contexts = parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size
        if len(groups) == 1 and type(groups[0].kv_cache_spec) is FullAttentionSpec and contexts == 1:
            manager.__class__ = SeldomAskedManager  # vLLM's scheduler makes its manager itself
            manager.room, manager.kept, manager.block_size = {}, {}, groups[0].kv_cache_spec.block_size
