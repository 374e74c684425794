"""The tables of `benchmarks/evaluator.py`, from the figures that it saved."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from itertools import groupby
from pathlib import Path
from statistics import geometric_mean, mean, median, stdev
from typing import Any

import pyarrow.parquet as pq

from benchmarks.published import HACKED
from benchmarks.tables import print_table
from evaluators.records import Outcome
from evaluators.reward import FASTER
from evaluators.stored.baselines import existing_baselines

_DEFENCES = {
    "turn_over": "a wait for fresh processes, right after a verdict",
    "fork": "two contained processes, if none wait",
    "start": "their GPU contexts, if none wait",
    "calibrate": "clocks up, each process calibrated",
    "load_reference": "a reference process of its own",
    "new_weights": "new weights after construction",
    "float64_reference": "float64 reference",
    "distributions": "another distribution of values",
    "determinism": "the same call twice",
    "draw_inputs": "fresh inputs for every call: drawing",
    "fresh_inputs": "fresh inputs for every call: writing",
    "poison": "outputs poisoned",
    "outside_calls": "caches emptied, waits, messages",
    "inputs_unchanged": "inputs compared after every burst",
    "compare": "every output compared",
    "floor": "bytes of the output that are new",
    "clock_log": "clocks and throttling logged",
    "second_look": "a second look at what fails by little",
    "judged_again": "a second judgement, where nothing but the times of the first was doubted",
    "fresh_processes": "two more pairs of processes, for close calls on short kernels",
    "shapes": "another shape",
    "gated": "calls behind gates, timed by the judge",
    "trace": "kernels traced (CUPTI)",
    "health": "health probe, after faults alone",
}


def _read(out: Path, name: str) -> tuple[list[dict[str, Any]], Any]:
    """The verdicts of a section as rows, and a description of each trial; both empty if the section has not run."""
    if not (out / f"{name}.json").is_file() or not (out / f"{name}.parquet").is_file():
        return [], []
    rows = pq.read_table(out / f"{name}.parquet").to_pylist()
    for row in rows:
        row["speedups"], row["cost"] = dict(row["speedups"]), dict(row["cost"])
    return rows, json.loads((out / f"{name}.json").read_text())


def print_tables(out: Path) -> None:
    """Prints the tables of every section whose figures are in `out`."""
    _noise(*_read(out, "noise"))
    _slowdowns(*_read(out, "slowdowns"))
    if (out / "recovery.json").is_file():
        _recovery(json.loads((out / "recovery.json").read_text()))
    rows, about = _read(out, "published")
    if rows:
        baselines, marked = out / "baselines.json", out / "marked.json"
        _speed(rows, about)
        _evaluated(rows)
        _defences(rows)
        _published(
            rows,
            json.loads(marked.read_text()) if marked.is_file() else {},
            json.loads(baselines.read_text()) if baselines.is_file() else {},
        )
    elif (noise_rows := _read(out, "noise")[0]) or rows:
        _defences(noise_rows)


def _eager(rows: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    return [row["speedups"]["eager"] for row in rows if "eager" in row["speedups"]]


def _noise(rows: list[dict[str, Any]], about: list[dict[str, Any]]) -> None:
    if not rows:
        return
    shown = []
    names = list(dict.fromkeys(trial["kernel"] for trial in about))
    for name in [*names, "all"]:
        mine = [row for row, trial in zip(rows, about, strict=True) if name in (trial["kernel"], "all")]
        speedups = _eager(mine)
        values = [speedup["value"] for speedup in speedups]
        beyond = [sum(abs(value - 1) > share for value in values) for share in (0.02, 0.10)]
        covered = sum(speedup["low"] <= 1 <= speedup["high"] for speedup in speedups)
        below = sum(speedup["high"] < 1 for speedup in speedups)
        seconds = median(row["timing"]["reference_seconds"]["value"] for row in mine if row["timing"])
        outcomes = {row["outcome"] for row in mine} - {"ok"}
        shown.append(
            [
                name,
                f"{1e6 * seconds:.1f}" if name != "all" else "",
                len(mine),
                *(f"{count / len(values):.1%}" for count in (*beyond, sum(value > 1.10 for value in values))),
                f"{stdev(values) if len(values) > 1 else 0:.2%}",
                f"{median(values):.3f}",
                f"{covered / len(values):.0%}",
                f"{below / len(values):.0%}",
                f"{median(row['cost']['total'] for row in mine):.2f}",
                " ".join(f"{len([1 for row in mine if row['outcome'] == outcome])} {outcome}" for outcome in outcomes),
            ]
        )
    columns = ["kernel", "us", "trials", "beyond 2 %", "10 %", "won", "sd", "median"]
    columns += ["interval holds 1.0", "is below", "seconds", "not ok"]
    print_table("The same program on both sides (won: the candidate seems more than 1.10x as fast)", columns, shown)


def _slowdowns(rows: list[dict[str, Any]], about: list[dict[str, Any]]) -> None:
    if not rows:
        return
    shown = []
    for length in dict.fromkeys(trial["about"] for trial in about):
        for factor in dict.fromkeys(trial["factor"] for trial in about):
            mine = [
                row
                for row, trial in zip(rows, about, strict=True)
                if (trial["about"], trial["factor"]) == (length, factor)
            ]
            speedups = _eager(mine)
            below = sum(speedup["high"] < 1 for speedup in speedups)
            value = median(speedup["value"] for speedup in speedups)
            shown.append(
                [length, f"{factor - 1:.0%}", len(mine), f"{below / len(speedups):.0%}", f"{1 / value - 1:.1%}"]
            )
    columns = ["kernel", "slower by", "trials", "interval below 1.0", "median found"]
    print_table("A known slow-down", columns, shown)


def _recovery(about: list[dict[str, Any]]) -> None:
    rows = [
        [
            trial["fault"],
            trial["verdict"],
            f"{trial['recovery_seconds']:.2f}",
            f"{trial['before']:.3f}" if trial["before"] else "",
            f"{trial['after']:.3f}" if trial["after"] else trial["after_outcome"],
        ]
        for trial in about
    ]
    if rows:
        columns = ["fault", "verdict", "s to the next good verdict", "before", "after"]
        print_table("After a fault", columns, rows)


def _speed(rows: list[dict[str, Any]], about: list[dict[str, Any]]) -> None:
    # A look at a program is a builder's work, like its build: an evaluator alone does both.
    taken = [row["cost"]["total"] - row["cost"].get("build", 0.0) - row["cost"].get("look", 0.0) for row in rows]
    good = [seconds for seconds, row in zip(taken, rows, strict=True) if row["outcome"] == "ok"]
    waited = [row["cost"].get("turn_over", 0.0) for row in rows if row["outcome"] == "ok"]
    of_idle = [seconds - before for seconds, before in zip(good, waited, strict=True)]
    lines = [
        ["evaluated, of the usable programs", f"{len(rows)} of {about[0]['usable']}"],
        ["seconds from artifact to verdict, median", f"{median(taken):.2f}"],
        ["the same, correct programs alone", f"{median(good):.2f}"],
        ["the same, if no verdict came right before", f"{median(of_idle):.2f}"],
        ["the slowest tenth takes at least", f"{sorted(taken)[int(0.9 * len(taken))]:.2f}"],
        [
            "an identical candidate again, longest, ms",
            f"{1e3 * max(seconds for run in about for seconds in run['repeats']):.1f}",
        ],
        ["evaluations an hour", f"{3600 * len(rows) / sum(run['seconds'] for run in about):.0f}"],
    ]
    print_table("Time, preset fast", ["", ""], lines)


def _evaluated(rows: list[dict[str, Any]]) -> None:
    """Prints the tasks that were evaluated, neighbours as a range."""
    lines = []
    for level in sorted({row["task"].partition("/")[0] for row in rows}):
        numbers = sorted(int(row["task"].partition("/")[2]) for row in rows if row["task"].startswith(f"{level}/"))
        runs = [
            [number for _, number in run]
            for _, run in groupby(
                enumerate(numbers), lambda place_and_number: place_and_number[1] - place_and_number[0]
            )
        ]
        lines.append([" ".join([level, *(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)])])
    print_table("CUDA-L1's published programs", ["those evaluated"], lines)


def _defences(rows: list[dict[str, Any]]) -> None:
    lines = []
    for name, text in _DEFENCES.items():
        spent = [1e3 * row["cost"][name] for row in rows if name in row["cost"]]
        if spent:
            lines.append([text, f"{median(spent):.1f}", f"{mean(spent):.1f}", len(spent)])
    print_table("What the defences cost, ms an evaluation", ["defence", "median", "mean", "evaluations"], lines)


def _group(row: dict[str, Any], marked: Container[str]) -> str:
    if row["task"] in marked:
        return "cannot tell"
    return "known hack" if row["task"] in HACKED else row["task"].partition("/")[0]


def _published(
    rows: list[dict[str, Any]], marked: dict[str, list[str]], baselines: dict[str, dict[str, float | None]]
) -> None:
    """Prints outcomes and speed-ups by level. Tasks in `marked` cannot tell a good program from a cheat; they have rows
    of their own and count in no other."""
    names = existing_baselines("cuda")
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(_group(row, marked), []).append(row)
    all_outcomes = [_outcome(row) for row in rows]
    outcomes = sorted(set(all_outcomes), key=lambda name: (name != "ok", -all_outcomes.count(name), name))
    counts = [
        [name, len(mine), *([_outcome(row) for row in mine].count(outcome) for outcome in outcomes)]
        for name, mine in sorted(groups.items())
    ]
    print_table("CUDA-L1's published programs: outcomes", ["", "programs", *outcomes], counts)
    shown = []
    for group, mine in sorted(groups.items()):
        for baseline in (*names, "best of five"):
            values = [value for row in mine if (value := _over(row, baseline, baselines, names)) is not None]
            if values:
                faster = sum(value > FASTER for value in values)
                cells = [f"{faster / len(values):.0%}", f"{median(values):.2f}", f"{geometric_mean(values):.2f}"]
                shown.append([group, baseline, len(values), *cells])
    columns = ["", "over", "programs", "faster", "median", "geometric mean"]
    print_table("CUDA-L1's published programs: speed-up of the correct ones", columns, shown)
    lines = [[row["task"], " ".join(marked[row["task"]]), _outcome(row)] for row in rows if row["task"] in marked]
    if lines:
        print_table("Those for tasks that cannot tell", ["task", "audit", "outcome"], sorted(lines))


def _outcome(row: dict[str, Any]) -> str:
    """The outcome of a verdict; for a wrong program also what is wrong."""
    if row["outcome"] != Outcome.WRONG:
        return str(row["outcome"])
    message, correctness = row["message"], row["correctness"]
    if "inputs in place" in message:
        return "changes its inputs"
    if "stride" in message:
        return "wrong strides"
    if message.startswith("output") and "expected" in message:
        return "wrong form"
    return "wrong, by less than 1 %" if correctness and correctness["error"] < 0.01 else "wrong values"


def _over(
    row: dict[str, Any], baseline: str, baselines: dict[str, dict[str, float | None]], names: Sequence[str]
) -> float | None:
    """The speed-up of a correct program over a baseline, or over the best of all if all were measured; else None."""
    if row["outcome"] != "ok":
        return None
    value = float(row["speedups"]["eager"]["value"])
    others = baselines.get(row["task"], {})
    if baseline == "eager":
        return value
    if baseline == "best of five":
        measured = [speedup for speedup in others.values() if speedup]
        return value / max([1.0, *measured]) if len(others) == len(names) - 1 else None
    return value / others[baseline] if others.get(baseline) else None
