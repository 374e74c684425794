"""How vLLM is set up for rollouts: arguments, environment, cores, and the files that weights pass through.

The settings for a CPU were chosen by throughput on two cores (Qwen2 with 2 million weights, 8 responses a prompt).
Imports neither vLLM nor ray: the environment has to be right before vLLM is imported.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from actors.weight_receiver import OWNER_VARIABLE
from configs.checks import SERVED_RANKS
from configs.schema import PolicyConfig, RolloutConfig
from learners.weights import WeightManifest, unpack

# With vLLM's CPU default of 128, up to 127 tokens of a shared prompt are computed again for each response. With 32, the
# smallest block that its kernel takes, it generates faster.
_CPU_BLOCK = 32
_CPU_BATCH, _GPU_BATCH = 4096, 8192  # tokens in a step
# Batch sizes for which a GPU's engine records its decoding as CUDA graphs. Other sizes take the next larger graph.
_GRAPHS = (*(1 << power for power in range(5)), *range(32, 128, 16), *range(128, 256, 32), *range(256, 1025, 64))


def parse_cores(text: str) -> list[int]:
    """The core numbers in a text like `0`, `0-3` or `0,2-3`; none in an empty text. Raises ValueError."""
    cores: list[int] = []
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            cores.extend(range(int(first), int(last or first) + 1))
    except ValueError:
        raise ValueError(f"rollout.cpu_cores must look like 0, 0-3 or 0,2-3, got {text!r}") from None
    return cores


def prepare_environment(rollout: RolloutConfig) -> bool:
    """Sets the environment variables that vLLM reads when it starts; returns whether it will run on a CPU."""
    on_cpu = not torch.cuda.is_available()
    values = {
        OWNER_VARIABLE: str(os.getpid()),
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(int(rollout.start_timeout)),
    }
    if on_cpu:
        threads = len(parse_cores(rollout.cpu_cores)) or max(1, len(os.sched_getaffinity(0)) - 1)
        # Idle OpenMP threads that spin are fast on a quiet machine. As soon as another process needs their core (the
        # evaluators do), they are far slower than one thread.
        values |= {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        if rollout.tensor_parallel == 1:
            # The model runs in the engine's process: a third process with its spinning message queue costs throughput
            # if cores are few. On a CPU, vLLM starts it unless multiprocessing is off.
            values["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if not rollout.compile:
            # Otherwise inductor compiles helpers of the sampler even for an eager model. That takes seconds in the
            # first batch and a C++ compiler, and gains nothing.
            values["TORCH_COMPILE_DISABLE"] = "1"
    os.environ.update(values)
    return on_cpu


def engine_arguments(
    model_path: str,
    rollout: RolloutConfig,
    policy: PolicyConfig,
    seed: int,
    *,
    on_cpu: bool,
    sleeps: bool = False,
    adapter_rank: int = 0,
) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs.

    `sleeps`: the engine will be asked to free its memory for a while. `adapter_rank`: of the adapters that it will be
    given, 0 for none.
    """
    arguments: dict[str, Any] = {
        "model": model_path,
        "dtype": policy.dtype,
        "seed": seed,
        "max_model_len": policy.max_length,
        "max_num_seqs": rollout.max_concurrent,
        "enforce_eager": on_cpu and not rollout.compile,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",  # at the sampling temperature, as the learner computes them
        "generation_config": "vllm",  # requests say how to sample, not a file beside the model
        "disable_log_stats": True,
        "tensor_parallel_size": rollout.tensor_parallel,
        "distributed_executor_backend": "uni" if rollout.tensor_parallel == 1 else "mp",
        "worker_extension_cls": "actors.weight_receiver.WeightReceiver",
        "scheduler_cls": f"actors.grouped_outputs.{'GroupingScheduler' if on_cpu else 'GroupingAsyncScheduler'}",
        # A weak model would fill an answer that is bound to a schema with blanks.
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    }
    if adapter_rank:
        served = next((rank for rank in SERVED_RANKS if rank >= adapter_rank), adapter_rank)
        arguments |= {"enable_lora": True, "max_lora_rank": served, "max_loras": 1}
    own = _cpu_arguments(rollout, policy) if on_cpu else _gpu_arguments(rollout, policy, sleeps=sleeps)
    return {**arguments, **own}


