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

from configs.load import ConfigError
from configs.schema import LearnerConfig

BUCKET_ELEMENTS = 50_000_000  # of a reduction; DeepSpeed's own 5e8 would take 2 GB of buffer


def deepspeed_config(config: LearnerConfig, parameters: int, largest: int = 0) -> dict[str, Any]:
    """DeepSpeed's configuration for a model of that many trained parameters, `largest` of them in one tensor at most.

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
            **_offload(config, largest),
        },
        # torch's fused AdamW is vectorised on a CPU, too, and needs no compiler, unlike DeepSpeed's own.
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,  # `DiskAdamW`
        "steps_per_print": 2**31,
        "log_level": "warning",
    }


def _offload(config: LearnerConfig, largest: int) -> dict[str, Any]:
    """What lies elsewhere than on the device. Host memory is pinned where there is a GPU to copy it to."""
    where: dict[str, Any] = {"pin_memory": torch.cuda.is_available()}
    if config.nvme_path:
        where["nvme_path"] = config.nvme_path
    moved: dict[str, Any] = {}
    if config.offload_optimizer != "none":
        moved["offload_optimizer"] = {"device": "cpu", **where}  # for `nvme`, too: `DiskAdamW` moves the rest
    if config.offload_parameters != "none":
        # A buffer holds one tensor, whole or a rank's part of it, rounded up to blocks of the disk.
        size = max(largest, 1 << 20) + (1 << 12)
        moved["offload_param"] = {"device": config.offload_parameters, "buffer_size": size, **where}
    return moved


def require_nvme(config: LearnerConfig) -> None:
    """Makes the folder, and builds what DeepSpeed moves weights to a disk with (some minutes, once a machine), where
    `config` asks for them.

    Raises ConfigError where it does not build, or the folder cannot be made.
    """
    if "nvme" not in (config.offload_optimizer, config.offload_parameters):
        return
    try:
        os.makedirs(config.nvme_path, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"learner.nvme_path: {config.nvme_path} cannot be made a folder ({error})") from error
    if config.offload_parameters != "nvme":
        return
    builder = importlib.import_module("deepspeed.ops.op_builder").AsyncIOBuilder()
    try:
        if not builder.is_compatible():
            raise RuntimeError("libaio.h or libaio.so is not found")
        builder.load()
    except Exception as error:  # whatever a compiler, a linker or DeepSpeed has to say
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ConfigError(
            f"learner.offload_parameters=nvme needs DeepSpeed's async_io, which does not build here ({reason}): "
            "install libaio-dev and a C++ compiler, or set learner.offload_parameters=cpu"
        ) from error


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
