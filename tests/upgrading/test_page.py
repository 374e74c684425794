"""Every entry of docs/upgrading.md has its test, and every test its entry."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.upgrading.page import NEEDED, PAGE, RELIED_ON, entries

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def named_tests() -> dict[str, str]:
    """The file of each test that asks for `still`, by the test's name."""
    found = {}
    for file in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any(one.arg == "still" for one in node.args.args):
                found[node.name] = file.name
    return found


def test_entries_and_tests_have_the_same_names() -> None:
    assert sorted(named_tests()) == sorted(entries())


def test_no_entry_comes_twice() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == len(set(rows)) == len(entries())


def test_entries_stand_in_one_of_two_sections_and_name_files_of_ours() -> None:
    for entry in entries().values():
        assert entry.section in (NEEDED, RELIED_ON), entry.name
        paths = re.findall(r"`([\w./-]+\.(?:py|txt|toml))`", entry.where)
        assert paths, entry.name
        assert [path for path in paths if not (ROOT / path).is_file()] == [], entry.name