def _cpu_arguments(rollout: RolloutConfig, policy: PolicyConfig) -> dict[str, Any]:
    return {
        "kv_cache_memory_bytes": int(rollout.kv_cache_gib * 2**30),
        "block_size": _CPU_BLOCK,
        # Prompts are never split, so a batch must hold the longest: if vLLM (0.32) on a CPU splits the prompt of a
        # request that has its own seed, as ours do, the engine ends ("CPU Generator does not use offset").
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(policy.max_length, _CPU_BATCH),
    }


def _gpu_arguments(rollout: RolloutConfig, policy: PolicyConfig, *, sleeps: bool) -> dict[str, Any]:
    # Without inductor, decoding still runs as CUDA graphs.
    graphs = sorted({size for size in _GRAPHS if size < rollout.max_concurrent} | {rollout.max_concurrent})
    kind = {} if rollout.compile else {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
    memory: dict[str, Any] = {"gpu_memory_utilization": rollout.gpu_memory_utilization}
    if rollout.engines_per_gpu > 1:
        # Engines that start side by side cannot measure what is free. With a given size they need not.
        memory = {"gpu_memory_utilization": 0.02, "kv_cache_memory_bytes": int(rollout.kv_cache_gib * 2**30)}
    return {
        **memory,
        "enable_sleep_mode": sleeps,
        # A step with prompts in it runs outside of graphs, so a few large steps are better than many.
        "max_num_batched_tokens": max(policy.max_length, _GPU_BATCH),
        "compilation_config": {**kind, "cudagraph_capture_sizes": graphs},
    }


@contextmanager
def on_cores(text: str) -> Iterator[None]:
    """Processes started within this block run on these cores only, or on all cores if the text is empty."""
    before = os.sched_getaffinity(0)
    wanted = set(parse_cores(text))
    if missing := wanted - before:
        raise ValueError(
            f"rollout.cpu_cores: cores {sorted(missing)} are not among those of this node {sorted(before)}"
        )
    os.sched_setaffinity(0, wanted or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def tensor_names(model_path: str) -> frozenset[str]:
    """The tensors that a push of weights must bring: those of the checkpoint in a local folder, without tied ones.

    Empty for a model that is not a local folder. Raises FileNotFoundError for a folder without a safetensors file.
    """
    folder = Path(model_path)
    if not folder.is_dir():
        return frozenset()
    files = sorted(folder.glob("*.safetensors"))
    if not files or not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder}: no config.json and *.safetensors here; export the policy to this folder")
    names = set[str]()
    for file in files:
        with safe_open(file, "pt") as tensors:
            names.update(tensors.keys())
    config = json.loads((folder / "config.json").read_text())
    return frozenset(names - {"lm_head.weight"} if config.get("tie_word_embeddings") else names)


@contextmanager
def adapter_folder(manifest: WeightManifest, data: np.ndarray) -> Iterator[str]:
    """A folder with an adapter as peft saves it. It exists within this block."""
    with tempfile.TemporaryDirectory(prefix="warpsmith-adapter-") as folder:
        (Path(folder) / "adapter_config.json").write_text(manifest.adapter)
        save_file(dict(unpack(manifest, data)), Path(folder) / "adapter_model.safetensors")
        yield folder


@contextmanager
def shared_file(data: np.ndarray) -> Iterator[str]:
    """The path of a file in memory with these bytes, for other processes of this host to map.

    It exists within this block, and no longer than this process. An anonymous file needs no room in /dev/shm, which
    containers keep small, and no clean-up after a kill.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile(prefix="warpsmith-weights-") as file:
            file.write(data.data)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("warpsmith-weights")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data.data)
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)
