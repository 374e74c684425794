"""Weights arrive as they were packed, and damage on the way is found."""

import pickle

import numpy as np
import pytest
import torch

from learners.weights import ChecksumMismatch, WeightManifest, unpack, verify
from tests.packing import pack


def named() -> list[tuple[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        ("a.weight", torch.randn(3, 5, generator=generator)),
        ("a.bias", torch.randn((), generator=generator)),
        ("ids", torch.arange(7)),
        ("empty", torch.zeros(0, 4)),
        ("transposed", torch.randn(4, 6, generator=generator).T),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_unpacked_tensors_are_the_packed_ones_in_the_requested_precision(dtype: torch.dtype) -> None:
    packed = pack(named(), dtype, version=3)
    verify(packed.manifest, packed.data)
    assert packed.manifest.version == 3
    unpacked = list(unpack(packed.manifest, packed.data))
    assert [name for name, _ in unpacked] == [name for name, _ in named()]
    for (name, tensor), (_, original) in zip(unpacked, named(), strict=True):
        expected = original.to(dtype) if original.is_floating_point() else original
        assert tensor.dtype == expected.dtype, name
        assert torch.equal(tensor, expected), name


def test_unpacked_tensors_share_the_buffer_even_a_read_only_one() -> None:
    packed = pack(named(), torch.float32, version=0)
    first = next(tensor for _, tensor in unpack(packed.manifest, packed.data))
    assert first.data_ptr() == packed.data.ctypes.data
    packed.data.flags.writeable = False
    assert next(tensor for _, tensor in unpack(packed.manifest, packed.data)).data_ptr() == first.data_ptr()


def test_packing_copies_so_that_later_training_does_not_change_the_packed_weights() -> None:
    weight = torch.nn.Parameter(torch.ones(8))
    packed = pack([("weight", weight)], torch.float32, version=0)
    with torch.no_grad():
        weight.zero_()
    verify(packed.manifest, packed.data)
    assert dict(unpack(packed.manifest, packed.data))["weight"].sum() == 8


def test_every_tensor_is_aligned_for_its_type() -> None:
    manifest = pack(named(), torch.float32, version=0).manifest
    assert all(entry.offset % 64 == 0 for entry in manifest.tensors)


@pytest.mark.parametrize("position", [0, 100, -1])
def test_one_wrong_byte_is_found_and_named_with_both_sums(position: int) -> None:
    packed = pack(named(), torch.float32, version=41)
    damaged = packed.data.copy()
    damaged[position] ^= 1
    with pytest.raises(ChecksumMismatch) as error:
        verify(packed.manifest, damaged)
    assert "version 41" in str(error.value)
    assert packed.manifest.checksum in str(error.value)
    assert error.value.actual in str(error.value)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_a_buffer_of_another_length_is_found() -> None:
    packed = pack(named(), torch.float32, version=0)
    for wrong in (packed.data[:-1], np.append(packed.data, np.uint8(0)), packed.data[:0]):
        with pytest.raises(ChecksumMismatch, match="bytes"):
            verify(packed.manifest, wrong)


def test_a_manifest_survives_as_text() -> None:
    manifest = pack(named(), torch.bfloat16, version=9).manifest
    assert WeightManifest.from_json(manifest.to_json()) == manifest


def test_a_name_twice_or_no_tensor_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="'a'"):
        pack([("a", torch.ones(1)), ("a", torch.ones(1))], torch.float32, version=0)
    with pytest.raises(ValueError, match="no tensors"):
        pack([], torch.float32, version=0)
