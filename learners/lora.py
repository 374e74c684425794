"""LoRA through peft: attaches adapters, and reads the weights of the plain Hugging Face model that results from them.

Nothing outside this file knows the names of adapters. Exports get merged weights only; rollout engines get these, or
adapters as peft saves them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, cast

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from configs.schema import LoraConfig
from learners.frozen import on_device

_ADAPTER = "default"
_FACTORS = ("lora_A", "lora_B")
_GATHER_ELEMENTS = 1 << 26  # weights that are gathered at once: 256 MiB in float32


class _Adapted(Protocol):
    """The part of peft's LoRA layers that this file uses."""

    lora_A: Mapping[str, nn.Linear]
    lora_B: Mapping[str, nn.Linear]

    def get_base_layer(self) -> nn.Linear: ...

    def get_delta_weight(self, adapter: str) -> Tensor: ...


def attach_lora(model: PreTrainedModel, config: LoraConfig, autocast: bool) -> PeftModel:
    """Attaches float32 adapters of `config.rank` to every linear layer but the output layer, in place, and freezes the
    other weights. `autocast`: autocast is on, so that adapters need not cast their inputs themselves."""
    settings = PeftLoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]  # it only scales, so it need not be an integer
        target_modules="all-linear",
    )
    adapters = get_peft_model(model, settings)
    for module in adapters.modules():
        if isinstance(module, LoraLayer):
            module.cast_input_dtype_enabled = not autocast
    return adapters


class FrozenAdapters:
    """A copy of earlier adapters, whole on every rank. With the frozen weights they are an earlier policy."""

    def __init__(
        self, model: nn.Module, factors: Mapping[str, Tensor], scorer: Any, *, device: torch.device, offload: bool
    ) -> None:
        """`factors`: on the device, by the names of `adapter_weights(model)`. `scorer`: computes log-probabilities with
        `model`. `offload`: the factors are in host memory instead, except within `at_hand`."""
        self._scorer, self._device, self._offload = scorer, device, offload
        self._factors: dict[str, nn.Linear] = {}
        self._copies: list[tuple[nn.ModuleDict, nn.Module]] = []
        for prefix, module in model.named_modules():
            if isinstance(module, LoraLayer):
                for kind in _FACTORS:
                    name = _factor_name(prefix, kind)
                    linear = self._factors[name] = _frozen_linear(factors[name])
                    self._copies.append((getattr(module, kind), linear))

    @contextlib.contextmanager
    def at_hand(self) -> Iterator[Any]:
        """Within this context the scorer computes with the copies."""
        parameters = [weight for linear in self._factors.values() for weight in linear.parameters()]
        trained = [(slot, slot[_ADAPTER]) for slot, _ in self._copies]
        with on_device(parameters, self._device) if self._offload else contextlib.nullcontext():
            try:
                for slot, copy in self._copies:
                    slot[_ADAPTER] = copy
                yield self._scorer
            finally:
                for slot, module in trained:
                    slot[_ADAPTER] = module

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The factors, by the names of `adapter_weights`."""
        for name, linear in self._factors.items():
            yield name, linear.weight.detach()

    def close(self) -> None:
        """Nothing holds it but its owner."""


def _frozen_linear(weight: Tensor) -> nn.Linear:
    with torch.device("meta"):
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear


def adapter_settings(adapters: PeftModel) -> str:
    """The settings that peft writes beside adapters, as JSON: rank, scale, and the layers that have one."""
    config: Any = adapters.peft_config[_ADAPTER]
    names = sorted(config.target_modules) if config.target_modules else []
    settings = {"peft_type": "LORA", "r": config.r, "lora_alpha": config.lora_alpha, "target_modules": names}
    return json.dumps({**settings, "bias": "none", "task_type": "CAUSAL_LM"})


def adapter_weights(model: nn.Module, gather: Any) -> Iterator[tuple[str, Tensor]]:
    """The names under which peft saves factors, and the float32 factors of all adapters. `gather`: as in
    `merged_weights`."""
    for prefix, module in model.named_modules():
        if isinstance(module, LoraLayer):
            layer = cast(_Adapted, module)
            factors = {kind: getattr(layer, kind)[_ADAPTER].weight for kind in _FACTORS}
            with gather(list(factors.values())), torch.no_grad():
                whole = {name: factor.detach().to(torch.float32, copy=True) for name, factor in factors.items()}
            for name, factor in whole.items():
                yield _factor_name(prefix, name), factor


def merged_weights(model: nn.Module, gather: Any) -> Iterator[tuple[str, Tensor]]:
    """Names and float32 weights of `model` as Hugging Face saves it, LoRA merged, tied weights once.

    `gather(parameters)` is a context within which the values of `parameters` are whole (ZeRO-3). The yielded weights
    stay valid outside it.
    """
    adapted: set[int] = set()
    pending: list[tuple[str, list[Tensor], _Adapted | None]] = []
    for prefix, module in model.named_modules():
        if isinstance(module, LoraLayer):
            layer = cast(_Adapted, module)
            pending.append((_plain(prefix, "weight"), _parameters_of(layer), layer))
            adapted.add(id(layer.get_base_layer().weight))
    for name, parameter in model.named_parameters():
        if "lora_" not in name and id(parameter) not in adapted:
            pending.append((_plain(name), [parameter], None))
    bucket: list[tuple[str, list[Tensor], _Adapted | None]] = []
    size = 0
    for entry in pending:
        bucket.append(entry)
        size += sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in entry[1])
        if size >= _GATHER_ELEMENTS:
            yield from _read(bucket, gather)
            bucket, size = [], 0
    yield from _read(bucket, gather)


def _read(bucket: list[tuple[str, list[Tensor], _Adapted | None]], gather: Any) -> list[tuple[str, Tensor]]:
    with gather([parameter for _, parameters, _ in bucket for parameter in parameters]), torch.no_grad():
        return [(name, _value(parameters[0], layer)) for name, parameters, layer in bucket]


def _value(parameter: Tensor, layer: _Adapted | None) -> Tensor:
    weight = parameter.detach().to(torch.float32, copy=True)
    return weight if layer is None else weight.add_(layer.get_delta_weight(_ADAPTER).to(torch.float32))


def _parameters_of(layer: _Adapted) -> list[Tensor]:
    """The base weight, then the adapter's two factors."""
    return [layer.get_base_layer().weight, layer.lora_A[_ADAPTER].weight, layer.lora_B[_ADAPTER].weight]


def _factor_name(prefix: str, kind: str) -> str:
    """The name under which peft saves a factor."""
    return f"base_model.model.{prefix}.{kind}.weight"


def _plain(*parts: str) -> str:
    return ".".join(parts).replace(".base_layer", "")
