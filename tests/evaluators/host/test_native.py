"""The device arena gives out one range of addresses in place of the CUDA runtime, whose library need not be there."""

from __future__ import annotations

import ctypes

import pytest

from evaluators.host.native import cuda_library

SIZE, ROW = 1 << 20, 512
NO_RUNTIME = 3  # cudaErrorInitializationError


@pytest.fixture
def arena():
    library = ctypes.CDLL(str(cuda_library()))
    memory = ctypes.create_string_buffer(SIZE + ROW)
    base = -(-ctypes.addressof(memory) // ROW) * ROW
    library.warpsmith_open_device_arena(ctypes.c_size_t(base), ctypes.c_size_t(SIZE))
    yield library, base
    library.warpsmith_open_device_arena(ctypes.c_size_t(base), ctypes.c_size_t(0))


def take(library: ctypes.CDLL, size: int) -> int | None:
    data = ctypes.c_void_p()
    status = library.cudaMalloc(ctypes.byref(data), ctypes.c_size_t(size))
    assert status in (0, NO_RUNTIME)
    return data.value if status == 0 else None


def test_memory_comes_from_the_range_without_overlap_until_it_is_full(arena) -> None:
    library, base = arena
    taken = []
    while (data := take(library, 3 * ROW - 1)) is not None:
        assert data % ROW == 0
        assert base <= data <= base + SIZE - 3 * ROW
        taken.append(data)
    assert len(taken) == SIZE // (3 * ROW)
    assert min(after - before for before, after in zip(sorted(taken), sorted(taken)[1:], strict=False)) == 3 * ROW


def test_memory_that_is_given_back_is_used_again(arena) -> None:
    library, base = arena
    whole = take(library, SIZE)
    assert whole == base
    assert take(library, ROW) is None
    library.cudaFree(ctypes.c_void_p(whole))
    halves = [take(library, SIZE // 2) for _ in range(2)]
    for half in halves:
        library.cudaFree(ctypes.c_void_p(half))
    assert take(library, SIZE) == base, "neighbours that are free become one block"


def test_what_is_not_of_the_range_is_the_runtimes(arena) -> None:
    library, _ = arena
    assert library.cudaFree(ctypes.c_void_p(ROW)) == NO_RUNTIME
    assert take(library, SIZE + 1) is None
