"""Under ZeRO-3 a rank loads its shards alone, and trains to the last bit as if it had loaded the whole policy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from learners import checkpoints
from learners.checkpoints import write_weights
from learners.records import Sample
from learners.sharding import load_empty
from learners.tokenizing import PolicyError
from tests.learners.ranks import run_ranks
from tests.learners.shard_rank import MODES


@pytest.fixture
def in_files(policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The policy in several files, in the precision of bfloat16, beside an index."""
    folder = tmp_path / "policy"
    shutil.copytree(policy_folder, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(checkpoints, "FILE_BYTES", 15_000)
    write_weights(((name, weight.to(torch.bfloat16)) for name, weight in weights.items()), folder)
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("ranks", [1, 2])
def test_shards_train_to_the_last_bit_as_a_whole_policy_does(
    in_files: Path, samples: Sequence[Sample], tmp_path: Path, device: str, ranks: int
) -> None:
    if device == "cuda" and torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    weighed = [replace(one, advantage=value) for one, value in zip(samples, (1.0, -0.5, 0.25), strict=False)]
    run_ranks("shard_rank.py", ranks, in_files, tmp_path, weighed, *MODES, device=device)
    for mode in MODES:
        found = {
            loading: json.loads((tmp_path / f"{mode}-{loading}.json").read_text()) for loading in ("shards", "whole")
        }
        assert found["shards"] == found["whole"], mode
        assert found["shards"]["share"] == pytest.approx(1 / ranks, rel=0.02)
        losses = [row["loss"] for row in found["shards"]["metrics"]]
        assert len(set(losses)) == len(losses)
        shards, whole = (load_file(tmp_path / f"{mode}-{loading}.safetensors") for loading in ("shards", "whole"))
        assert shards.keys() == whole.keys()
        assert [name for name, weight in shards.items() if not torch.equal(weight, whole[name])] == [], mode


def test_no_weight_is_in_memory_before_it_is_read(in_files: Path) -> None:
    found = load_empty(str(in_files), torch.float32)
    assert found is not None
    empty, files = found
    assert {parameter.device.type for parameter in empty.parameters()} == {"meta"}
    assert {buffer.device.type for buffer in empty.buffers()} == {"cpu"}
    names = [name for name, _ in files.read(empty, is_reader=True)]
    assert names == [name for name, _ in empty.named_parameters()]
    assert "lm_head.weight" not in names  # tied to the embeddings


def test_a_policy_whose_files_have_other_names_is_loaded_by_transformers(policy_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(policy_folder, folder)
    weights = load_file(folder / "model.safetensors")
    save_file({f"of.{name}": weight for name, weight in weights.items()}, folder / "model.safetensors")
    assert load_empty(str(folder), torch.float32) is None


def test_a_weight_of_another_shape_is_named(policy_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(policy_folder, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = torch.ones(31)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(PolicyError, match=r"model\.norm\.weight of shape \(31,\), and .* it is \(32,\)"):
        load_empty(str(folder), torch.float32)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_files_that_cannot_be_read_are_named(in_files: Path, damage: str) -> None:
    file = sorted(in_files.glob("model-*.safetensors"))[1]
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(PolicyError, match=r"policy\.model: the model of .* does not load"):
        load_empty(str(in_files), torch.float32)
