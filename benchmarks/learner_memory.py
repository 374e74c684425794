"""How much memory a learner takes, measured, next to what the plan says of it:

peak      the peak of each stage of a GRPO step: weights loaded, optimiser made, forward, forward and backward,
          optimiser step, reference pass, gathering weights for a push
longest   the longest sequence (prompt and response, one sample, gradient checkpointing) that trains without running
          out of memory, to 10 %

    python -m benchmarks.learner_memory peak --model MODEL [--memory GIB] [--output FILE] [key=value ...]
    python -m benchmarks.learner_memory longest --model MODEL [--limit TOKENS] ...

MODEL is a folder, or `random-7b`, `random-0.5b` or `random-tiny`: made of random numbers on the device. Overrides are
of `configs/local.yaml`, such as `learner.lora.rank=16`. Learners are processes of their own with one GPU, or on the
CPU, where memory is the process's resident set beyond what its libraries take.
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
PRECISION = 1.1  # of the longest sequence
LIMIT_TOKENS = 1 << 18
STAGES = ("weights", "optimiser", "forward", "forward and backward", "step", "reference pass", "gathering")


def run_trial(arguments: argparse.Namespace, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """What a learner in a process of its own prints, a record a line, until it ends. Where a signal ends it (a host
    without memory does that) the sequence that it was trying does not fit. Raises RuntimeError for other failures."""
    asked |= {"model": arguments.model, "memory": arguments.memory, "overrides": arguments.overrides}
    command = [sys.executable, "-m", "benchmarks.learner_memory_trial", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_SECONDS)
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    trying = records.pop() if records and "fits" in records[-1] and records[-1]["fits"] is None else None
    if done.returncode < 0 and trying:
        records.append({**trying, "fits": False})
    elif done.returncode:
        raise RuntimeError(f"the learner ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [one for one in records if one.get("fits", True) is not None]


def next_length(
    fitting: Sequence[dict[str, Any]], too_long: int | None, limit: int, capacity: int | None
) -> int | None:
    """What to try next, in tokens: the double, or where memory runs out if it grows as it did so far; None at the end.

    `fitting`: what fits, by length, shortest first; `too_long`: the shortest that did not.
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
    """Tokens at which memory, which grows in proportion to them, reaches `capacity`; None where that is not known."""
    if capacity is None or len(fitting) < 2:
        return None
    first, last = fitting[-2:]
    slope = (last["peak"] - first["peak"]) / (last["length"] - first["length"])
    return int(last["length"] + (capacity - last["peak"]) / slope) if slope > 0 else None


def find_longest(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every trial, and the longest that fits."""
    fitting: list[dict[str, Any]] = []
    too_long: int | None = None
    trials = []
    while True:  # a learner for each time that memory runs out: what is left of it then is not measured
        asked = {"mode": "longest", "fitting": fitting, "too_long": too_long, "limit": arguments.limit}
        found = run_trial(arguments, {**asked, "start": arguments.start})
        trials += found
        fitting += [one for one in found if one["fits"]]
        too_long = min([one["length"] for one in found if not one["fits"]], default=too_long)
        if not fitting:
            raise RuntimeError(f"not even {arguments.start} tokens fit: lower --start")
        if all(one["fits"] for one in found):
            return {
                "longest": fitting[-1]["length"],
                "limited": fitting[-1]["length"] >= arguments.limit,
                "extrapolated": extrapolated(fitting, found[-1]["capacity"] if found else None),
                "trials": trials,
            }


def measure_peak(arguments: argparse.Namespace) -> dict[str, Any]:
    """Bytes by stage, measured and planned."""
    asked = {"mode": "peak", "prompt": arguments.prompt, "response": arguments.response, "samples": arguments.samples}
    return run_trial(arguments, asked)[0]


def print_peak(found: dict[str, Any], console: Console) -> None:
    table = Table("stage", "peak, GiB", "plan, GiB", box=None)
    for stage in STAGES:
        table.add_row(stage, f"{found['measured'].get(stage, 0) / GIB:.2f}", f"{found['planned'][stage] / GIB:.2f}")
    console.print(table)
    said = f"{found['parameters'] / 1e9:.2f}e9 weights on {found['device']}; {found['tokens']} tokens a micro-batch"
    console.print(f"{said}; with caches and the device's context {found['process'] / GIB:.2f} GiB", highlight=False)


def print_longest(found: dict[str, Any], console: Console) -> None:
    table = Table("tokens", "fits", "peak, GiB", "step, s", box=None)
    for one in found["trials"]:
        table.add_row(
            str(one["length"]), "yes" if one["fits"] else "no", f"{one['peak'] / GIB:.2f}", f"{one['seconds']:.1f}"
        )
    console.print(table)
    guess = found["extrapolated"]
    more = f" (--limit; memory would last for about {guess})" if guess else " (--limit)"
    console.print(f"longest: {found['longest']} tokens{more if found['limited'] else ''}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["peak", "longest"])
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--model", required=True, help="a folder, random-7b, random-0.5b or random-tiny")
    parser.add_argument("--memory", type=float, default=0.0, help="GiB that the learner may have; 0: all there is")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of each prompt (peak)")
    parser.add_argument("--response", type=int, default=512, help="tokens of each response (peak)")
    parser.add_argument("--samples", type=int, default=32, help="responses of a step, four to a prompt (peak)")
    parser.add_argument("--start", type=int, default=4096, help="tokens to begin with (longest)")
    parser.add_argument("--limit", type=int, default=LIMIT_TOKENS, help="tokens never to exceed (longest)")
    parser.add_argument("--output", type=Path, help="a JSON file for all that was found")
    arguments = parser.parse_intermixed_args()
    found = measure_peak(arguments) if arguments.what == "peak" else find_longest(arguments)
    found |= {"model": arguments.model, "overrides": arguments.overrides}
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))
    (print_peak if arguments.what == "peak" else print_longest)(found, Console(width=120))


if __name__ == "__main__":
    main()
