"""The tables of `benchmarks/build.py`, from the figures that it saved."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.tables import print_table


def _seconds(values: list[float]) -> list[str]:
    """The median, and the value that 95 % are below."""
    ordered = sorted(values)
    return [f"{median(ordered):.1f}", f"{ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]:.1f}"]


def print_tables(out: Path) -> None:
    """Prints the tables of the figures in `out`."""
    print(f"== {out.name}")
    figures = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
    if cold := figures.get("cold"):
        _cold_tables(cold)
    if rows := figures.get("same"):
        counts = Counter(row["outcome"] for row in rows)
        lines = [[outcome, str(count)] for outcome, count in counts.most_common()]
        print_table("Programs by torch's build and by ours, outputs", ["", ""], lines)
    if hit := figures.get("hit"):
        times = hit["milliseconds"]
        lines = [["median", f"{median(times):.1f}"], ["longest", f"{max(times):.1f}"]]
        print_table(f"A hit ({len(times)}), ms", ["", ""], lines)
    if concurrent := figures.get("concurrent"):
        lines = [
            ["seconds for all", f"{concurrent['wall_seconds']:.1f}"],
            ["median of one", f"{median(concurrent['seconds']):.1f}"],
        ]
        print_table(f"{concurrent['builds']} cold builds at once", ["", ""], lines)
    if edits := figures.get("edits"):
        lines = [
            ["random edits, right", f"{edits['right']} of {edits['edits']}"],
            ["identical requests of 8 processes, right", f"{edits['identical_right']} of {edits['identical']}"],
            ["entries in the cache, distinct requests", f"{edits['entries']}, {edits['distinct']}"],
            ["edits an hour", f"{3600 * edits['edits'] / edits['seconds']:.0f}"],
        ]
        print_table("No wrong artifact", ["", ""], lines)
    if rows := figures.get("faults"):
        print_table("Faults", ["", ""], [[row["fault"], row["outcome"]] for row in rows])


def _cold_tables(cold: dict[str, Any]) -> None:
    where = f"{cold['at_once']} at once"
    kinds = {
        kind: [row for row in cold["rows"] if kind in ("all", row["kind"])] for kind in ("as it is", "mended", "all")
    }
    print_table(
        f"Cold builds of {cold['programs']} programs, of which {cold['asking']} ask for an extension; {where}",
        ["", "built", "compile", "by thin headers", "median, s", "95 % below", "do not compile: median, s"],
        [[kind, *_built(rows)] for kind, rows in kinds.items() if rows],
    )
    kinds = {kind: [row for row in rows if "torch" in row] for kind, rows in kinds.items()}
    good = {
        kind: [row for row in rows if not row["error"] and not row["torch"]["error"]] for kind, rows in kinds.items()
    }
    bad = [row for row in kinds["all"] if row["error"] and row["torch"]["error"]]
    head = [
        "seconds",
        "programs",
        "ours, median",
        "95 % below",
        "torch's, median",
        "95 % below",
        "times faster",
        "floor",
    ]
    print_table(
        f"The same beside torch.utils.cpp_extension; {where}",
        head,
        [[kind, *_compared(rows)] for kind, rows in {**good, "do not compile": bad}.items() if rows],
    )
    unlike = [row["program"] for row in kinds["all"] if bool(row["error"]) != bool(row["torch"]["error"])]
    each = cold["core_seconds"] / len(cold["rows"])
    lines = [
        ["core-seconds a build, builds per core-hour", f"{each:.1f}, {3600 / each:.0f}"],
        ["the glue, once for an installation, seconds", f"{cold['glue_seconds']:.1f}"],
        ["compile in one way alone", ", ".join(unlike) or "none"],
    ]
    print_table("Beside", ["", ""], lines)


def _built(rows: list[dict[str, Any]]) -> list[str]:
    good = [row for row in rows if not row["error"]]
    thin = sum(row["headers"] == "thin" for row in good)
    failed = [row["seconds"] for row in rows if row["error"]]
    times = _seconds([row["seconds"] for row in good]) if good else ["", ""]
    share = f"{thin} ({thin / len(good):.0%})" if good else ""
    return [str(len(rows)), str(len(good)), share, *times, f"{median(failed):.1f}" if failed else ""]


def _compared(rows: list[dict[str, Any]]) -> list[str]:
    """The cells of a row: our seconds, torch's, the median of their quotients, and the kernels' alone."""
    pairs = [(row["seconds"], row["torch"]["seconds"]) for row in rows]
    floors = [row["floor_seconds"] for row in rows if row["floor_seconds"]]
    quotient = median(theirs / ours for ours, theirs in pairs)
    floor = f"{median(floors):.1f} ({len(floors)})" if floors else ""
    return [
        str(len(rows)),
        *_seconds([ours for ours, _ in pairs]),
        *_seconds([theirs for _, theirs in pairs]),
        f"{quotient:.1f}",
        floor,
    ]
