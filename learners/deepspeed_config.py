"""What DeepSpeed is told, and the process group it runs in: no launcher, no files, no MPI discovery.

Everything that could wait for ever has a bound here. Never imports DeepSpeed at module level: the accelerator must be
chosen before its first import.
"""

from __future__ import annotations

import importlib
import os
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch._C._distributed_c10d import HashStore, Store, TCPStore  # exported by torch.distributed, but not typed

from configs.schema import LearnerConfig

BUCKET_ELEMENTS = 50_000_000  # of a reduction; DeepSpeed's own 5e8 would take 2 GB of buffer


def deepspeed_config(config: LearnerConfig, parameters: int) -> dict[str, Any]:
    """DeepSpeed's configuration for a model of that many parameters.

    Gradient accumulation is the caller's (`managed_gradient_accumulation`): a step has as many micro-batches as the
    token budget makes of it. The batch sizes below only satisfy DeepSpeed's arithmetic.
    """
    bucket = max(min(parameters, BUCKET_ELEMENTS), 1)
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        # Stage 0 clips in the optimiser's hook, where the norm can be read.
        "gradient_clipping": config.gradient_clip if config.zero_stage else 0.0,
        "zero_optimization": {
            "stage": config.zero_stage,
            "overlap_comm": False,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
            "stage3_prefetch_bucket_size": bucket,
        },
        "steps_per_print": 2**31,
        "log_level": "warning",
    }


def import_deepspeed() -> Any:
    """DeepSpeed, with the accelerator fixed first: on a machine without CUDA it would guess from what is installed."""
    if not torch.cuda.is_available():
        os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "warning")
    deepspeed = importlib.import_module("deepspeed")
    # DeepSpeed would compile its shared-memory all-reduce with the machine's compiler when the group starts; gloo does.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def join_process_group(
    rank: int, world_size: int, master_address: str, master_port: int, timeout_seconds: float
) -> None:
    """Joins (or keeps, when it is the same) the process group of the learner's ranks: NCCL on GPUs, gloo on a CPU.

    `timeout_seconds` bounds the meeting and every later collective. One process holds one GPU, its first visible one.
    Raises ValueError without a port for several ranks, RuntimeError when this process belongs to another group.
    """
    if distributed.is_initialized():
        present = (distributed.get_rank(), distributed.get_world_size())
        if present != (rank, world_size):
            raise RuntimeError(
                f"this process is already rank {present[0]} of {present[1]}, not rank {rank} of {world_size}: "
                "start each learner rank in a fresh process"
            )
        return
    if world_size > 1 and master_port <= 0:
        raise ValueError(f"{world_size} learner ranks need a master_port to meet at, got {master_port}")
    timeout = timedelta(seconds=timeout_seconds)
    # DeepSpeed reads these although it needs none of them here.
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_RANK="0",
        MASTER_ADDR=master_address,
        MASTER_PORT=str(master_port),
    )
    store: Store
    if world_size == 1:
        store = HashStore()
    else:
        store = TCPStore(master_address, master_port, world_size, is_master=rank == 0, timeout=timeout)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)
