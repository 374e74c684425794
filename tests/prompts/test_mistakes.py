"""Mistakes are small, of many kinds, and described as they are."""

from __future__ import annotations

import numpy as np
import pytest

from prompts.mistakes import KINDS, mistakes_in

PROGRAM = '''import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
torch::Tensor halved(torch::Tensor x) {
  auto half = x / 2;
  return half;
}
"""


class ModelNew(nn.Module):
    """Größe."""

    def __init__(self):
        super().__init__()
        self.tool = load_inline("tool", SOURCE, functions=["halved"])

    def forward(self, x):
        weights = torch.softmax(x - x.amax(dim=1, keepdim=True), dim=-1)
        return F.relu(weights * 0.5)
'''


def test_one_mistake_of_each_kind_is_made_where_there_is_a_place() -> None:
    found = mistakes_in(PROGRAM, np.random.default_rng(0))
    assert sorted(mistake.name for mistake in found) == sorted(KINDS)


def alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return next((index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(other))


@pytest.mark.parametrize("seed", range(20))
def test_a_mistake_is_one_small_edit(seed: int) -> None:
    for mistake in mistakes_in(PROGRAM, np.random.default_rng(seed)):
        start = alike(PROGRAM, mistake.source)
        end = alike(PROGRAM[start:][::-1], mistake.source[start:][::-1])
        removed, added = PROGRAM[start : len(PROGRAM) - end], mistake.source[start : len(mistake.source) - end]
        assert removed != added
        assert len(removed) <= 60, mistake
        assert len(added) <= 6, mistake


def test_words_name_the_code_that_is_wrong_and_the_code_that_is_right() -> None:
    named: dict[str, set[str]] = {}
    for seed in range(60):
        for mistake in mistakes_in(PROGRAM, np.random.default_rng(seed)):
            named.setdefault(mistake.name, set()).add(f"{mistake.cause} {mistake.cure}")
            assert "{" not in mistake.cause + mistake.cure
    assert any("`weight`" in text and "`weights`" in text for text in named["misread_name"])
    assert any("`dim=0`" in text and "`dim=-1`" in text for text in named["wrong_axis"])
    assert any("weights / 0.5" in text and "weights * 0.5" in text for text in named["swapped_operator"])
    assert all("`F`" in text or "load_inline" in text or "nn`" in text or "torch`" in text
               for text in named["forgotten_import"])  # fmt: skip
    assert all(len(texts) >= 3 for texts in named.values()), "several phrasings each"


@pytest.mark.parametrize("source", ["def broken(:", "", "x = (" * 4000])
def test_a_text_without_a_place_for_mistakes_has_none(source: str) -> None:
    assert mistakes_in(source, np.random.default_rng(0)) == []
