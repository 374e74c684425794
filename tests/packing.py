"""Weights as one part in host memory: what tests push to engines, take apart and damage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.weights import WeightManifest, pack_parts


@dataclass(frozen=True)
class PackedWeights:
    """A manifest and its bytes: a one-dimensional array of uint8, which Ray's object store passes without a copy."""

    manifest: WeightManifest
    data: NDArray[np.uint8]


def pack(named: Iterable[tuple[str, Tensor]], dtype: torch.dtype, version: int) -> PackedWeights:
    """`pack_parts` without a limit: its only part. Raises ValueError as it does."""
    (whole,) = pack_parts(named, dtype, version)
    return PackedWeights(whole.manifest, whole.data.numpy())
