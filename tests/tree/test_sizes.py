"""The tree stays readable: short files and functions, and no loose modules beside the rooms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("actors", "benchmarks", "cluster", "configs", "evaluators", "learners", "orchestration", "prompts", "tests")
PROGRAMS = ("evaluators/tasks/bundled", "evaluators/gauntlet/exploits", "evaluators/gauntlet/honest")
MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_FUNCTION = 400, 60
LOOSE = {
    "evaluators": {"__init__", "evaluator", "records", "reward", "failures", "syntax"},
    "orchestration": {"__init__", "driver", "session"},
}


def modules() -> Iterator[tuple[str, str]]:
    """Path and text of every module of ours; tasks and gauntlet programs are not code of the project."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(PROGRAMS):
                yield name, path.read_text(encoding="utf-8")


def test_no_file_is_long() -> None:
    lengths = {name: len(text.splitlines()) for name, text in modules()}
    assert len(lengths) > 100
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES_OF_A_FILE} == {}


def test_no_function_is_long() -> None:
    lengths = {
        f"{name}: {node.name}": node.end_lineno - node.lineno + 1
        for name, text in modules()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    assert len(lengths) > 1000
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES_OF_A_FUNCTION} == {}


def test_every_module_has_its_room() -> None:
    for folder, named in LOOSE.items():
        assert {path.stem for path in (ROOT / folder).glob("*.py")} == named
