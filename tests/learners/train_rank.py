"""One rank of a learner, as a separate process: trains in every mode and writes the resulting weights.

Run by test_ranks.py: python train_rank.py RANK WORLD_SIZE PORT POLICY_FOLDER OUTPUT_FOLDER SAMPLES.json MODE ...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from configs.schema import ContrastiveConfig, LearnerConfig
from learners.engine import LearnerEngine
from learners.records import Sample

STAGES: dict[str, dict[str, Any]] = {f"stage-{stage}": {"zero_stage": stage} for stage in range(4)}
OFFLOADED: dict[str, dict[str, Any]] = {
    **{f"optimizer-{stage}": {"zero_stage": stage, "offload_optimizer": "cpu"} for stage in (1, 2, 3)},
    "disk-2": {"zero_stage": 2, "offload_optimizer": "nvme"},
    "both-3": {"zero_stage": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu", "offload_reference": True},
}
PAIRS: dict[str, dict[str, Any]] = {f"pairs-{stage}": {"zero_stage": stage, "sequence_parallel": 2} for stage in (1, 3)}
FOURS: dict[str, dict[str, Any]] = {"fours-1": {"zero_stage": 1, "sequence_parallel": 4}}  # more ranks than key heads
SHARED = {**PAIRS, **FOURS}
MODES = {**STAGES, **OFFLOADED, **SHARED}


def trained(engine: LearnerEngine, samples: Sequence[Sample]) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Weights after two steps of cross-entropy and one of GRPO with KL 0.1 to the start; some of their metrics."""
    engine.set_reference()
    engine.train_cross_entropy(samples, 1e-3)
    metrics = engine.train_cross_entropy(samples, 1e-3)
    metrics |= {"kl": engine.train_grpo(samples, 1e-3, ContrastiveConfig(kl=0.1))["kl"]}
    return dict(engine.named_weights()), metrics


def gradients(engine: LearnerEngine, samples: Sequence[Sample]) -> dict[str, Tensor]:
    """Clipped gradients of cross-entropy, as the optimiser of a new engine gets them. With a rate that equals epsilon,
    Adam's first step is the gradient itself."""
    before = dict(engine.named_weights())
    for group in engine._optimiser.engine.optimizer.param_groups:
        group["eps"] = 1e6
    engine.train_cross_entropy(samples, 1e6)
    return {name: before[name] - weight for name, weight in engine.named_weights()}


def main(
    rank: int, world_size: int, port: int, policy: str, output: Path, samples: list[Sample], modes: list[str]
) -> None:
    def engine(mode: str, **changes: Any) -> LearnerEngine:
        config = LearnerConfig(
            **MODES[mode],
            **changes,
            threads=1,
            compile=False,  # a GPU's layers are compared elsewhere
            micro_batch_tokens=64,
            timeout=60,
            nvme_path=str(output),
            ranks=world_size,
        )
        return LearnerEngine(config, policy, max_length=128, rank=rank, world_size=world_size, master_port=port, seed=1)

    for mode in modes:
        half = engine(mode, autocast=True)
        slopes = gradients(half, samples)
        half.close()
        if rank == 0:
            save_file(slopes, output / f"{mode}-gradients.safetensors")
        if mode in SHARED and torch.cuda.is_available():
            continue  # packed rows need FlashAttention there, which does not compute in float32
        exact = engine(mode, autocast=False)
        weights, metrics = trained(exact, samples)
        exact.close()
        if rank == 0:
            save_file(weights, output / f"{mode}.safetensors")
            (output / f"{mode}.json").write_text(json.dumps(metrics))


if __name__ == "__main__":
    loaded = [Sample(**fields) for fields in json.loads(Path(sys.argv[6]).read_text())]
    as_samples = [Sample(tuple(s.prompt_ids), tuple(s.response_ids), s.advantage, tuple(s.logprobs)) for s in loaded]
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]), as_samples, sys.argv[7:])
