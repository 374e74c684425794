"""One rank of a learner, as a separate process: saves checkpoints, or loads those of other ranks.

Run by test_other_ranks.py: python reshard_rank.py RANK WORLD_SIZE PORT POLICY_FOLDER OUTPUT_FOLDER SAMPLES.json save
or ... load; a checkpoint lies in OUTPUT_FOLDER/WRITTEN_BY/MODE.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from safetensors.torch import save_file
from torch import Tensor

from configs.schema import ContrastiveConfig, LearnerConfig, LoraConfig
from learners.engine import LearnerEngine
from learners.records import Sample

MODES: dict[str, dict[str, Any]] = {
    **{f"stage-{stage}": {"zero_stage": stage} for stage in range(4)},
    **{f"lora-{stage}": {"zero_stage": stage, "lora": LoraConfig(rank=3)} for stage in (1, 3)},
    **{f"optimizer-{stage}": {"zero_stage": stage, "offload_optimizer": "cpu"} for stage in (1, 2)},
    "disk-2": {"zero_stage": 2, "offload_optimizer": "nvme"},
    "both-3": {"zero_stage": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu", "offload_reference": True},
}
MOMENTS = ("exp_avg", "exp_avg_sq")
RANKS = (1, 2, 3)
WITH_ALL = ("stage-3", "lora-1")
"""Modes in which each number of ranks loads from all numbers. In the others each loads from one other number, so that
there are more ranks, and fewer, than wrote."""


def sources_of(mode: str, ranks: int) -> tuple[int, ...]:
    """The numbers of ranks whose checkpoints so many ranks load."""
    return RANKS if mode in WITH_ALL else (ranks % len(RANKS) + 1,)


def state_of(learner: LearnerEngine) -> dict[str, Tensor]:
    """All that a checkpoint keeps, whole, as DeepSpeed itself puts it together."""
    engine = learner._optimiser.engine
    optimiser = engine.optimizer
    if learner.config.zero_stage in (1, 2):
        optimiser._hp_optimizer_states_linked = False
        optimiser._lazy_init_hp_params_optimizer_state()
    found: dict[str, Tensor] = {}
    for name, parameter in engine.module.named_parameters():
        if not parameter.requires_grad:
            continue
        if learner.config.zero_stage == 0:
            found[name], state = parameter.detach(), optimiser.state[parameter]
            found |= {f"{name} {moment}": state[moment] for moment in MOMENTS}
        else:
            found[name] = safe_get_full_fp32_param(parameter)
            found |= {f"{name} {moment}": safe_get_full_optimizer_state(parameter, moment) for moment in MOMENTS}
    inner = optimiser if learner.config.zero_stage == 0 else optimiser.optimizer
    found["steps"] = torch.stack(
        sorted({float(state["step"]): state["step"] for state in inner.state.values()}.values())
    )
    found["rates"] = torch.tensor([float(group["lr"]) for group in inner.param_groups], dtype=torch.float64)
    found["counts"] = torch.tensor([engine.global_steps, engine.skipped_steps, learner.policy_version])
    found |= {f"trained {name}": weight for name, weight in learner.named_weights()}
    found |= {f"reference {name}": weight for name, weight in learner._reference.weights() or ()}
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in found.items()}


def train(learner: LearnerEngine, samples: Sequence[Sample]) -> None:
    learner.set_reference()
    learner.train_cross_entropy(samples, 1e-3)
    learner.train_grpo(samples, 2e-3, ContrastiveConfig(kl=0.1))
    learner.policy_version = 7


def main(
    rank: int, world_size: int, port: int, policy: str, output: Path, samples: list[Sample], *, loads: bool
) -> None:
    for mode, settings in MODES.items():
        config = LearnerConfig(
            **settings,
            threads=1,
            autocast=False,
            micro_batch_tokens=64,
            timeout=60,
            nvme_path=str(output),
            ranks=world_size,
        )
        for source in sources_of(mode, world_size) if loads else (world_size,):
            learner = LearnerEngine(
                config, policy, max_length=128, rank=rank, world_size=world_size, master_port=port, seed=1
            )
            folder = output / str(source) / mode
            if loads:
                learner.load(folder)
            else:
                train(learner, samples)
                learner.save(folder)
            state = state_of(learner)
            if loads:
                loss = learner.train_grpo(samples, 1e-3, ContrastiveConfig(kl=0.1))["loss"]
                state["next loss"] = torch.tensor(loss)
            learner.close()
            if rank == 0:
                save_file(state, output / f"{mode} of {source} in {world_size}.safetensors")


if __name__ == "__main__":
    loaded = [Sample(**fields) for fields in json.loads(Path(sys.argv[6]).read_text())]
    as_samples = [Sample(tuple(s.prompt_ids), tuple(s.response_ids), s.advantage, tuple(s.logprobs)) for s in loaded]
    numbers, places = map(int, sys.argv[1:4]), (sys.argv[4], Path(sys.argv[5]))
    main(*numbers, *places, as_samples, loads=sys.argv[7] == "load")
