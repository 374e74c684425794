"""Loads a checkpoint that another number of ranks wrote, for ZeRO stages 1 to 3.

DeepSpeed cuts float32 weights and Adam's moments among its ranks, and loads them with as many ranks alone. Here every
rank copies its own part from all files, parameter by parameter. Values are moved and never computed, so they stay as
they were saved. The layouts are those of DeepSpeed 0.19.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from learners.disk_adam import MOMENTS

_WEIGHTS = "weights"
_KEPT = ("global_steps", "global_samples", "skipped_steps")  # DeepSpeed's own counts, by their names in its files


@dataclass(frozen=True)
class _Piece:
    """A range of a parameter's values on one rank, from `start` on: flat tensors by kind (weights and moments), and
    the optimiser's step count."""

    name: str
    start: int
    values: Mapping[str, Tensor]
    step: Tensor | None


@dataclass
class _Part:
    """The range of a parameter that this rank holds: `values` are written to. `missing`: how many are not yet."""

    start: int
    values: Mapping[str, Tensor]
    missing: int


@dataclass
class _Own:
    """What this rank holds. `flat`: DeepSpeed's float32 tensors, with the moments that take their place in the
    optimiser. `steps`: its step count of each."""

    parts: dict[str, tuple[int, _Part]] = field(default_factory=dict)
    flat: list[tuple[Tensor, dict[str, Tensor]]] = field(default_factory=list)
    steps: dict[int, Tensor] = field(default_factory=dict)

    def add(self, name: str, index: int, start: int, offset: int, size: int) -> None:
        """Notes that `size` values of a parameter from `start` on stand in a flat tensor from `offset` on."""
        weights, moments = self.flat[index]
        every = {_WEIGHTS: weights.data, **moments}
        values = {kind: tensor.narrow(0, offset, size) for kind, tensor in every.items()}
        self.parts[name] = index, _Part(start, values, size)

    def take(self, piece: _Piece) -> None:
        """Copies what a piece has of this rank's values."""
        if piece.name not in self.parts:
            return
        index, part = self.parts[piece.name]
        size = len(piece.values[_WEIGHTS])
        first = max(part.start, piece.start)
        count = min(part.start + len(part.values[_WEIGHTS]), piece.start + size) - first
        if count <= 0:
            return
        for kind, values in piece.values.items():
            part.values[kind].narrow(0, first - part.start, count).copy_(values.narrow(0, first - piece.start, count))
        part.missing -= count
        if piece.step is not None:
            self.steps[index] = piece.step


def load_from_other_ranks(engine: Any, folder: Path) -> dict[str, Any]:
    """Puts DeepSpeed's engine to the checkpoint in its `folder`, whatever number of ranks wrote it; returns what was
    saved beside the weights. `engine.module` must have its weights already, except at stage 3.

    Raises FileNotFoundError if a rank's file is missing, and ValueError if the checkpoint is of other weights.
    """
    zero, is_stage_3 = engine.optimizer, engine.zero_optimization_stage() == 3
    saved = _read(model_file(folder, is_stage_3=is_stage_3))
    shapes = {name: tuple(shape) for group in saved["param_shapes"] for name, shape in group.items()}
    own = {
        name: tuple(getattr(parameter, "ds_shape", parameter.shape))
        for name, parameter in engine.module.named_parameters()
        if parameter.requires_grad
    }
    if different := sorted(name for name in own.keys() | shapes.keys() if own.get(name) != shapes.get(name)):
        raise ValueError(f"the checkpoint is of a policy with other weights: {different[0]}")
    if hasattr(zero, "checkpoint_event_prologue"):
        zero.checkpoint_event_prologue()
    held = _own_of_stage_3(engine) if is_stage_3 else _own_of_stages_1_and_2(engine)
    files = [folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(saved["dp_world_size"])]
    states = [_read(file)["optimizer_state_dict"] for file in files]
    for piece in _pieces_of_stage_3(states, saved["param_shapes"]) if is_stage_3 else _pieces_of_stages_1_and_2(states):
        held.take(piece)
    if lacking := [name for name, (_, part) in held.parts.items() if part.missing]:
        raise ValueError(f"{folder}: the files of its {len(files)} ranks do not hold all of {lacking[0]}")
    inner = states[0]["optimizer_state_dict" if is_stage_3 else "base_optimizer_state"]
    _put(zero, held, inner["param_groups"])
    if hasattr(zero, "checkpoint_event_epilogue"):
        zero.checkpoint_event_epilogue()
    for name in _KEPT:
        if name in saved:
            setattr(engine, name, saved[name])
    return saved


