"""One, two and four ranks train like one process with a plain loop: at every ZeRO stage, with and without off-loading,
alone and sharing rows.
Weights are compared in float32, gradients under autocast to bfloat16 (if the CPU has it)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from learners.records import Sample
from learners.scoring import has_bfloat16
from tests.learners.plain import plain_gradients, train_plainly
from tests.learners.ranks import run_ranks
from tests.learners.train_rank import OFFLOADED, PAIRS, SHARED, STAGES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mixed(samples: list[Sample]) -> list[Sample]:
    """Three samples: two ranks cannot share them evenly, and one of four ranks has none. Advantages of both signs."""
    return [replace(sample, advantage=advantage) for sample, advantage in zip(samples, (1.0, -0.5, 0.25), strict=False)]


def distance(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The difference of all tensors together, relative to the norm of the expected ones."""
    assert found.keys() == expected.keys()
    difference = torch.cat([(found[name] - expected[name]).flatten() for name in expected]).norm()
    return float(difference / torch.cat([one.flatten() for one in expected.values()]).norm())


SOME = [*STAGES, "optimizer-1", "disk-2", "both-3"]


@pytest.mark.parametrize(
    ("device", "ranks", "modes"),
    [
        # test_engine.py and test_offload.py are of one rank, too
        pytest.param("cpu", 1, [*STAGES, *OFFLOADED], marks=pytest.mark.slow),
        pytest.param("cpu", 2, [*SOME, *PAIRS], marks=pytest.mark.slow),
        pytest.param("cpu", 4, [*STAGES, *SHARED], marks=pytest.mark.slow),
        pytest.param("cuda", 1, SOME, marks=pytest.mark.cuda),
        pytest.param("cuda", 2, [*SOME, *PAIRS], marks=pytest.mark.cuda),
    ],
)
def test_ranks_train_as_a_plain_loop_does(
    policy_folder: Path, mixed: list[Sample], tmp_path: Path, device: str, ranks: int, modes: list[str]
) -> None:
    if device == "cuda" and torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    run_ranks("train_rank.py", ranks, policy_folder, tmp_path, mixed, *modes, device=device)
    expected, slopes = train_plainly(policy_folder, mixed), plain_gradients(policy_folder, mixed)
    exact = [mode for mode in modes if device == "cpu" or mode not in SHARED]
    metrics = {mode: json.loads((tmp_path / f"{mode}.json").read_text()) for mode in exact}
    for mode in exact:
        torch.testing.assert_close(load_file(tmp_path / f"{mode}.safetensors"), expected, atol=2e-5, rtol=1e-4)
        for name in ("loss", "gradient_norm", "kl"):
            assert metrics[mode][name] == pytest.approx(metrics["stage-0"][name], rel=1e-3)
    for mode in modes:
        found = load_file(tmp_path / f"{mode}-gradients.safetensors")
        # A product's factors keep eight bits: 2 ** -8 is 0.4 %.
        rounded = distance(found, slopes)
        assert rounded < 2**-7, (mode, rounded)
        assert not has_bfloat16(device) or rounded > 1e-4, "computed in bfloat16, not in float32"
