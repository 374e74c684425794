"""Weights on their way from the learner to the rollout engines: one contiguous buffer and a manifest that describes it.

One buffer a push, not one message a parameter. The manifest carries the policy version and a checksum of every byte, so
that an engine can prove what it loaded. Nothing here may move the buffer, or know who does.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 64  # bytes: a cache line, and a multiple of every element size


class ChecksumMismatch(RuntimeError):
    """The bytes that arrived are not the bytes that were packed."""

    def __init__(self, version: int, expected: str, actual: str) -> None:
        super().__init__(version, expected, actual)
        self.version, self.expected, self.actual = version, expected, actual

    def __str__(self) -> str:
        return (
            f"weights of policy version {self.version}: checksum must be {self.expected}, got {self.actual}; "
            "the buffer was damaged on the way, push it again"
        )


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies: `dtype` is torch's name (`bfloat16`), `offset` counts bytes from the buffer's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class WeightManifest:
    """What a buffer of `total_bytes` holds, and the checksum of all of it."""

    version: int
    total_bytes: int
    checksum: str
    tensors: tuple[TensorEntry, ...]

    def to_json(self) -> str:
        """The manifest as text, for channels that carry plain values only."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WeightManifest:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        tensors = tuple(TensorEntry(**{**entry, "shape": tuple(entry["shape"])}) for entry in fields.pop("tensors"))
        return cls(tensors=tensors, **fields)


@dataclass(frozen=True)
class PackedWeights:
    """A manifest and its bytes, a one-dimensional array of uint8, which Ray's object store passes without a copy."""

    manifest: WeightManifest
    data: NDArray[np.uint8]


def checksum_of(buffer: Any) -> str:
    """CRC-32 of a contiguous buffer, in hexadecimal: against damage, not against forgers. About 4 GB/s on one core."""
    return f"crc32:{zlib.crc32(buffer):08x}"


def pack(named: Iterable[tuple[str, Tensor]], dtype: torch.dtype, version: int) -> PackedWeights:
    """Copies tensors, from whatever device, into one buffer in host memory.

    Floating-point tensors are converted to `dtype`, others keep theirs. Raises ValueError when there is no tensor, or
    a name comes twice.
    """
    tensors = dict[str, Tensor]()
    entries = list[TensorEntry]()
    end = 0
    for name, tensor in named:
        if name in tensors:
            raise ValueError(f"weights to pack: tensor {name!r} comes twice; give every tensor its own name")
        stored = dtype if tensor.is_floating_point() else tensor.dtype
        tensors[name] = tensor
        entries.append(TensorEntry(name, str(stored).removeprefix("torch."), tuple(tensor.shape), end))
        size = tensor.numel() * stored.itemsize
        end += -(-size // ALIGNMENT) * ALIGNMENT
    if not entries:
        raise ValueError("weights to pack: no tensors; pass the model's named parameters")
    data = np.zeros(end, dtype=np.uint8)
    for entry in entries:
        _view(data, entry).copy_(tensors[entry.name].detach())
    return PackedWeights(WeightManifest(version, end, checksum_of(data), tuple(entries)), data)


def unpack(manifest: WeightManifest, buffer: Any) -> Iterator[tuple[str, Tensor]]:
    """Views into `buffer`, without a copy: they are valid as long as it is, and must not be written to."""
    for entry in manifest.tensors:
        yield entry.name, _view(buffer, entry)


def verify(manifest: WeightManifest, buffer: Any) -> None:
    """Raises ChecksumMismatch unless `buffer` holds exactly the bytes that were packed."""
    size = memoryview(buffer).nbytes
    actual = checksum_of(buffer) if size == manifest.total_bytes else f"{size} bytes instead of {manifest.total_bytes}"
    if actual != manifest.checksum:
        raise ChecksumMismatch(manifest.version, manifest.checksum, actual)


def _view(buffer: Any, entry: TensorEntry) -> Tensor:
    dtype: torch.dtype = getattr(torch, entry.dtype)
    count = 1
    for size in entry.shape:
        count *= size
    if count == 0:
        return torch.empty(entry.shape, dtype=dtype)
    with warnings.catch_warnings():  # buffers from Ray's object store are read-only, which is how they are used
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.frombuffer(buffer, dtype=dtype, count=count, offset=entry.offset).view(entry.shape)
