"""Learner ranks in processes of their own, whose work a script beside this module does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from learners.records import Sample
from tests.ports import free_port

_ROOT = Path(__file__).parents[2]


def run_ranks(
    script: str, ranks: int, policy: Path, output: Path, samples: Sequence[Sample], *words: str, device: str = "cpu"
) -> None:
    """Runs a script on so many ranks, each with a GPU or none. It gets rank, number of ranks, port, policy, the folder
    `output`, the file of the samples, and `words`."""
    listing = output / "samples.json"
    listing.write_text(json.dumps([asdict(sample) for sample in samples]))
    port, path = free_port(), os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(Path(__file__).with_name(script))]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(port), str(policy), str(output), str(listing), *words],
            env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": str(rank) if device == "cuda" else ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(outputs)[-4000:]
