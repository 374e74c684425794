"""Packs bytes without loss: long repeats once, numbers by byte planes, and then zstd.

Made for a learner's checkpoint. Its files hold the trained weights twice, and float32 weights and moments are noise to
a compressor, but for the bytes with sign and exponent: these are alike, and compress once they stand next to each other
(the shuffle filter of HDF5 and Blosc does the same). For text and tables zstd alone is best. Never knows what the bytes
mean.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

ROW = 64
"""Bytes. torch aligns the tensors in its files to as many, so the same tensors in two places are the same rows."""

_BLOCK_ROWS = (1 << 20) // ROW
_SHORTEST_ROWS = 64  # of a repeat: 4 KiB, beside which the 13 bytes that tell of it are nothing
_WIDTHS = (1, 2, 4, 8)  # bytes of a number; the width that packs a block best is taken
_STORED, _REPEAT = 0, 255  # kinds of a frame beside the widths
_FRAME = struct.Struct("<BIQ")  # kind, rows, and the bytes that follow or the row from which on is repeated
_FAST, _SMALL = 3, 19  # zstd's levels: planes gain nothing from a higher one, text does
_TEXT_LIKE = 0.7  # packed to less than this share at width 1, a block is worth zstd's slowest level

_MIX = np.array([(0x9E3779B97F4A7C15 * (2 * i + 1)) % (1 << 64) for i in range(1, ROW // 8 + 1)], np.uint64)


def pack(data: bytes) -> bytes:
    """The packed bytes. `unpack` needs the length of `data` to restore it."""
    if not data:
        return b""
    rows = _as_rows(data)
    frames: list[bytes] = []
    done = 0
    for begin, end, source in _repeats(rows):
        frames.extend(_literal(rows[done:begin]))
        frames.append(_FRAME.pack(_REPEAT, end - begin, source))
        done = end
    frames.extend(_literal(rows[done:]))
    return b"".join(frames)


def unpack(packed: bytes, size: int) -> bytes:
    """The `size` bytes that `pack` was given. Raises ValueError for anything that `pack` did not make."""
    restored = bytearray()
    at = 0
    while at < len(packed):
        try:
            kind, rows, number = _FRAME.unpack_from(packed, at)
        except struct.error as error:
            raise ValueError(f"packed bytes end within a frame, at {at}") from error
        at += _FRAME.size
        length = rows * ROW
        if kind == _REPEAT:
            restored += restored[number * ROW : number * ROW + length]
            continue
        restored += _unpack_block(kind, packed[at : at + number], length)
        at += number
    if not size <= len(restored) < size + ROW:
        raise ValueError(f"packed bytes hold {len(restored)} bytes, not {size}")
    return bytes(restored[:size])


def _as_rows(data: bytes) -> np.ndarray:
    """[rows, ROW] bytes, the last row filled up with zeros."""
    padded = data + bytes(-len(data) % ROW)
    return np.frombuffer(padded, np.uint8).reshape(-1, ROW)


def _repeats(rows: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Ranges of rows [begin, end) that repeat those from `source` on, in order. A source never overlaps a repeat."""
    words = rows.view(np.uint64)
    with np.errstate(over="ignore"):
        hashes = ((words ^ (words >> np.uint64(29))) * _MIX).sum(axis=1, dtype=np.uint64)
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    origin = first[inverse]
    is_repeat = origin < np.arange(len(rows))
    goes_on = np.zeros(len(rows) + 1, bool)  # whether a row continues the repeat of the row before
    goes_on[1:-1] = is_repeat[1:] & is_repeat[:-1] & (np.diff(origin) == 1)
    begins = np.flatnonzero(is_repeat & ~goes_on[:-1])
    ends = np.flatnonzero(is_repeat & ~goes_on[1:]) + 1
    long = ends - begins >= _SHORTEST_ROWS
    for begin, end in zip(begins[long].tolist(), ends[long].tolist(), strict=True):
        source = int(origin[begin])
        if np.array_equal(rows[begin:end], rows[source : source + end - begin]):  # two rows may share a hash
            yield begin, end, source


def _literal(rows: np.ndarray) -> Iterator[bytes]:
    """The frames of rows that nothing before repeats."""
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        kind, content = _pack_block(block.tobytes())
        yield _FRAME.pack(kind, len(block), len(content)) + content


def _pack_block(block: bytes) -> tuple[int, bytes]:
    tried = {width: _compress(_to_planes(block, width), _FAST) for width in _WIDTHS}
    width = min(tried, key=lambda one: len(tried[one]))
    packed = tried[width]
    if width == 1 and len(packed) < _TEXT_LIKE * len(block):
        packed = _compress(block, _SMALL)
    return (width, packed) if len(packed) < len(block) else (_STORED, block)


def _unpack_block(kind: int, content: bytes, length: int) -> bytes:
    if kind == _STORED:
        return content
    if kind not in _WIDTHS:
        raise ValueError(f"packed bytes have a frame of the unknown kind {kind}")
    try:
        planes = pa.decompress(content, length, codec="zstd", asbytes=True)
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"packed bytes have a frame that is not zstd's ({error})") from error
    return np.frombuffer(planes, np.uint8).reshape(kind, -1).T.tobytes()


def _to_planes(block: bytes, width: int) -> bytes:
    """All first bytes of the block's numbers, then all second bytes, and so on."""
    return block if width == 1 else np.frombuffer(block, np.uint8).reshape(-1, width).T.tobytes()


def _compress(content: bytes, level: int) -> bytes:
    return bytes(pa.Codec("zstd", compression_level=level).compress(content, asbytes=True))
