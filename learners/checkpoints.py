"""What the learner writes to disk: DeepSpeed checkpoints that continue exactly, and Hugging Face exports.

Writes inside the given folder only. Making a folder appear all at once (rename) is the run directory's work.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TAG = "deepspeed"
_REFERENCE = "reference.safetensors"


def save(engine: Any, folder: Path, rank: int, policy_version: int, reference: PreTrainedModel | None) -> None:
    """Writes weights, optimiser, step counts, random states and the reference policy (rank 0) to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    random_state: dict[str, Tensor] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random_state["cuda"] = torch.cuda.get_rng_state()
    torch.save(random_state, _random_file(folder, rank))
    if reference is not None and rank == 0:
        weights = {name: parameter.detach().contiguous() for name, parameter in reference.named_parameters()}
        save_file(weights, folder / _REFERENCE)
    # Last: DeepSpeed ends with a barrier, after which every rank's part is there.
    engine.save_checkpoint(str(folder), tag=_TAG, client_state={"policy_version": policy_version})


def load(engine: Any, folder: Path, rank: int) -> tuple[int, dict[str, Tensor] | None]:
    """Restores what `save` wrote; returns the policy version, and the reference policy's weights (in host memory, in
    the precision they were held in) when there was one.

    Raises FileNotFoundError where `folder` holds no part for this rank.
    """
    random_file = _random_file(folder, rank)
    if not random_file.exists():
        raise FileNotFoundError(f"{folder} holds no checkpoint of learner rank {rank}: resume with as many ranks")
    loaded, client_state = engine.load_checkpoint(str(folder), tag=_TAG)
    if loaded is None:
        raise FileNotFoundError(f"{folder} holds no DeepSpeed checkpoint: resume from another one")
    random_state = torch.load(random_file, weights_only=True)
    torch.set_rng_state(random_state["cpu"])
    if "cuda" in random_state and torch.cuda.is_available():
        torch.cuda.set_rng_state(random_state["cuda"])
    reference = folder / _REFERENCE
    return client_state["policy_version"], load_file(reference) if reference.exists() else None


def export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    weights: Iterable[tuple[str, Tensor]],
    folder: Path,
    rank: int,
) -> None:
    """Writes a Hugging Face folder from rank 0; the other ranks only take part in gathering `weights`."""
    if rank > 0:
        for _ in weights:
            pass
        return
    folder.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict({name: weight.cpu() for name, weight in weights}, folder)
    model.config.dtype = torch.float32  # of what is written, whatever it was loaded in
    model.config.save_pretrained(folder)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _random_file(folder: Path, rank: int) -> Path:
    return folder / f"random-{rank}.pt"