def model_file(folder: Path, *, is_stage_3: bool) -> Path:
    """DeepSpeed's file of the module's weights and of what is saved beside them."""
    return folder / ("zero_pp_rank_0_mp_rank_00_model_states.pt" if is_stage_3 else "mp_rank_00_model_states.pt")


def _read(file: Path) -> dict[str, Any]:
    """A file of DeepSpeed's. Tensors are mapped, and read when they are copied: a rank needs a share of them."""
    loaded: dict[str, Any] = torch.load(file, map_location="cpu", mmap=True, weights_only=False)
    return loaded


def _own_of_stages_1_and_2(engine: Any) -> _Own:
    zero, own = engine.optimizer, _Own()
    for index, group in enumerate(zero.bit16_groups):
        own.flat.append(_with_moments(zero.single_partition_of_fp32_groups[index]))
        for parameter in group:
            mapping = parameter._hp_mapping
            if mapping is not None:
                place, of = mapping.lp_fragment_address, mapping.hp_fragment_address
                own.add(engine.param_names[parameter], index, place.start, of.start, of.numel)
    return own


def _own_of_stage_3(engine: Any) -> _Own:
    zero, own, rank = engine.optimizer, _Own(), engine.global_rank
    own.flat.extend(map(_with_moments, zero.fp32_partitioned_groups_flat))
    for group in zero.fp16_groups:
        for parameter in group:
            index, offset, size = zero.grad_position[zero.get_param_id(parameter)]
            count = min(size, parameter.ds_numel - size * rank)  # the last rank's is filled up
            if count > 0:
                own.add(engine.param_names[parameter], index, size * rank, offset, count)
    return own


def _with_moments(flat: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return flat, {moment: torch.zeros_like(flat.data) for moment in MOMENTS}


def _pieces_of_stages_1_and_2(states: Sequence[Mapping[str, Any]]) -> Iterator[_Piece]:
    """The ranks hold neighbouring ranges of a group's parameters, one behind the other."""
    begun: dict[str, int] = {}
    for state in states:
        inner = state["base_optimizer_state"]["state"]
        for index, mapping in enumerate(state["param_slice_mappings"]):
            flat = {_WEIGHTS: state["single_partition_of_fp32_groups"][index], **_moments(inner, index)}
            for name, place in mapping.items():
                values = {kind: tensor.narrow(0, place.start, place.numel) for kind, tensor in flat.items()}
                start = begun.get(name, 0)
                begun[name] = start + place.numel
                yield _Piece(name, start, values, inner.get(index, {}).get("step"))


def _pieces_of_stage_3(
    states: Sequence[Mapping[str, Any]], shapes: Sequence[Mapping[str, torch.Size]]
) -> Iterator[_Piece]:
    """Each rank holds an equal range of every parameter; the last one is filled up."""
    for rank, state in enumerate(states):
        inner = state["optimizer_state_dict"]["state"]
        for index, group in enumerate(shapes):
            flat = {_WEIGHTS: state["fp32_flat_groups"][index], **_moments(inner, index)}
            offset = 0
            for name, shape in group.items():
                size = -(-shape.numel() // len(states))
                count = max(min(size, shape.numel() - size * rank), 0)
                values = {kind: tensor.narrow(0, offset, count) for kind, tensor in flat.items()}
                offset += size
                yield _Piece(name, size * rank, values, inner.get(index, {}).get("step"))


def _moments(inner: Mapping[int, Mapping[str, Tensor]], index: int) -> dict[str, Tensor]:
    """The moments of a flat tensor; none before the first step."""
    return {moment: inner[index][moment] for moment in MOMENTS} if index in inner else {}


def _put(zero: Any, own: _Own, groups: Sequence[Mapping[str, Any]]) -> None:
    """Gives what was copied to the optimiser, and lets DeepSpeed load it as its own."""
    for index, (flat, moments) in enumerate(own.flat):
        if index in own.steps:
            zero.optimizer.state[flat] = {"step": own.steps[index].clone(), **moments}
    for group, saved in zip(zero.optimizer.param_groups, groups, strict=True):
        group.update({key: value for key, value in saved.items() if key != "params"})
    states: list[Any] = [None] * torch.distributed.get_world_size()
    states[torch.distributed.get_rank()] = zero.state_dict()
    zero.load_state_dict(states, load_optimizer_states=True, load_from_fp32_weights=True)
