"""One rank of a learner, as a process of its own: trains at every ZeRO stage and writes what the policy became.

Run by test_engine.py: python train_rank.py RANK WORLD_SIZE PORT POLICY_FOLDER OUTPUT_FOLDER SAMPLES.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from safetensors.torch import save_file

from configs.schema import ContrastiveConfig, LearnerConfig
from learners.engine import LearnerEngine
from learners.records import Sample


def main(rank: int, world_size: int, port: int, policy: str, output: Path, samples: list[Sample]) -> None:
    for stage in range(4):
        config = LearnerConfig(zero_stage=stage, autocast=False, threads=1, micro_batch_tokens=160, timeout=60)
        engine = LearnerEngine(
            config, policy, max_length=128, rank=rank, world_size=world_size, master_port=port, seed=1
        )
        engine.set_reference()
        engine.train_cross_entropy(samples, 1e-3)
        metrics = engine.train_cross_entropy(samples, 1e-3)
        metrics |= {"kl": engine.train_grpo(samples, 1e-3, ContrastiveConfig(kl=0.1))["kl"]}
        weights = dict(engine.named_weights())
        if rank == 0:
            save_file(weights, output / f"stage-{stage}.safetensors")
            (output / f"stage-{stage}.json").write_text(json.dumps(metrics))
        engine.close()


if __name__ == "__main__":
    loaded = [Sample(**fields) for fields in json.loads(Path(sys.argv[6]).read_text())]
    as_samples = [Sample(tuple(s.prompt_ids), tuple(s.response_ids), s.advantage, tuple(s.logprobs)) for s in loaded]
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]), as_samples)
