"""The tables of `benchmarks.texts`."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import Any

from benchmarks.tables import print_table
from benchmarks.texts_readers import READERS

MOST_SECONDS = 0.1
"""By which the judge may take longer for a hostile text than for an ordinary program."""

Row = dict[str, Any]


def excess(row: Row) -> float:
    """Seconds of the judge's processor beyond those for an ordinary program; all of them if no runner was asked."""
    return float(row["cpu"] - (row["ordinary_cpu"] if row["asked"] else 0.0))


def is_slow(row: Row) -> bool:
    """Whether the judge took too long for a hostile text."""
    return bool(row["family"]) and excess(row) > MOST_SECONDS


def print_tables(rows: list[Row]) -> None:
    """Prints the hostile texts by family, the ordinary programs by task, and the readers."""
    hostile = [row for row in rows if row["family"]]
    families: dict[str, list[Row]] = defaultdict(list)
    for row in hostile:
        families[row["family"]].append(row)
    columns = ("", "texts", "outcomes", "median, s", "largest", "beyond", "by the clock", "largest", "over limits")
    lines = [_family(name, group) for name, group in families.items()]
    print_table("The judge's own seconds for hostile texts", columns, [*lines, _family("all", hostile)])
    tasks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if not row["family"]:
            tasks[row["task"]].append(row)
    ordinary = [(task, len(group), *_seconds(group, "cpu"), *_seconds(group, "clock")) for task, group in tasks.items()]
    columns = ("", "programs", "median, s", "largest", "by the clock", "largest")
    print_table("The judge's own seconds for ordinary programs", columns, ordinary)
    print_table(
        "What else reads the text of a response: ms for the same texts",
        ("", "programs", "median", "largest", "family"),
        [_reader(name, hostile) for name in READERS],
    )
    slow, over = sum(map(is_slow, hostile)), sum(row["over_limit"] for row in hostile)
    print(f"{len(hostile)} texts: {over} over their limits, {slow} more than {MOST_SECONDS} s above ordinary programs")


def _family(name: str, rows: list[Row]) -> tuple[Any, ...]:
    outcomes = Counter(row["outcome"] for row in rows).most_common()
    return (
        name,
        len(rows),
        ", ".join(f"{count} {outcome}" for outcome, count in outcomes),
        *_seconds(rows, "cpu"),
        f"{max(map(excess, rows)):+.3f}",
        *_seconds(rows, "clock"),
        sum(row["over_limit"] for row in rows),
    )


def _seconds(rows: list[Row], kind: str) -> tuple[str, str]:
    return f"{median(row[kind] for row in rows):.3f}", f"{max(row[kind] for row in rows):.3f}"


def _reader(name: str, rows: list[Row]) -> tuple[Any, ...]:
    seconds = [(dict(row["reading"])[name], row["family"]) for row in rows]
    largest, family = max(seconds)
    return name, READERS[name][1], f"{1e3 * median(one for one, _ in seconds):.1f}", f"{1e3 * largest:.0f}", family
