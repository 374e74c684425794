"""A program with other names is similar to itself; one that works in another way is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.guard.similarity import similarity

CACHE = """
import torch
results = {}
class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x.data_ptr() not in results:
            results[x.data_ptr()] = torch.relu(x)
        return results[x.data_ptr()]
"""
RENAMED = '''
"""Fast."""
import torch
kept = {}  # of the kernel
class ModelNew(torch.nn.Module):
    def forward(self, given):
        if given.data_ptr() not in kept:
            kept[given.data_ptr()] = torch.relu(given)
        return kept[given.data_ptr()]
'''
PLAIN = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0)
"""
KERNEL = 's = """__global__ void k(float* x, int n) { int i = blockIdx.x; if (i < n) x[i] = fmaxf(x[i], 0); }"""\n'
COPIES = 's = """__global__ void copy(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; return; }"""\n'


def test_names_comments_and_docstrings_make_no_difference() -> None:
    assert similarity(CACHE, CACHE) == pytest.approx(1.0)
    assert similarity(CACHE, RENAMED) > 0.9
    assert similarity(CACHE, PLAIN) < 0.6


def test_c_plus_plus_within_strings_counts() -> None:
    assert similarity(KERNEL, KERNEL.replace("0)", "0.0f)")) > 0.9
    assert similarity(KERNEL, COPIES) < 0.7


@given(st.text(max_size=60), st.text(max_size=60))
def test_similarity_is_symmetric_and_between_0_and_1(first, second) -> None:
    assert similarity(first, second) == pytest.approx(similarity(second, first))
    assert 0.0 <= similarity(first, second) <= 1.0 + 1e-9
