"""Packing loses nothing, and makes what a checkpoint holds smaller: repeats, and numbers that are noise."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestration.run.bundle_packing import ROW, pack, unpack

WEIGHTS = np.random.default_rng(0).normal(0.0, 0.02, 300_000).astype(np.float32).tobytes()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(1, 40)), max_size=6))
def test_whatever_is_packed_comes_back(pieces: list[tuple[bytes, int]]) -> None:
    data = b"".join(piece * times for piece, times in pieces)
    assert unpack(pack(data), len(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        WEIGHTS,
        WEIGHTS[:-3],
        WEIGHTS + bytes(ROW) + WEIGHTS,
        bytes(5 << 20),
        b"\x00" * 100_000 + WEIGHTS[: 64 * 1000] * 3 + b"end",
        np.arange(400_000, dtype=np.float64).tobytes(),
    ],
    ids=["weights", "odd", "twice", "zeros", "thrice", "doubles"],
)
def test_weights_come_back_to_the_last_bit(data: bytes) -> None:
    assert unpack(pack(data), len(data)) == data


def test_weights_that_stand_in_two_places_are_packed_once() -> None:
    once, twice = pack(WEIGHTS), pack(WEIGHTS + bytes(range(ROW)) * 100 + WEIGHTS)
    assert len(twice) < len(once) + 500


def test_float32_noise_packs_better_than_by_zstd_alone() -> None:
    assert len(pack(WEIGHTS)) < 0.88 * len(WEIGHTS)
    bfloat16 = np.frombuffer(WEIGHTS, np.uint16)[1::2].tobytes()
    assert len(pack(bfloat16)) < 0.75 * len(bfloat16)


def test_text_packs_well() -> None:
    text = json.dumps([{"task": f"level1/{index % 7}", "speedup": index / 7} for index in range(5000)]).encode()
    assert len(pack(text)) < 0.2 * len(text)


def test_bytes_that_end_too_early_are_an_error() -> None:
    packed = pack(WEIGHTS)
    for damaged in (packed[:5], packed[:-1], packed[: len(packed) // 2], b"\x07" + packed[1:]):
        with pytest.raises(ValueError, match="packed bytes"):
            unpack(damaged, len(WEIGHTS))
