"""How the benchmarks print a table of figures under a title."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

_WIDTH = 130


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints a table; its first column is left-justified, the others are right-justified. Columns without any name
    have no header."""
    table = Table(*columns, box=None, show_header=any(columns))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*map(str, row))
    print(title)
    Console(width=_WIDTH).print(table)
    print()
