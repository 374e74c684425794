"""ZeRO-3's shards of a policy, filled weight by weight: no process ever holds the whole policy.

A model is made without weights. Each weight is then read, given to all ranks, and cut into their shards before the next
one is read. Never trains, and decides nothing about precision: the caller says in which each weight is held.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.utils import GENERATION_CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME
from transformers.utils.hub import cached_file, get_checkpoint_shard_files

from configs.schema import LearnerConfig
from learners.deepspeed_config import deepspeed_config
from learners.tokenizing import CANNOT_LOAD, PolicyError, does_not_load

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sharder:
    """Cuts weights into ZeRO-3's shards, which lie where `config` says. `deepspeed`: the module."""

    deepspeed: Any
    config: LearnerConfig

    def fill(
        self, model: nn.Module, weights: Iterable[tuple[str, Tensor]], dtype: Callable[[Tensor], torch.dtype]
    ) -> None:
        """Gives `model`, whose weights are on the meta device, `weights` by its own names, tied ones once; each in its
        `dtype`, and as a shard. Rank 0's values count; all ranks must give all names, in the same order.

        Raises ValueError if a weight is missing.
        """
        settings, owners = self.settings(model), _owners(model)
        swapper: Any = None  # of shards on a disk: one for all
        for name, weight in weights:
            holder = nn.Module()
            holder.weight = shard = nn.Parameter(weight.to(dtype(weight)))
            init = self.deepspeed.zero.Init(module=holder, config_dict_or_path=settings, param_swapper=swapper)
            swapper = init.param_swapper
            for module, attribute in owners.pop(name):
                setattr(module, attribute, shard)
        if owners:
            raise ValueError(f"{len(owners)} weights are missing ({next(iter(owners))}, ...)")

    def for_reference(self) -> Sharder:
        """One whose shards lie where those of the reference policy shall."""
        where = "cpu" if self.config.offload_reference else "none"
        return Sharder(self.deepspeed, replace(self.config, offload_optimizer="none", offload_parameters=where))

    def settings(self, model: nn.Module) -> dict[str, Any]:
        """DeepSpeed's configuration for a model."""
        sizes = [shape_of(parameter).numel() for parameter in model.parameters()]
        return deepspeed_config(self.config, sum(sizes), max(sizes))

    def gather(self, parameters: Sequence[Tensor]) -> AbstractContextManager[Any]:
        """Within this context the values of `parameters` are whole on every rank. All ranks must enter it."""
        gathered: AbstractContextManager[Any] = self.deepspeed.zero.GatheredParameters(parameters)
        return gathered


def whole_already(_parameters: Sequence[Tensor]) -> AbstractContextManager[Any]:
    """`Sharder.gather` for a policy that no rank holds shards of."""
    return nullcontext()


def is_shard(parameter: Tensor) -> bool:
    """Whether this rank holds its part of a weight alone."""
    return hasattr(parameter, "ds_id")


def shape_of(parameter: Tensor) -> torch.Size:
    """The shape of a whole weight, also if this rank holds a shard of it."""
    shape: torch.Size = getattr(parameter, "ds_shape", parameter.shape)
    return shape


def _owners(model: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """By the first name of each weight, the modules that have it, and as what: tied weights have several."""
    first: dict[nn.Parameter, str] = {}
    owners: dict[str, list[tuple[nn.Module, str]]] = {}
    for prefix, module in model.named_modules():
        for attribute, parameter in module.named_parameters(recurse=False):
            name = first.setdefault(parameter, f"{prefix}.{attribute}" if prefix else attribute)
            owners.setdefault(name, []).append((module, attribute))
    return owners


def empty_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A model like `model`, without weights."""
    with no_init_weights(), init_empty_weights(include_buffers=False):
        copy = type(model)(model.config)
    copy.tie_weights()
    return copy


@dataclass(frozen=True)
class WeightFiles:
    """The safetensors file and the shape of each weight of a policy, by the name in it."""

    model: str
    places: Mapping[str, tuple[str, tuple[int, ...]]]

    def read(self, model: nn.Module, *, is_reader: bool) -> Iterator[tuple[str, Tensor]]:
        """Names and values of the model's weights, tied ones once, in the order of the model, one at a time.

        Unless `is_reader`, values are whatever memory holds. Raises PolicyError for a file that cannot be read.
        """
        wanted = list(model.named_parameters())  # before the first is replaced by its shard
        with ExitStack() as stack:
            opened: dict[str, Any] = {}
            for name, parameter in wanted:
                file, shape = self.places[name]
                if not is_reader:
                    yield name, torch.empty(shape, dtype=parameter.dtype)
                    continue
                try:
                    if file not in opened:
                        opened[file] = stack.enter_context(safe_open(file, framework="pt"))
                    value = opened[file].get_tensor(name)
                except CANNOT_LOAD as error:
                    raise does_not_load("model", self.model, error) from error
                yield name, value


def load_empty(model: str, dtype: torch.dtype | str) -> tuple[PreTrainedModel, WeightFiles] | None:
    """A policy without weights, from a folder or a Hugging Face id, and the files that hold them. `dtype` as in
    `load_policy`.

    None if the files are of another format, or lack a name: such a policy can only be loaded whole, by transformers,
    which converts weights, or says what is missing. Raises PolicyError if it does not load.
    """
    try:
        empty = _make_empty(model, dtype)
        places = _find_weights(model)
    except CANNOT_LOAD as error:
        raise does_not_load("model", model, error) from error
    lacking = [name for name, _ in empty.named_parameters() if name not in places]
    if lacking:
        _log.warning("%s: every rank loads the whole policy, since no safetensors file has %s", model, lacking[0])
        return None
    for name, parameter in empty.named_parameters():
        if (found := places[name][1]) != tuple(parameter.shape):
            raise PolicyError(
                f"policy.model: {model} has a weight {name} of shape {found}, and by its configuration it is "
                f"{tuple(parameter.shape)}: give a complete checkpoint"
            )
    return empty, WeightFiles(model, places)


def _make_empty(model: str, dtype: torch.dtype | str) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(model)
    loader: Any = AutoModelForCausalLM
    with no_init_weights(), init_empty_weights(include_buffers=False):
        empty: PreTrainedModel = loader.from_config(config, dtype=config.dtype if dtype == "auto" else dtype)
    empty.tie_weights()
    if _find(model, GENERATION_CONFIG_NAME) is not None:
        empty.generation_config = GenerationConfig.from_pretrained(model)
    return empty.eval()


def _find_weights(model: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The file and shape of each weight in a policy's safetensors files, which are fetched first if it is an id."""
    paths: Sequence[str] = []
    if (index := _find(model, SAFE_WEIGHTS_INDEX_NAME)) is not None:
        paths = get_checkpoint_shard_files(model, index)[0]
    elif (single := _find(model, SAFE_WEIGHTS_NAME)) is not None:
        paths = [single]
    places: dict[str, tuple[str, tuple[int, ...]]] = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for name in list(file.keys()):
                places[name] = str(Path(path)), tuple(file.get_slice(name).get_shape())
    return places


def _find(model: str, name: str) -> str | None:
    path: str | None = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
    return path
