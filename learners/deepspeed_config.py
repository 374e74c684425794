"""DeepSpeed's configuration and its process group, without a launcher, files or MPI discovery.

Every wait has a bound here. Never imports DeepSpeed at module level: the accelerator must be chosen before the first
import.
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

BUCKET_ELEMENTS = 50_000_000  # elements reduced at once; DeepSpeed's default of 5e8 takes a buffer of 2 GB


def deepspeed_config(config: LearnerConfig, parameters: int, largest: int = 0) -> dict[str, Any]:
    """DeepSpeed's configuration for a model of `parameters` trained weights, of which one tensor has at most `largest`.

    The caller accumulates gradients (`managed_gradient_accumulation`), because the number of micro-batches of a step
    follows from the token budget. The batch sizes below only satisfy DeepSpeed's arithmetic.
    """
    bucket = max(min(parameters, BUCKET_ELEMENTS), 1)
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        # Stage 0 clips in the optimiser's hook, where the norm is known.
        "gradient_clipping": config.gradient_clip if config.zero_stage else 0.0,
        "zero_optimization": {
            "stage": config.zero_stage,
            "overlap_comm": False,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
            "stage3_prefetch_bucket_size": bucket,
            **_offload(config, largest),
        },
        # torch's fused AdamW is vectorised on a CPU, too. Unlike DeepSpeed's own it needs no compiler.
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,  # `DiskAdamW`
        "steps_per_print": 2**31,
        "log_level": "warning",
    }


def _offload(config: LearnerConfig, largest: int) -> dict[str, Any]:
    """The settings of states that are not on the device. Host memory is pinned if there is a GPU to copy it to."""
    where: dict[str, Any] = {"pin_memory": torch.cuda.is_available()}
    if config.nvme_path:
        where["nvme_path"] = config.nvme_path
    moved: dict[str, Any] = {}
    if config.offload_optimizer != "none":
        moved["offload_optimizer"] = {"device": "cpu", **where}  # for `nvme`, too: `DiskAdamW` puts the moments on disk
    if config.offload_parameters != "none":
        # A buffer holds one tensor, or a rank's part of it, rounded up to blocks of the disk.
        size = max(largest, 1 << 20) + (1 << 12)
        moved["offload_param"] = {"device": config.offload_parameters, "buffer_size": size, **where}
    return moved


def require_nvme(config: LearnerConfig) -> None:
    """If `config` uses nvme, makes its folder and, for weights, builds DeepSpeed's asynchronous I/O (some minutes, once
    per machine).

    Raises ConfigError if that does not build, or if the folder cannot be made.
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
    except Exception as error:  # any error of a compiler, a linker or DeepSpeed
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ConfigError(
            f"learner.offload_parameters=nvme needs DeepSpeed's async_io, which does not build here ({reason}): "
            "install libaio-dev and a C++ compiler, or set learner.offload_parameters=cpu"
        ) from error


def import_deepspeed() -> Any:
    """DeepSpeed, with its accelerator set first: on a machine without CUDA it would guess from installed packages."""
    if not torch.cuda.is_available():
        os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "warning")
    deepspeed = importlib.import_module("deepspeed")
    # Otherwise DeepSpeed compiles its own shared-memory all-reduce when the group starts. gloo's is good enough.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def join_process_group(
    rank: int, world_size: int, master_address: str, master_port: int, timeout_seconds: float
) -> None:
    """Joins the process group of the learner's ranks, with NCCL on GPUs and gloo on a CPU. A process that belongs to
    the same group already stays in it.

    `timeout_seconds` bounds the meeting and every later collective. A process has one GPU, the first that it sees.
    Raises ValueError for several ranks without a port, RuntimeError if this process belongs to another group.
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
    # DeepSpeed reads these, although it does not need them here.
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
