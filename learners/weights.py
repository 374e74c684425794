"""Packs weights for the way from the learner to the engines: contiguous buffers, and manifests of their content.

A push is one buffer, or a few of bounded size, instead of one message per parameter. A manifest has the policy version
and a checksum of every byte, so that an engine can prove what it loaded. Never moves a buffer, and knows no transport.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 64  # bytes: a cache line, and a multiple of every element size
_SUMMED = 1 << 20  # words that a checksum adds at once: 8 MiB, which fit into caches


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
    """The place of one tensor: `dtype` is torch's name (`bfloat16`), `offset` counts bytes from the buffer's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class WeightManifest:
    """The content of a buffer of `total_bytes`, and its checksum.

    A push has one or several parts, numbered from 0; after the `last` an engine has the whole policy. `adapter`: empty
    if the tensors are the policy's weights; for adapters, the settings that peft writes beside them (JSON).
    """

    version: int
    total_bytes: int
    checksum: str
    tensors: tuple[TensorEntry, ...]
    part: int = 0
    last: bool = True
    adapter: str = ""

    def to_json(self) -> str:
        """The manifest as text, for channels that only carry plain values."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WeightManifest:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        tensors = tuple(TensorEntry(**{**entry, "shape": tuple(entry["shape"])}) for entry in fields.pop("tensors"))
        return cls(tensors=tensors, **fields)


@dataclass(frozen=True)
class PackedPart:
    """A manifest and its bytes, uint8 [total_bytes]: a view into a buffer that is reused for the next part."""

    manifest: WeightManifest
    data: Tensor


def checksum_of(buffer: Any) -> str:
    """Two sums over the 8-byte words of a contiguous buffer, modulo 2^64, in hexadecimal.

    The first adds the words, the second adds each word times an odd number that depends on its position. Integer sums
    are the same on every device and in every order, so the checksum is computed on the buffer's device. It protects
    against damage, not against forgery.

    buffer: a tensor, or any object with a buffer. Bytes after the last whole word are filled up with zeros.
    """
    data = _as_bytes(buffer)
    if rest := len(data) % 8:
        data = torch.cat((data, data.new_zeros(8 - rest)))
    words = data.view(torch.int64)
    places = torch.arange(1, 2 * _SUMMED, 2, device=words.device)
    blocks = words.split(_SUMMED) if len(words) else ()
    sums = [torch.stack((block.sum(), (block * places[: len(block)]).sum())) for block in blocks]
    if not sums:
        return "sum64:0"
    plain, placed = torch.stack(sums).unbind(dim=1)
    placed = placed * torch.arange(1, 2 * len(placed), 2, device=placed.device)
    return "sum64:" + "".join(
        f"{int(value) % 2**64:016x}" for value in torch.stack((plain.sum(), placed.sum())).tolist()
    )


def pack_parts(
    named: Iterable[tuple[str, Tensor]],
    dtype: torch.dtype,
    version: int,
    *,
    limit_bytes: int = 0,
    device: torch.device | str = "cpu",
    adapter: str = "",
) -> Iterator[PackedPart]:
    """Copies tensors into a buffer on `device` and yields it as a part, whenever the next tensor would take it beyond
    `limit_bytes` (0: all tensors in one part). A tensor that is larger than the limit is a part of its own.

    The buffer is reused: a part is valid until the next one is requested. Floating-point tensors are converted to
    `dtype`, others keep their type. Reads `named` step by step, so that no more than a part and a tensor are held.
    Raises ValueError if there is no tensor, or if a name comes twice.
    """
    seen = set[str]()
    pending: list[tuple[str, Tensor]] = []
    held = part = 0
    buffer = torch.empty(0, dtype=torch.uint8, device=device)
    for name, tensor in named:
        if name in seen:
            raise ValueError(f"weights to pack: tensor {name!r} comes twice; give every tensor its own name")
        seen.add(name)
        size = _stored_bytes(tensor, dtype)
        if limit_bytes and pending and held + size > limit_bytes:
            buffer = _room_for(held, buffer)
            yield _packed(pending, dtype, version, buffer[:held], part, last=False, adapter=adapter)
            pending, held, part = [], 0, part + 1
        pending.append((name, tensor))
        held += size
    if not pending:
        raise ValueError("weights to pack: no tensors; pass the model's named parameters")
    yield _packed(pending, dtype, version, _room_for(held, buffer)[:held], part, last=True, adapter=adapter)


def _stored_bytes(tensor: Tensor, dtype: torch.dtype) -> int:
    """The bytes of a tensor in a buffer, with the gap to the next tensor."""
    stored = dtype if tensor.is_floating_point() else tensor.dtype
    return -(-tensor.numel() * stored.itemsize // ALIGNMENT) * ALIGNMENT


def _room_for(size: int, buffer: Tensor) -> Tensor:
    return buffer if len(buffer) >= size else buffer.new_empty(size)


def _packed(
    named: list[tuple[str, Tensor]],
    dtype: torch.dtype,
    version: int,
    data: Tensor,
    part: int,
    *,
    last: bool,
    adapter: str,
) -> PackedPart:
    entries, end = list[TensorEntry](), 0
    data.zero_()  # the checksum includes the gaps
    for name, tensor in named:
        stored = dtype if tensor.is_floating_point() else tensor.dtype
        entry = TensorEntry(name, str(stored).removeprefix("torch."), tuple(tensor.shape), end)
        _view(data, entry).copy_(tensor.detach())
        entries.append(entry)
        end += _stored_bytes(tensor, dtype)
    return PackedPart(WeightManifest(version, end, checksum_of(data), tuple(entries), part, last, adapter), data)


def unpack(manifest: WeightManifest, buffer: Any) -> Iterator[tuple[str, Tensor]]:
    """Views into `buffer`, without a copy. They are valid as long as it is, and must not be written to."""
    data = _as_bytes(buffer)
    for entry in manifest.tensors:
        yield entry.name, _view(data, entry)


def verify(manifest: WeightManifest, buffer: Any) -> None:
    """Raises ChecksumMismatch unless `buffer` holds exactly the packed bytes."""
    size = len(buffer)
    actual = checksum_of(buffer) if size == manifest.total_bytes else f"{size} bytes instead of {manifest.total_bytes}"
    if actual != manifest.checksum:
        raise ChecksumMismatch(manifest.version, manifest.checksum, actual)


def _as_bytes(buffer: Any) -> Tensor:
    """The buffer as uint8 [bytes], without a copy."""
    if isinstance(buffer, Tensor):
        return buffer
    if len(buffer) == 0:
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():  # buffers of Ray's object store are read-only, and only read here
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.frombuffer(buffer, dtype=torch.uint8)


def _view(data: Tensor, entry: TensorEntry) -> Tensor:
    dtype: torch.dtype = getattr(torch, entry.dtype)
    stop = entry.offset + math.prod(entry.shape) * dtype.itemsize
    return data[entry.offset : stop].view(dtype).view(entry.shape)
