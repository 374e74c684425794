"""One rank of a learner under ZeRO-3, which loads its shards alone, and then the whole policy.

Run by test_sharding.py: python shard_rank.py RANK WORLD_SIZE PORT POLICY_FOLDER OUTPUT_FOLDER SAMPLES.json MODE ...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from configs.schema import ContrastiveConfig, LearnerConfig, LoraConfig
from learners.engine import LearnerEngine
from learners.policy import load_policy
from learners.records import Sample

MODES: dict[str, dict[str, Any]] = {
    "all weights": {},
    "adapters": {"lora": LoraConfig(rank=4, alpha=8.0)},
    "bfloat16": {"autocast": True},
    "off-loaded": {"offload_optimizer": "cpu", "offload_parameters": "cpu", "offload_reference": True},
}


def main(rank: int, world_size: int, port: int, folder: str, output: Path, samples: list[Sample], mode: str) -> None:
    settings = {"autocast": False, "threads": 1, "micro_batch_tokens": 64, "timeout": 60.0, **MODES[mode]}
    config = LearnerConfig(zero_stage=3, ranks=world_size, **settings)
    for loading in ("shards", "whole"):
        precision: Any = "auto" if config.lora.rank else torch.float32
        policy: Any = folder if loading == "shards" else load_policy(folder, precision)
        engine = LearnerEngine(
            config, policy, max_length=128, rank=rank, world_size=world_size, master_port=port, seed=1
        )
        before = dict(engine.named_weights())
        held = sum(parameter.ds_tensor.ds_numel for parameter in engine.model.parameters())
        whole = sum(parameter.ds_numel for parameter in engine.model.parameters())
        engine.set_reference()
        metrics = [engine.train_cross_entropy(samples, 1e-3) for _ in range(2)]
        metrics.append(engine.train_grpo(samples, 1e-3, ContrastiveConfig(kl=0.1)))
        checkpoint = output / f"{mode}-{loading}"
        engine.save(checkpoint)
        engine.load(checkpoint)
        metrics.append(engine.train_grpo(samples, 1e-3, ContrastiveConfig(kl=0.1)))
        after = dict(engine.named_weights())
        engine.close()
        if rank == 0:
            save_file(
                {
                    f"{when} {name}": weight
                    for when, weights in (("before", before), ("after", after))
                    for name, weight in weights.items()
                },
                output / f"{mode}-{loading}.safetensors",
            )
            exact = [{key: row[key] for key in ("loss", "gradient_norm", "kl") if key in row} for row in metrics]
            (output / f"{mode}-{loading}.json").write_text(json.dumps({"metrics": exact, "share": held / whole}))


if __name__ == "__main__":
    loaded = [Sample(**fields) for fields in json.loads(Path(sys.argv[6]).read_text())]
    as_samples = [Sample(tuple(s.prompt_ids), tuple(s.response_ids), s.advantage, tuple(s.logprobs)) for s in loaded]
    for each in sys.argv[7:]:
        main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]), as_samples, each)
