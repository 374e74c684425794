"""The learner's files: DeepSpeed checkpoints from which training continues exactly, and Hugging Face exports.

Writes inside the given folder only. The run directory makes a folder appear all at once, by renaming it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from learners.resharding import load_from_other_ranks, model_file

_TAG = "deepspeed"
_REFERENCE, _MODEL = "reference", "model"  # what names of weights' files begin with
FILE_BYTES = 1 << 30  # of one file of an export; as much is held in memory at once


def save(
    engine: Any,
    folder: Path,
    rank: int,
    counts: Mapping[str, int],
    reference: Iterable[tuple[str, Tensor]] | None,
    frozen: float,
) -> None:
    """Writes trained weights, optimiser, step counts, random states and the reference policy (rank 0) to `folder`.

    Frozen weights are left out: they are those that the policy was loaded with. `frozen` is their `size_of_frozen`.
    `counts`: numbers of the caller by name, which `load` returns. All ranks read `reference` to its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random_state: dict[str, Tensor] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random_state["cuda"] = torch.cuda.get_rng_state()
    torch.save(random_state, _random_file(folder, rank))
    if reference is not None:
        _write_from_rank_0(reference, folder, rank, _REFERENCE)
    # DeepSpeed comes last: it ends with a barrier, after which every rank's part is on disk.
    client_state = {**counts, "frozen": frozen}
    hook = engine.module.register_state_dict_post_hook(_leave_out_frozen)
    try:
        engine.save_checkpoint(str(folder), tag=_TAG, client_state=client_state, exclude_frozen_parameters=True)
    finally:
        hook.remove()


def load(
    engine: Any, folder: Path, rank: int, world_size: int, frozen: float
) -> tuple[Mapping[str, Any], Iterator[tuple[str, Tensor]] | None]:
    """Restores the state that `save` wrote, whatever the number of ranks that called it. Returns what holds its counts
    and, if there was a reference policy, its weights, read one by one, in the precision in which they were held.

    Raises FileNotFoundError if `folder` holds no checkpoint, and ValueError if it belongs to another policy.
    """
    ranks = len(list(folder.glob(_random_file(folder, "*").name)))
    if not ranks:
        raise FileNotFoundError(f"{folder} holds no checkpoint of the learner: resume from another one")
    if ranks == world_size or engine.zero_optimization_stage() == 0:
        loaded, client_state = engine.load_checkpoint(str(folder), tag=_TAG, custom_load_fn=_load_trained)
        if loaded is None:
            raise FileNotFoundError(f"{folder} holds no DeepSpeed checkpoint: resume from another one")
    else:
        if engine.zero_optimization_stage() < 3:
            file = model_file(folder / _TAG, is_stage_3=False)
            _load_trained(torch.load(file, map_location="cpu", mmap=True, weights_only=False)["module"], engine.module)
        client_state = load_from_other_ranks(engine, folder / _TAG)
    if not math.isclose(client_state.get("frozen", frozen), frozen, rel_tol=1e-9):
        raise ValueError(f"{folder} is of adapters to another policy: give the one that the run began with")
    random_state = torch.load(_random_file(folder, rank % ranks), weights_only=True)
    torch.set_rng_state(random_state["cpu"])
    if "cuda" in random_state and torch.cuda.is_available():
        torch.cuda.set_rng_state(random_state["cuda"])
    reference = sorted(folder.glob(f"{_REFERENCE}*.safetensors"))
    return client_state, _read_weights(reference) if reference else None


def _read_weights(files: Iterable[Path]) -> Iterator[tuple[str, Tensor]]:
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                yield name, file.get_tensor(name)


def _leave_out_frozen(module: nn.Module, state: dict[str, Tensor], prefix: str, _: Any) -> None:
    """Removes frozen weights under all their names. DeepSpeed removes one name of each, and tied weights have two."""
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            state.pop(prefix + name, None)


def _load_trained(src: dict[str, Tensor], dst: nn.Module) -> None:
    """Loads trained weights into the module, which may also have frozen ones."""
    missing, unexpected = dst.load_state_dict(src, strict=False)
    trained = {name for name, parameter in dst.named_parameters() if parameter.requires_grad}
    if different := sorted(trained & set(missing)) + sorted(unexpected):
        raise ValueError(f"the checkpoint is of a policy with other weights: {different[0]}")


def size_of_frozen(module: nn.Module, gather: Callable[[list[Tensor]], AbstractContextManager[Any]]) -> float:
    """The sum of the magnitudes of the frozen weights, which differs between policies. Within `gather(weights)` they
    are whole; all ranks must call it."""
    total = 0.0
    for parameter in module.parameters():
        if not parameter.requires_grad:
            with gather([parameter]):
                total += float(parameter.detach().abs().sum(dtype=torch.float64))
    return total


def export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    weights: Iterable[tuple[str, Tensor]],
    folder: Path,
    rank: int,
) -> None:
    """Writes a Hugging Face folder from rank 0. The other ranks only take part in gathering `weights`. No more weights
    are held at once than one file has."""
    _write_from_rank_0(weights, folder, rank, _MODEL)
    if rank > 0:
        return
    model.config.dtype = torch.float32  # of the written weights, whatever they were loaded in
    model.config.save_pretrained(folder)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_from_rank_0(weights: Iterable[tuple[str, Tensor]], folder: Path, rank: int, stem: str) -> None:
    """Rank 0 writes; the others take part in gathering."""
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        write_weights(weights, folder, stem)
    else:
        for _ in weights:
            pass


def write_weights(weights: Iterable[tuple[str, Tensor]], folder: Path, stem: str = _MODEL) -> None:
    """Writes safetensors files of about `FILE_BYTES` under Hugging Face's names, and their index if there are several.
    A file is written as soon as it is full. `stem`: what the files' names begin with."""
    held: dict[str, Tensor] = {}
    files: list[Path] = []
    places: dict[str, int] = {}

    def write() -> None:
        files.append(folder / f"{stem}-{len(files)}.partial")
        save_file(held, files[-1], metadata={"format": "pt"})
        held.clear()

    size = total = 0
    for name, weight in weights:
        if held and size + weight.nbytes > FILE_BYTES:
            write()
            size = 0
        held[name], places[name] = weight.cpu().contiguous(), len(files)
        size, total = size + weight.nbytes, total + weight.nbytes
    write()
    names = [f"{stem}.safetensors"]
    if len(files) > 1:
        names = [f"{stem}-{index + 1:05d}-of-{len(files):05d}.safetensors" for index in range(len(files))]
        index = {"metadata": {"total_size": total}, "weight_map": {name: names[at] for name, at in places.items()}}
        (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=2))
    for file, name in zip(files, names, strict=True):
        file.replace(folder / name)


def _random_file(folder: Path, rank: int | str) -> Path:
    return folder / f"random-{rank}.pt"
