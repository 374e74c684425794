"""LoRA through peft: attaching adapters, and reading weights as the plain Hugging Face model that they amount to.

Nothing outside this file knows adapter names: exports only ever see merged weights, and rollout engines these, or an
adapter as peft saves it.
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

_ADAPTER = "default"
_GATHER_ELEMENTS = 1 << 26  # weights gathered at once: 256 MiB in float32


class _Adapted(Protocol):
    """What this file needs of peft's LoRA layers."""

    lora_A: Mapping[str, nn.Linear]
    lora_B: Mapping[str, nn.Linear]

    def get_base_layer(self) -> nn.Linear: ...

    def get_delta_weight(self, adapter: str) -> Tensor: ...


def attach_lora(model: PreTrainedModel, config: LoraConfig, autocast: bool) -> PeftModel:
    """Puts float32 adapters of `config.rank` on every linear layer but the output layer, in place, and freezes the
    rest. `autocast`: it casts for the adapters, which then need not bring their inputs to their own precision."""
    settings = PeftLoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]  # it only scales, so any number does
        lora_dropout=config.dropout,
        target_modules="all-linear",
    )
    adapters = get_peft_model(model, settings)
    for module in adapters.modules():
        if isinstance(module, LoraLayer):
            module.cast_input_dtype_enabled = not autocast
    return adapters


def without_adapters(adapters: PeftModel | None) -> contextlib.AbstractContextManager[object]:
    """The base model, for as long as the context lasts: the reference policy of a LoRA run."""
    return adapters.disable_adapter() if adapters is not None else contextlib.nullcontext()


def adapter_settings(adapters: PeftModel) -> str:
    """What peft writes beside an adapter, as JSON: rank, scale, and the layers that it is on."""
    known: Any = adapters.peft_config[_ADAPTER]
    names = sorted(known.target_modules) if known.target_modules else []
    settings = {"peft_type": "LORA", "r": known.r, "lora_alpha": known.lora_alpha, "target_modules": names}
    return json.dumps({**settings, "bias": "none", "task_type": "CAUSAL_LM"})


def adapter_weights(model: nn.Module, gather: Any) -> Iterator[tuple[str, Tensor]]:
    """Names, as peft saves them, and float32 factors of all adapters; `gather` as for `merged_weights`."""
    for prefix, module in model.named_modules():
        if isinstance(module, LoraLayer):
            layer = cast(_Adapted, module)
            factors = {"lora_A": layer.lora_A[_ADAPTER].weight, "lora_B": layer.lora_B[_ADAPTER].weight}
            with gather(list(factors.values())), torch.no_grad():
                whole = {name: factor.detach().to(torch.float32, copy=True) for name, factor in factors.items()}
            for name, factor in whole.items():
                yield f"base_model.model.{prefix}.{name}.weight", factor


def merged_weights(model: nn.Module, gather: Any) -> Iterator[tuple[str, Tensor]]:
    """Names and float32 weights of `model` as Hugging Face saves it, LoRA merged, tied weights once.

    `gather(parameters)` is a context in which their values are whole (ZeRO-3); what is yielded stays valid outside it.
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
    """The base weight first, then the adapter's two factors."""
    return [layer.get_base_layer().weight, layer.lora_A[_ADAPTER].weight, layer.lora_B[_ADAPTER].weight]


def _plain(*parts: str) -> str:
    return ".".join(parts).replace(".base_layer", "")
