"""A checkpoint of one, two or three ranks is loaded by any of these numbers, to the last bit: at every ZeRO stage, with
adapters or all weights, with and without off-loading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learners.records import Sample
from tests.learners.ranks import run_ranks
from tests.learners.reshard_rank import MODES, RANKS, sources_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def output(policy_folder: Path, samples: Sequence[Sample], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of each number of ranks in every mode, loaded by others."""
    folder = tmp_path_factory.mktemp("ranks")
    weighed = [replace(one, advantage=value) for one, value in zip(samples, (1.0, -0.5, 0.25), strict=False)]
    for ranks in RANKS:
        run_ranks("reshard_rank.py", ranks, policy_folder, folder, weighed, "save")
    states = {path: load_file(path) for path in folder.glob("*.safetensors")}
    for ranks in RANKS:
        run_ranks("reshard_rank.py", ranks, policy_folder, folder, weighed, "load")
    (folder / "saved").mkdir()
    for path, state in states.items():
        torch.save(state, folder / "saved" / path.with_suffix(".pt").name)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("mode", [*MODES])
def test_any_number_of_ranks_goes_on_from_a_checkpoint_to_the_last_bit(output: Path, mode: str) -> None:
    losses = []
    for source in RANKS:
        saved = torch.load(output / "saved" / f"{mode} of {source} in {source}.pt")
        assert any(name.startswith("reference ") for name in saved)
        assert any(tensor.any() for name, tensor in saved.items() if name.endswith("exp_avg"))
        for ranks in (ranks for ranks in RANKS if source in sources_of(mode, ranks)):
            loaded = load_file(output / f"{mode} of {source} in {ranks}.safetensors")
            losses.append(float(loaded.pop("next loss")))
            assert loaded.keys() == saved.keys()
            different = [name for name, tensor in saved.items() if not torch.equal(loaded[name], tensor)]
            assert different == [], f"written by {source}, loaded by {ranks}"
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-4)
