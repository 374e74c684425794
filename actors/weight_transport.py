"""How a part of the weights gets from a learner rank to the workers of rollout engines.

Within one GPU they open the learner's memory by a handle (CUDA IPC); between GPUs it is broadcast (NCCL; gloo without
GPUs). Every wait here has a bound. Runs in learner ranks and in vLLM's workers, so it must import neither ray nor vLLM.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import (  # exported by torch.distributed, but not typed
    BroadcastOptions,
    PrefixStore,
    ProcessGroupGloo,
    TCPStore,
)

HOST, SHARED, BROADCAST = "host", "shared", "broadcast"
"""The transports. `host` is Ray's object store, which works everywhere."""
_POLL_SECONDS = 0.0005
_HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE
_RANKS = "ranks"  # the store's counter of the members that have come


@dataclass(frozen=True)
class DeviceMemory:
    """A part in GPU memory. `handles`: by the GPU's unique id, the handle with which processes on that GPU open it."""

    handles: Mapping[str, str]


@dataclass(frozen=True)
class ByBroadcast:
    """A part that comes through the channel which the workers have joined."""


def gpu_id() -> str:
    """The unique id of this process's GPU. Its number may differ from process to process."""
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def share(data: Tensor) -> str:
    """The handle of a contiguous tensor in this GPU's memory, for any number of processes. Its values are complete.

    The tensor must live until all processes have closed it. Not for memory of the allocator's `expandable_segments`.
    """
    from cuda.bindings import driver

    torch.cuda.synchronize()
    base, _ = _checked(driver.cuMemGetAddressRange(data.data_ptr()))
    (handle,) = _checked(driver.cuIpcGetMemHandle(base))
    text = ctypes.string_at(handle.getPtr(), _HANDLE_BYTES).hex()
    return f"{text}:{data.data_ptr() - int(base)}:{data.nbytes}"


@contextmanager
def opened(handles: Mapping[str, str]) -> Iterator[Tensor]:
    """The bytes, uint8, that another process shared on this process's GPU. They can be read within this block.

    Raises LookupError if they were shared on other GPUs only.
    """
    from cuda.bindings import driver

    here = gpu_id()
    if here not in handles:
        raise LookupError(f"weights were shared on the GPUs {sorted(handles)}, and this engine's is {here}")
    text, offset, size = handles[here].split(":")
    handle = driver.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(text), _HANDLE_BYTES)
    torch.cuda.synchronize()  # makes this thread's context, too
    flags = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value
    (base,) = _checked(driver.cuIpcOpenMemHandle(handle, flags))
    try:
        yield torch.as_tensor(_Bytes(int(base) + int(offset), int(size)), device="cuda")
        torch.cuda.synchronize()
    finally:
        _checked(driver.cuIpcCloseMemHandle(base))


class _Bytes:
    """Memory of a GPU in the form that torch accepts (the CUDA array interface, version 3)."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def _checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of a call of the driver. Raises RuntimeError if it failed."""
    error, *values = result
    if int(error):
        raise RuntimeError(f"CUDA driver: {error.name} while weights were passed between processes")
    return tuple(values)


class BroadcastChannel:
    """One learner rank and all workers of the rollout engines, in a process group of their own.

    The sender is rank 0 and makes the store where the others meet it; they are numbered in the order in which they
    come. A broadcast that takes longer than `timeout` seconds raises a TimeoutError that names the side that was waited
    for. NCCL makes its connections in the first broadcast, which waits longer for a member that never came: callers
    must bound that call themselves.
    """

    def __init__(self, address: str, port: int, size: int, *, sends: bool, timeout: float, device: str) -> None:
        """Meets `size` - 1 others at `address:port`. `device`: `cuda` (NCCL) or `cpu` (gloo).

        Raises RuntimeError if more members come than the channel is for.
        """
        self._timeout, self._on_gpu = timeout, device == "cuda"
        limit = timedelta(seconds=timeout)
        self._store = TCPStore(address, port, size, sends, timeout=limit, wait_for_workers=False)
        self.rank = 0 if sends else int(self._store.add(_RANKS, 1))
        if self.rank >= size:
            raise RuntimeError(f"weight channel: {self.rank} workers came, and it is for {size - 1}")
        store = PrefixStore("weights", self._store)
        self._group: Any
        if self._on_gpu:
            from torch._C._distributed_c10d import ProcessGroupNCCL

            options = ProcessGroupNCCL.Options()
            # Our own time limit must come first: the group's watchdog would end the process.
            options._timeout = timedelta(seconds=4 * timeout + 60)
            self._group = ProcessGroupNCCL(store, self.rank, size, options)
        else:
            self._group = ProcessGroupGloo(store, self.rank, size, limit)

    def broadcast(self, data: Tensor) -> None:
        """Copies rank 0's `data` into that of all others; complete when it returns.

        Raises TimeoutError, after which the channel is closed, and RuntimeError if it is closed already.
        """
        if self._group is None:
            raise RuntimeError("weight channel: it is closed")
        options = BroadcastOptions()
        options.rootRank, options.rootTensor, options.asyncOp = 0, 0, True
        work = self._group.broadcast([data], options)
        deadline = time.monotonic() + self._timeout
        while not work.is_completed():
            if time.monotonic() > deadline:
                self.close()
                waited = "rank 0, the learner" if self.rank else "a rollout engine's worker"
                raise TimeoutError(
                    f"weight channel: rank {self.rank} waited {self._timeout:.0f} s for {waited}; it is closed, and "
                    "the next push opens another"
                )
            time.sleep(_POLL_SECONDS)
        work.wait()
        if self._on_gpu:
            torch.cuda.synchronize()

    def close(self) -> None:
        """Leaves the group without waiting for any member."""
        group, self._group = self._group, None
        if self._on_gpu and group is not None:
            group.abort()
