"""How much memory a learner takes, beside the memory plan's estimate. The first argument says what is measured:

peak      the peak of each stage of a GRPO step: weights loaded, optimiser made, forward, forward and backward,
          optimiser step, reference pass, gathering weights for a push
longest   the longest sequence (prompt and response, one sample, gradient checkpointing) that trains without running
          out of memory, to 10 %

    python -m benchmarks.learner_memory peak --model MODEL [--memory GIB] [--output FILE] [key=value ...]
    python -m benchmarks.learner_memory longest --model MODEL [--limit TOKENS] ...

MODEL is a folder, or `random-7b`, `random-0.5b` or `random-tiny`, whose weights are drawn on the device. Overrides are
of `configs/local.yaml`, such as `learner.lora.rank=16`. Each learner is a process of its own, on one GPU or on the CPU.
On the CPU, memory is the process's resident set without what its libraries take.

Prints a table of stages, or of lengths.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

GIB = 2**30
TRIAL_SECONDS = 900
PRECISION = 1.1  # of the longest sequence: the factor between a length that fits and one that does not
LIMIT_TOKENS = 1 << 18
STAGES = ("weights", "optimiser", "forward", "forward and backward", "step", "reference pass", "gathering")


def run_trial(arguments: argparse.Namespace, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs a learner in a process of its own; returns the records that it prints, one a line. If a signal ends it, as a
    host without memory does, the sequence that it was trying does not fit. Raises RuntimeError for other failures."""
    asked |= {"model": arguments.model, "memory": arguments.memory, "overrides": arguments.overrides}
    command = [sys.executable, "-m", "benchmarks.learner_memory_trial", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_SECONDS)
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    trying = records.pop() if records and "fits" in records[-1] and records[-1]["fits"] is None else None
    if done.returncode < 0 and trying:
        records.append({**trying, "fits": False})
    elif done.returncode:
        raise RuntimeError(f"the learner ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [record for record in records if record.get("fits", True) is not None]


def next_length(
    fitting: Sequence[dict[str, Any]], too_long: int | None, limit: int, capacity: int | None
) -> int | None:
    """The length to try next, in tokens: twice the longest, or the length at which memory runs out if it grows as it
    did so far. None at the end.

    `fitting`: the trials that fit, shortest first; `too_long`: the shortest length that did not.
    """
    longest = fitting[-1]["length"]
    if longest >= limit or (too_long is not None and too_long <= PRECISION * longest):
        return None
    guess = extrapolated(fitting, capacity)
    if too_long is None:
        guess = 2 * longest if guess is None else min(max(int(0.96 * guess), int(PRECISION * longest)), 16 * longest)
        return min(guess, limit)
    middle = (longest + too_long) // 2
    return int(0.96 * guess) if guess and 1.03 * longest < 0.96 * guess < 0.97 * too_long else middle


def extrapolated(fitting: Sequence[dict[str, Any]], capacity: int | None) -> int | None:
    """The length in tokens at which memory, extrapolated linearly, reaches `capacity`; None if that is unknown."""
    if capacity is None or len(fitting) < 2:
        return None
    first, last = fitting[-2:]
    slope = (last["peak"] - first["peak"]) / (last["length"] - first["length"])
    return int(last["length"] + (capacity - last["peak"]) / slope) if slope > 0 else None


def find_longest(arguments: argparse.Namespace) -> dict[str, Any]:
    """Tries lengths; returns every trial, and the longest that fits."""
    fitting: list[dict[str, Any]] = []
    too_long: int | None = None
    trials = []
    while True:  # a new learner each time memory runs out, since a failed one may still hold memory
        asked = {"mode": "longest", "fitting": fitting, "too_long": too_long, "limit": arguments.limit}
        records = run_trial(arguments, {**asked, "start": arguments.start})
        trials += records
        fitting += [record for record in records if record["fits"]]
        too_long = min([record["length"] for record in records if not record["fits"]], default=too_long)
        if not fitting:
            raise RuntimeError(f"not even {arguments.start} tokens fit: lower --start")
        if all(record["fits"] for record in records):
            return {
                "longest": fitting[-1]["length"],
                "limited": fitting[-1]["length"] >= arguments.limit,
                "extrapolated": extrapolated(fitting, records[-1]["capacity"] if records else None),
                "trials": trials,
            }


def measure_peak(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures a step; returns the bytes of each stage, measured and planned."""
    asked = {"mode": "peak", "prompt": arguments.prompt, "response": arguments.response, "samples": arguments.samples}
    return run_trial(arguments, asked)[0]


def print_peak(figures: dict[str, Any], console: Console) -> None:
    table = Table("stage", "peak, GiB", "plan, GiB", box=None)
    for stage in STAGES:
        table.add_row(stage, f"{figures['measured'].get(stage, 0) / GIB:.2f}", f"{figures['planned'][stage] / GIB:.2f}")
    console.print(table)
    model = (
        f"{figures['parameters'] / 1e9:.2f}e9 weights on {figures['device']}; {figures['tokens']} tokens a micro-batch"
    )
    console.print(f"{model}; with caches and the device's context {figures['process'] / GIB:.2f} GiB", highlight=False)


def print_longest(figures: dict[str, Any], console: Console) -> None:
    table = Table("tokens", "fits", "peak, GiB", "step, s", box=None)
    for trial in figures["trials"]:
        fits = "yes" if trial["fits"] else "no"
        table.add_row(str(trial["length"]), fits, f"{trial['peak'] / GIB:.2f}", f"{trial['seconds']:.1f}")
    console.print(table)
    guess = figures["extrapolated"]
    more = f" (--limit; memory would last for about {guess})" if guess else " (--limit)"
    console.print(f"longest: {figures['longest']} tokens{more if figures['limited'] else ''}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["peak", "longest"])
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--model", required=True, help="a folder, random-7b, random-0.5b or random-tiny")
    parser.add_argument("--memory", type=float, default=0.0, help="GiB that the learner may use; 0: no limit")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of each prompt (peak)")
    parser.add_argument("--response", type=int, default=512, help="tokens of each response (peak)")
    parser.add_argument("--samples", type=int, default=32, help="responses of a step, four to a prompt (peak)")
    parser.add_argument("--start", type=int, default=4096, help="tokens of the first trial (longest)")
    parser.add_argument("--limit", type=int, default=LIMIT_TOKENS, help="tokens never to exceed (longest)")
    parser.add_argument("--output", type=Path, help="a JSON file for all figures")
    arguments = parser.parse_intermixed_args()
    figures = measure_peak(arguments) if arguments.what == "peak" else find_longest(arguments)
    figures |= {"model": arguments.model, "overrides": arguments.overrides}
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=1))
    (print_peak if arguments.what == "peak" else print_longest)(figures, Console(width=120))


if __name__ == "__main__":
    main()
