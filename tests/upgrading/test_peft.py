"""What peft forces us to do, and what we rely on in it (docs/upgrading.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import nn

Still = Callable[[object], None]


def adapted() -> tuple[nn.Module, LoraLayer]:
    """A linear layer with an adapter that changes its output."""
    torch.manual_seed(0)
    model = get_peft_model(nn.Sequential(nn.Linear(4, 4)), LoraConfig(r=2, target_modules=["0"]))
    (layer,) = (module for module in model.modules() if isinstance(module, LoraLayer))
    nn.init.normal_(layer.lora_B["default"].weight)
    return model, layer


def test_whole_alphas(still: Still) -> None:
    (alpha,) = (field for field in fields(LoraConfig) if field.name == "lora_alpha")
    still(alpha.type in (int, "int"))


def test_input_casts(still: Still) -> None:
    _, layer = adapted()
    still(layer.cast_input_dtype_enabled is True)
    still(not any("cast_input" in field.name for field in fields(LoraConfig)))


def test_adapter_slots(still: Still) -> None:
    model, layer = adapted()
    x = torch.ones(1, 4)
    with torch.no_grad():
        before, plain = model(x), layer.get_base_layer()(x)
        delta = layer.get_delta_weight("default")
        still(torch.allclose(before, plain + x @ delta.T, atol=1e-6))
        copy = nn.Linear(2, 4, bias=False)
        nn.init.zeros_(copy.weight)
        layer.lora_B["default"] = copy
        still(torch.equal(model(x), plain))
