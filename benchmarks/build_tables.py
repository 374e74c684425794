"""Prints the figures of `benchmarks/build.py`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table


def _table(title: str, head: list[str], rows: list[list[str]]) -> None:
    table = Table(*head, box=None, show_header=any(head))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    print(title)
    Console(width=130).print(table)
    print()


def _seconds(values: list[float]) -> list[str]:
    """Median, and what 95 % are below."""
    ordered = sorted(values)
    return [f"{median(ordered):.1f}", f"{ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]:.1f}"]


def print_tables(out: Path) -> None:
    """Prints what stands in `out`."""
    print(f"== {out.name}")
    known = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
    if one := known.get("cold"):
        _cold_tables(one)
    if rows := known.get("same"):
        counts = Counter(row["outcome"] for row in rows)
        lines = [[outcome, str(count)] for outcome, count in counts.most_common()]
        _table("Programs by torch's build and by ours, outputs", ["", ""], lines)
    if one := known.get("hit"):
        found = one["milliseconds"]
        lines = [["median", f"{median(found):.1f}"], ["longest", f"{max(found):.1f}"]]
        _table(f"A hit ({len(found)}), ms", ["", ""], lines)
    if one := known.get("concurrent"):
        lines = [["seconds for all", f"{one['wall_seconds']:.1f}"], ["median of one", f"{median(one['seconds']):.1f}"]]
        _table(f"{one['builds']} cold builds at once", ["", ""], lines)
    if one := known.get("edits"):
        lines = [
            ["random edits, right", f"{one['right']} of {one['edits']}"],
            ["identical requests of 8 processes, right", f"{one['identical_right']} of {one['identical']}"],
            ["entries in the cache, distinct requests", f"{one['entries']}, {one['distinct']}"],
            ["edits an hour", f"{3600 * one['edits'] / one['seconds']:.0f}"],
        ]
        _table("No wrong artifact", ["", ""], lines)
    if rows := known.get("faults"):
        _table("Faults", ["", ""], [[row["fault"], row["outcome"]] for row in rows])


def _cold_tables(known: dict[str, Any]) -> None:
    where = f"{known['at_once']} at once"
    kinds = {
        kind: [row for row in known["rows"] if kind in ("all", row["kind"])] for kind in ("as it is", "mended", "all")
    }
    _table(
        f"Cold builds of {known['programs']} programs, of which {known['asking']} ask for an extension; {where}",
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
    _table(
        f"The same beside torch.utils.cpp_extension; {where}",
        head,
        [[kind, *_compared(rows)] for kind, rows in {**good, "do not compile": bad}.items() if rows],
    )
    unlike = [row["program"] for row in kinds["all"] if bool(row["error"]) != bool(row["torch"]["error"])]
    each = known["core_seconds"] / len(known["rows"])
    lines = [
        ["core-seconds a build, builds per core-hour", f"{each:.1f}, {3600 / each:.0f}"],
        ["the glue, once for an installation, seconds", f"{known['glue_seconds']:.1f}"],
        ["compile in one way alone", ", ".join(unlike) or "none"],
    ]
    _table("Beside", ["", ""], lines)


def _built(rows: list[dict[str, Any]]) -> list[str]:
    good = [row for row in rows if not row["error"]]
    thin = sum(row["headers"] == "thin" for row in good)
    failed = [row["seconds"] for row in rows if row["error"]]
    times = _seconds([row["seconds"] for row in good]) if good else ["", ""]
    share = f"{thin} ({thin / len(good):.0%})" if good else ""
    return [str(len(rows)), str(len(good)), share, *times, f"{median(failed):.1f}" if failed else ""]


def _compared(rows: list[dict[str, Any]]) -> list[str]:
    """Ours and torch's seconds, the median of their quotients, and the kernels alone."""
    pairs = [(row["seconds"], row["torch"]["seconds"]) for row in rows]
    floors = [row["floor_seconds"] for row in rows if row["floor_seconds"]]
    quotient = median(theirs / ours for ours, theirs in pairs)
    floor = f"{median(floors):.1f} ({len(floors)})" if floors else ""
    return [
        str(len(rows)),
        *_seconds([one for one, _ in pairs]),
        *_seconds([one for _, one in pairs]),
        f"{quotient:.1f}",
        floor,
    ]
