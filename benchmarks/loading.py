"""How much memory of the host it takes to load a policy under ZeRO-3: shard by shard, and whole, as transformers does.

    python -m benchmarks.loading --model random-7b --folder FOLDER [--output FILE] [key=value ...]

A model with random weights of that shape (`benchmarks/random_model.py`) is written to FOLDER first, unless it is there.
Each way of loading is a process of its own, which then takes one step of cross-entropy, and reads all weights as for a
push in parts of 256 MiB. Overrides are of `configs/local.yaml`; `learner.zero_stage=3` is set. Nothing else may use the
machine's memory meanwhile.

Prints one line for each way. *resident* is the largest resident set of the process beyond what its libraries took,
*host* the most memory that became unavailable on the machine, pinned memory included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.random_model import SHAPES, write_random_model
from configs.load import load_config
from learners.deepspeed_config import import_deepspeed
from learners.engine import LearnerEngine
from learners.policy import load_policy
from learners.records import Sample
from learners.weights import pack_parts

GIB = 2**30
WAYS = ("shards", "whole")
_PART_BYTES = 256 << 20
_TOKENS = 512  # of the one sample's prompt, and of its response


class HostMemory:
    """Samples memory every 20 ms, in a thread of its own, until `close`."""

    def __init__(self) -> None:
        self._resident, self._available = self._now()
        self.resident = self.host = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> dict[str, int]:
        """The peaks since the start, in bytes beyond what was in use then."""
        self._done.set()
        self._thread.join()
        return {"resident": self.resident, "host": self.host}

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            resident, available = self._now()
            self.resident = max(self.resident, resident - self._resident)
            self.host = max(self.host, self._available - available)

    @staticmethod
    def _now() -> tuple[int, int]:
        found: dict[str, int] = {}
        for path in ("/proc/self/status", "/proc/meminfo"):
            for line in Path(path).read_text().splitlines():
                name, _, value = line.partition(":")
                if name in ("VmRSS", "MemAvailable"):
                    found[name] = int(value.split()[0]) * 1024
        return found["VmRSS"], found["MemAvailable"]


def measure(way: str, folder: str, overrides: list[str]) -> dict[str, Any]:
    """Loads, trains a step and reads the weights, in this process."""
    config = load_config("local", ["name=loading", "learner.zero_stage=3", *overrides]).learner
    import_deepspeed()  # so that the libraries' memory is not counted
    if torch.cuda.is_available():
        torch.cuda.init()
    memory, started = HostMemory(), time.perf_counter()
    policy: Any = folder
    if way == "whole":
        policy = load_policy(folder, "auto" if config.lora.rank else torch.float32)
    engine = LearnerEngine(config, policy, max_length=2 * _TOKENS)
    seconds = {"load": time.perf_counter() - started}
    peaks = memory.close()
    weights = [parameter.ds_numel * parameter.ds_tensor.element_size() for parameter in engine.model.parameters()]
    started = time.perf_counter()
    metrics = engine.train_cross_entropy([Sample((5,) * _TOKENS, tuple(3 + n % 200 for n in range(_TOKENS)))], 1e-6)
    seconds["step"] = time.perf_counter() - started
    started, pushed = time.perf_counter(), 0
    for part in pack_parts(engine.named_weights(), torch.bfloat16, 1, limit_bytes=_PART_BYTES, device=engine.device):
        pushed += part.manifest.total_bytes
    seconds["push"] = time.perf_counter() - started
    on_gpu = torch.cuda.is_available()
    return {
        "way": way,
        "model": sum(weights),
        **peaks,
        "seconds": seconds,
        "pushed": pushed,
        "loss": metrics["loss"],
        "device": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "on": torch.cuda.get_device_name(0) if on_gpu else "the CPU",
    }


def print_table(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(
        "loading", "model, GiB", "resident", "host", "of the model", "load, s", "step, s", "push, s", "loss", box=None
    )
    for row in rows:
        table.add_row(
            row["way"],
            *(f"{row[name] / GIB:.2f}" for name in ("model", "resident", "host")),
            f"{max(row['resident'], row['host']) / row['model']:.2f}",
            *(f"{row['seconds'][name]:.1f}" for name in ("load", "step", "push")),
            f"{row['loss']:.6f}",
        )
    console.print(table)
    if rows[0]["device"]:
        most = max(row["device"] for row in rows) / GIB
        console.print(f"on {rows[0]['on']}, of whose memory torch had {most:.1f} GiB", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--model", choices=sorted(SHAPES), required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way, str(arguments.folder), arguments.overrides)), flush=True)
        return
    if not (arguments.folder / "config.json").exists():
        write_random_model(arguments.model, arguments.folder)
    rows = []
    for way in arguments.ways:
        words = ["--model", arguments.model, "--folder", str(arguments.folder), "--way", way, *arguments.overrides]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.loading", *words], stdout=subprocess.PIPE, text=True, check=True
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    print_table(rows, Console(width=110))
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
