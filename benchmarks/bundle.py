"""How large the learner is in a bundle: adapters, moments and reference of a model of a real model's shapes.

    python -m benchmarks.bundle --shape random-0.5b --rank 8

Trains adapters of a randomly initialised model for some steps, saves them as a run does, packs the checkpoint as a
bundle does, and unpacks it again. On a CPU it takes minutes, and memory for the model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from benchmarks.random_model import SHAPES, write_random_model
from benchmarks.tables import print_table
from configs.schema import ContrastiveConfig, LearnerConfig, LoraConfig
from learners.engine import LearnerEngine
from learners.records import Sample
from orchestration.run.bundle_folder import MIB
from orchestration.run.bundle_packing import ROW, pack, unpack


def save_trained(shape: str, rank: int, steps: int, folder: Path) -> int:
    """Saves a learner after `steps` steps of SFT, and half as many of contrastive RL; returns its number of trained
    weights."""
    model, random = write_random_model(shape, folder / "model", max_length=256), np.random.default_rng(0)
    config = LearnerConfig(lora=LoraConfig(rank=rank, alpha=2.0 * rank), compile=False)

    def samples() -> list[Sample]:
        ids = random.integers(10, 2000, (2, 32)).tolist()
        return [Sample(tuple(row[:8]), tuple(row[8:]), float(random.normal())) for row in ids]

    with closing(LearnerEngine(config, model, max_length=256, seed=1)) as learner:
        for _ in range(steps):
            learner.train_cross_entropy(samples(), 2e-4)
        learner.set_reference()
        for _ in range(steps // 2):
            learner.train_grpo(samples(), 1e-4, ContrastiveConfig())
        learner.save(folder / "checkpoint")
        return sum(weight.numel() for _, weight in learner.named_adapters())


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the sizes of the checkpoint's files, alone and together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="random-0.5b")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        weights = save_trained(options.shape, options.rank, options.steps, Path(folder))
        paths = [path for path in sorted(Path(folder, "checkpoint").rglob("*")) if path.is_file()]
        contents = {path.name: path.read_bytes() for path in paths}
    rows = [
        (name, f"{len(content) / MIB:.2f}", f"{len(pack(content)) / MIB:.2f}")
        for name, content in contents.items()
        if len(content) > MIB // 100
    ]
    joined = b"".join(content + bytes(-len(content) % ROW) for content in contents.values())
    started = time.perf_counter()
    packed = pack(joined)
    between = time.perf_counter()
    assert unpack(packed, len(joined)) == joined
    rows.append(("all together", f"{len(joined) / MIB:.2f}", f"{len(packed) / MIB:.2f}"))
    title = f"{options.shape}, rank {options.rank}: {weights:,} weights, {4 * weights / MIB:.2f} MiB in float32"
    print_table(title, ("file", "MiB", "MiB packed"), rows)
    print(f"packed in {between - started:.1f} s, unpacked in {time.perf_counter() - between:.1f} s")


if __name__ == "__main__":
    main()
