"""What DeepSpeed forces us to do, and what we rely on in it (docs/upgrading.md)."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from learners.deepspeed_config import import_deepspeed, join_process_group

Still = Callable[[object], None]
Make = Callable[..., Any]


class Tied(nn.Module):
    """Frozen weights with two names, and trained ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.trained = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.first.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.trained(self.second(self.first(x)))


@pytest.fixture(scope="module")
def deepspeed() -> ModuleType:
    """DeepSpeed in a process that is the only rank."""
    module: ModuleType = import_deepspeed()
    join_process_group(0, 1, "127.0.0.1", 0, 60.0)
    return module


@pytest.fixture
def make(deepspeed: ModuleType) -> Iterator[Make]:
    """Makes an engine of a ZeRO stage, with settings beside it."""
    engines: list[Any] = []

    def engine(stage: int, model: nn.Module | None = None, clip: float = 0.0, **zero: Any) -> Any:
        torch.manual_seed(0)
        model = model or nn.Linear(4, 4)
        optimiser = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.1)
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": clip,
            "zero_optimization": {"stage": stage, **zero},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        }
        made, *_ = deepspeed.initialize(model=model, optimizer=optimiser, config=config, dist_init_required=False)
        engines.append(made)
        return made

    yield engine
    for one in engines:
        one.destroy()


def step(engine: Any) -> None:
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()


def test_shared_memory_reduction(deepspeed: ModuleType, monkeypatch: pytest.MonkeyPatch, still: Still) -> None:
    backend = importlib.import_module("deepspeed.comm.torch")

    class Builder:
        NAME = "deepspeed_shm_comm"

        def load(self) -> str:
            return "compiled"

        def absolute_name(self) -> str:
            return self.NAME

    accelerator = deepspeed.accelerator.get_accelerator()
    monkeypatch.setattr(type(accelerator), "create_op_builder", lambda *_: Builder())
    monkeypatch.setattr(deepspeed.ops, "__compatible_ops__", {Builder.NAME: True})
    still(backend.build_shm_op() == "compiled" and "build_shm_op()" in inspect.getsource(backend.TorchBackend))
    monkeypatch.setattr(deepspeed.ops, "__compatible_ops__", {Builder.NAME: False})
    still(backend.build_shm_op() is None)


def test_choice_of_the_accelerator(deepspeed: ModuleType, monkeypatch: pytest.MonkeyPatch, still: Still) -> None:
    place = sys.modules[deepspeed.accelerator.get_accelerator.__module__]
    monkeypatch.setattr(place, "ds_accelerator", None)
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))  # an installed package, without a device
    try:
        chosen = place.get_accelerator()._name
    except Exception as error:  # noqa: BLE001 - whatever a device raises that is not there
        chosen = repr(error)
    still(chosen != "cpu")


def test_launchers_variables(make: Make, monkeypatch: pytest.MonkeyPatch, still: Still) -> None:
    monkeypatch.delenv("LOCAL_RANK")
    monkeypatch.delenv("OMPI_COMM_WORLD_LOCAL_RANK", raising=False)
    try:
        make(0)
    except (AssertionError, KeyError):
        return
    still(False)


def test_number_of_ranks(make: Make, tmp_path: Path, still: Still) -> None:
    engine = make(1)
    step(engine)
    engine.save_checkpoint(str(tmp_path), tag="saved")
    file = tmp_path / "saved" / "mp_rank_00_model_states.pt"
    still(file.is_file())
    saved = torch.load(file, weights_only=False)
    torch.save({**saved, "dp_world_size": 2}, file)
    try:
        engine.load_checkpoint(str(tmp_path), tag="saved")
    except Exception as error:  # noqa: BLE001 - its type is DeepSpeed's own
        still("world size" in str(error))
        return
    still(False)


