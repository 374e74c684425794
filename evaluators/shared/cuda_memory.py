"""Device memory that two processes share, passed as a file descriptor.

It uses CUDA's virtual memory management, not `cudaIpcGetMemHandle`: a descriptor is given to one process and to no
other, and it works for a process of another user in another PID namespace, such as a runner.
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any

import torch
from cuda.bindings import driver
from torch import Tensor

from evaluators.shared.region import Region

GATE_GO, GATE_DONE, GATE_ROWS, GATE_BYTES = 0, 256, 512, 1 << 20
"""Where the words of a gate lie in its memory, and how much memory it takes, in bytes (`evaluators.host.gate`). From
GATE_ROWS on: one word for each output, the row of its first byte."""

GATE_ROW_BYTES = 512
"""Outputs behind a gate are read in rows of so many bytes, by which torch aligns its tensors."""

_HANDLE_TYPE = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class CudaMemoryError(RuntimeError):
    """The driver refused to allocate memory, or to share it."""


@dataclass
class DeviceMemory(Region):
    """A region of device memory. It stays mapped as long as a tensor views it."""

    def close(self) -> None:
        os.close(self.descriptor)


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver call. Raises CudaMemoryError unless the call succeeded."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CudaMemoryError(f"the CUDA driver answered {status.name}")
    return values[0] if values else None


class _Mapping:
    """A mapped range of device memory, for torch's `as_tensor`. It is unmapped with the last reference to it."""

    def __init__(self, handle: Any, size: int, ordinal: int) -> None:
        self._size, self._handle = size, handle
        self._address = checked(driver.cuMemAddressReserve(size, 0, driver.CUdeviceptr(0), 0))
        checked(driver.cuMemMap(self._address, size, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location = _location(ordinal)
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        checked(driver.cuMemSetAccess(self._address, size, [access], 1))
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (int(self._address), False),
            "strides": None,
            "version": 3,
        }

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the interpreter's end the driver may be gone already
            torch.cuda.synchronize()
            driver.cuMemUnmap(self._address, self._size)
            driver.cuMemAddressFree(self._address, self._size)
            driver.cuMemRelease(self._handle)


def _location(ordinal: int) -> Any:
    location = driver.CUmemLocation()
    location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = ordinal
    return location


def _properties(ordinal: int) -> Any:
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = _location(ordinal)
    properties.requestedHandleTypes = _HANDLE_TYPE
    return properties


def _rounded(size: int, ordinal: int) -> int:
    """`size`, rounded up to whole pages of the device."""
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    page = int(checked(driver.cuMemGetAllocationGranularity(_properties(ordinal), minimum)))
    return -(-max(size, 1) // page) * page


def allocate(size: int, ordinal: int) -> DeviceMemory:
    """Allocates `size` bytes of zeros on a device, with the descriptor by which another process attaches them.

    Needs a CUDA context. Raises CudaMemoryError.
    """
    whole = _rounded(size, ordinal)
    handle = checked(driver.cuMemCreate(whole, _properties(ordinal), 0))
    descriptor = int(checked(driver.cuMemExportToShareableHandle(handle, _HANDLE_TYPE, 0)))
    memory = torch.as_tensor(_Mapping(handle, whole, ordinal), device=f"cuda:{ordinal}")[: max(size, 1)]
    memory.zero_()  # the padding, too: regions are compared as a whole
    return DeviceMemory(memory, descriptor, size)


def attach(descriptor: int, size: int, ordinal: int) -> Tensor:
    """The memory behind a descriptor, as a uint8 tensor; closes the descriptor. Raises CudaMemoryError."""
    try:
        handle = checked(driver.cuMemImportFromShareableHandle(descriptor, _HANDLE_TYPE))
    finally:
        os.close(descriptor)
    whole = _rounded(size, ordinal)
    return torch.as_tensor(_Mapping(handle, whole, ordinal), device=f"cuda:{ordinal}")[: max(size, 1)]