def test_layout_of_stages_1_and_2(make: Make, tmp_path: Path, still: Still) -> None:
    engine = make(1)
    step(engine)
    zero = engine.optimizer
    still(all(hasattr(zero, name) for name in ("bit16_groups", "single_partition_of_fp32_groups", "optimizer")))
    (parameter,) = (one for one in zero.bit16_groups[0] if one.dim() == 2)
    mapping = parameter._hp_mapping
    places = (mapping.lp_fragment_address, mapping.hp_fragment_address)
    still(all(isinstance(place.start, int) and isinstance(place.numel, int) for place in places))
    still(engine.param_names[parameter] == "weight")
    engine.save_checkpoint(str(tmp_path), tag="saved")
    file = tmp_path / "saved" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    still(file.is_file())
    state = torch.load(file, weights_only=False)["optimizer_state_dict"]
    read = {"base_optimizer_state", "param_slice_mappings", "single_partition_of_fp32_groups"}
    still(read <= state.keys() and "exp_avg" in state["base_optimizer_state"]["state"][0])
    model = torch.load(tmp_path / "saved" / "mp_rank_00_model_states.pt", weights_only=False)
    still({"param_shapes", "dp_world_size", "module", "global_steps", "skipped_steps"} <= model.keys())


def test_layout_of_stage_3(make: Make, tmp_path: Path, still: Still) -> None:
    engine = make(3)
    step(engine)
    zero = engine.optimizer
    names = ("fp16_groups", "fp32_partitioned_groups_flat", "grad_position", "get_param_id", "optimizer")
    still(all(hasattr(zero, name) for name in names))
    parameter = zero.fp16_groups[0][0]
    still(all(hasattr(parameter, name) for name in ("ds_id", "ds_shape", "ds_numel")))
    index, offset, size = zero.grad_position[zero.get_param_id(parameter)]
    still((index, offset, size) == (0, 0, parameter.ds_numel))
    engine.save_checkpoint(str(tmp_path), tag="saved")
    file = tmp_path / "saved" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    still(file.is_file() and (tmp_path / "saved" / "zero_pp_rank_0_mp_rank_00_model_states.pt").is_file())
    state = torch.load(file, weights_only=False)["optimizer_state_dict"]
    still({"fp32_flat_groups", "optimizer_state_dict"} <= state.keys())


def test_shards_of_single_weights(deepspeed: ModuleType, still: Still) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    holder = nn.Module()
    holder.weight = nn.Parameter(torch.arange(8.0))
    init = deepspeed.zero.Init(module=holder, config_dict_or_path=config, param_swapper=None)
    still(hasattr(init, "param_swapper") and holder.weight.ds_shape == torch.Size([8]))
    with deepspeed.zero.GatheredParameters([holder.weight]):
        still(torch.equal(holder.weight.detach().cpu(), torch.arange(8.0)))


def test_twins_of_frozen_weights(make: Make, still: Still) -> None:
    engine = make(1, Tied())
    state = engine.module_state_dict(exclude_frozen_parameters=True)
    assert "first.weight" not in state
    still("second.weight" in state)


def test_norm_without_sharding(make: Make, still: Still) -> None:
    engine = make(0, clip=1.0)
    step(engine)
    still(engine.get_global_grad_norm() is None)


def test_moments_on_disk(make: Make, tmp_path: Path, still: Still) -> None:
    engine = make(1, offload_optimizer={"device": "nvme", "nvme_path": str(tmp_path)})
    step(engine)
    still(not [file for file in tmp_path.rglob("*") if file.is_file()])
    assert os.path.isdir(tmp_path)


def test_exchange_of_heads(make: Make, still: Still) -> None:
    make(0)  # starts DeepSpeed's communication
    module = importlib.import_module("deepspeed.runtime.sequence_parallel.ulysses_sp")
    seen: dict[str, Any] = {}

    def attention(_module: nn.Module, query: torch.Tensor, *tensors: torch.Tensor, **others: Any) -> tuple[Any, None]:
        seen.update(others, mask=tensors[-1])
        return query.transpose(1, 2), None

    exchange = module.UlyssesSPAttentionHF(
        attn=attention,
        batch_size=1,
        attn_head_count=4,
        attn_head_size=8,
        kv_head_count=2,
        num_hidden_layers=1,
        process_group=torch.distributed.new_group([0]),
        seq_length_is_variable=True,
    )
    query, (key, value) = torch.randn(1, 4, 6, 8), torch.randn(2, 1, 2, 6, 8)
    mask, positions, layout = torch.ones(1, 1, 6, 6, dtype=torch.bool), torch.arange(6)[None], object()
    output, _ = exchange(nn.Identity(), query, key, value, mask, position_ids=positions, layout=layout)
    still(seen.get("mask") is mask and seen.get("layout") is layout)
    still(torch.equal(output, query.transpose(1, 2).reshape(1, 6, 32)))
