"""Every command of README and docs is one that the command line takes: its options, its arguments, its configuration.

Those that need neither a GPU nor a cluster nor hours are also run, in a folder with what the pages speak of.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from configs.load import ConfigError, load_config
from orchestration.commands.main import app
from orchestration.setup.inputs import check_inputs
from orchestration.setup.tasks import select_tasks
from tests.docs.shell import Command, commands_of, files_of, spans_of
from tests.orchestration.report.full_run import write_full_run

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "results" not in page.relative_to(ROOT).parts),
]
OF_EARLIER_VERSIONS = {"docs/guides/earlier-runs.md"}
"""Pages that say how runs were made, in the configuration of their time."""
OF_OWN_TESTS = {"docs/guides/kernelbench.md", "docs/guides/collect.md"}
"""Guides whose commands a test of their own runs, one after the other."""
TAKE_KEYS = {"run": 0, "plan": 0, "submit": 0, "baseline": None, "serve": None}
"""By command, the place of its configuration among its words; the others are `key=value`."""


UsageError = typer.BadParameter.__mro__[1]  # of the click that this version of typer has
"""What the command line raises for words that it does not take."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of the repository, with the runs, tasks and programs that the pages speak of."""
    made = tmp_path_factory.mktemp("reader")
    for name in ("docs", "configs", "evaluators", "benchmarks"):
        (made / name).symlink_to(ROOT / name)
    for name in ("demo", "coder", "first", "second"):
        write_full_run(made / "runs", name)
    for page in PAGES:
        for file, text in files_of(page):
            (made / file).write_text(text)
    kernels = made / "kernels" / "level1"
    kernels.mkdir(parents=True)
    bundled = ROOT / "evaluators" / "tasks" / "bundled"
    for own in (kernels / "1_softmax.py", made / "my.py"):
        shutil.copy(bundled / "level1" / "softmax" / "reference.py", own)
    for number, task in ((1, "softmax"), (7, "gelu_tanh")):
        place = made / "path" / "to" / "KernelBench" / "level1" / f"{number}_{task}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(bundled / "level1" / task / "reference.py", place)
    rows = [
        {"level_id": 1, "task_id": number, "ref_code": (bundled / "level1" / task / "reference.py").read_text()}
        for number, task in ((1, "softmax"), (2, "gelu_tanh"))
    ]
    for file, chosen in (("tasks.jsonl", rows[:1]), ("held-out.jsonl", rows[1:]), ("runs/generated.jsonl", rows[:1])):
        (made / file).write_text("".join(f"{json.dumps(row)}\n" for row in chosen))
    return made


@pytest.fixture(scope="module")
def commands(folder: Path) -> list[Command]:
    return [command for page in PAGES for command in commands_of(page, name_of(page), folder)]


@pytest.fixture
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@cache
def command_line() -> Any:
    """All commands of `warpsmith`, which take a while to make."""
    return typer.main.get_command(app)


def parse(words: tuple[str, ...]) -> list[str]:
    """Parses the words after `warpsmith` as the command line does. Returns the names of the commands that take them.
    Raises UsageError."""
    command = command_line()
    names, rest = [], list(words)
    context = command.context_class(command, info_name="warpsmith")
    while rest and hasattr(command, "resolve_command"):  # a page may name a group alone
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None
        names.append(name)
        if not hasattr(command, "resolve_command"):
            command.make_context(name, rest, parent=context)
    return names


def of_warpsmith(commands: list[Command]) -> Iterator[Command]:
    return (command for command in commands if command.words[0] == "warpsmith")


def failures(commands: Iterator[Command], check: Callable[[Command], object]) -> list[str]:
    found = []
    for command in commands:
        try:
            check(command)
        except (UsageError, ConfigError) as error:
            found.append(f"{command}: {getattr(error, 'message', error)}")
    return found


def test_a_shell_finds_the_commands_of_every_guide(commands: list[Command]) -> None:
    assert len(list(of_warpsmith(commands))) > 60
    found = {command.page for command in of_warpsmith(commands)}
    for page in ("README.md", *(f"docs/guides/{name}.md" for name in ("tasks", "real-model", "evolve", "evaluating"))):
        assert page in found, page
    assert Command("docs/guides/runs.md", ("warpsmith", "report", "runs/demo")) in commands


def test_every_command_of_a_block_is_taken_by_the_command_line(commands: list[Command]) -> None:
    assert failures(of_warpsmith(commands), lambda command: parse(command.words[1:])) == []


@pytest.mark.parametrize("words", [("report", "runs/demo", "--folow"), ("serve", "--archs", "cpu"), ("reprot", "x")])
def test_a_wrong_option_or_command_would_be_found(words: tuple[str, ...]) -> None:
    assert failures(iter([Command("page", ("warpsmith", *words))]), lambda command: parse(command.words[1:])) != []


def test_every_option_that_the_text_names_exists() -> None:
    """In the text, placeholders stand for values, and arguments are left out."""

    def check(command: Command) -> None:
        try:
            parse(command.words[1:])
        except UsageError as error:
            if str(getattr(error, "message", "")).startswith("No such"):
                raise

    spans = (command for page in PAGES for command in spans_of(page, name_of(page)))
    assert failures(spans, check) == []


def test_every_configuration_of_a_block_is_one(commands: list[Command], there: Path) -> None:
    """Names, types and bounds of all keys, as `warpsmith run` checks them first of all."""

    def check(command: Command) -> None:
        words = [word for word in command.words[2:] if not word.startswith("--")]
        place = TAKE_KEYS[command.words[1]]
        overrides = [word for word in words if "=" in word and not word.startswith(("http", "/"))]
        takes_one = place == 0 and words and "=" not in words[0] and "--from-bundle" not in command.words
        first = words[0] if takes_one else "local"
        load_config(first, [*overrides, *(["name=any"] if first.endswith(".yaml") else [])])

    taking = (
        command
        for command in of_warpsmith(commands)
        if command.words[1] in TAKE_KEYS and command.page not in OF_EARLIER_VERSIONS
    )
    wrong = failures(taking, check)
    assert wrong == [], "\n".join(wrong)


def test_every_configuration_that_a_page_shows_finds_its_tasks_and_teachers(there: Path) -> None:
    """A reader has what ships with Warpsmith, and no file that the page does not speak of."""
    shown = {file for page in PAGES for file, _ in files_of(page)}
    assert {"coder.yaml", "team.yaml"} <= shown
    for file in shown:
        config = load_config(file, ["name=any"])
        assert select_tasks(config.tasks), file
        check_inputs(config, hub=False)


_NEEDS = (
    "h200", "arch=H", "Qwen", "data/", "--from-bundle", "--address", "verdicts_of", "guard.checker", "containment",
    "audits.parquet", "programs.jsonl", "sft.teachers=[http", "https://HOST", "FILE", "runs/NAME",
)  # fmt: skip
"""What a page speaks of that is not in the folder of these tests: GPUs, models, clusters, services, other runs."""


def as_tried(command: Command) -> Command | None:
    """The command as it is run here: what would train is only planned. None if it needs what is not there, or long."""
    if command.words[0] != "warpsmith" or command.page in OF_EARLIER_VERSIONS | OF_OWN_TESTS:
        return None
    name, words = command.words[1], command.words[2:]
    if name == "plan":
        return Command("", command.words)
    if any(need in word for word in words for need in _NEEDS):
        return None
    if name in ("run", "evolve", "sweep"):
        planned = command.words if {"--dry-run", "--table"} & set(words) else (*command.words, "--dry-run")
        return Command("", (*planned, "root=planned") if name == "run" else planned)  # in `runs` are others' runs
    is_quick = name in ("report", "compare", "status", "watch", "cluster") or (name, "--generate" in words) == (
        "tasks",
        False,
    )
    return Command("", command.words) if is_quick else None


@pytest.fixture
def carried_out(there: Path) -> Callable[[Command], Result]:
    return lambda command: CliRunner().invoke(app, list(command.words[1:]))


@pytest.mark.slow
def test_what_needs_no_gpu_no_cluster_and_no_hours_is_run(
    folder: Path, commands: list[Command], carried_out: Callable[[Command], Result]
) -> None:
    # As demo and ablation say that they are made: they hold out some of these tasks by name.
    generated = CliRunner().invoke(app, ["tasks", "--generate", "12", "--output", str(folder / "runs/generated.jsonl")])
    assert generated.exit_code == 0, generated.output
    chosen = list(dict.fromkeys(tried for command in commands if (tried := as_tried(command)) is not None))
    assert len(chosen) >= 24, list(map(str, chosen))
    wrong = []
    for command in chosen:
        done = carried_out(command)
        if done.exit_code:
            wrong.append(f"{command}: exit code {done.exit_code}: {done.output[-500:]}{done.exception or ''}")
    assert wrong == [], "\n".join(wrong)


def test_every_target_of_make_is_one(commands: list[Command]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {line.partition(":")[0] for line in makefile.splitlines() if line and line[0].isalpha()}
    named = {
        word for command in commands if command.words[0] == "make" for word in command.words[1:] if "=" not in word
    }
    assert named - targets == set()


def test_the_fifths_of_the_slow_tests_are_all_of_them() -> None:
    fifths = [part for number in range(1, 6) for part in _parts_of("test-slow", f"FIFTH={number}")]
    assert sorted(fifths) == sorted(_parts_of("test-all"))


def _parts_of(*words: str) -> list[str]:
    """What make would give to pytest, part by part, but for the marks it selects."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    printed = subprocess.run(
        ["make", "-n", *words], cwd=ROOT, env=outside, capture_output=True, text=True, check=True
    ).stdout
    parts = [line.partition(" -m pytest ")[2] for line in printed.splitlines() if " -m pytest " in line]
    return [part.removeprefix("-m slow").strip() for part in parts]


class _Parsed(Exception):
    """The words of a script were taken."""


@pytest.mark.slow
def test_every_benchmark_takes_its_words(commands: list[Command], monkeypatch: pytest.MonkeyPatch, there: Path) -> None:
    """Each script parses its words first of all; nothing else of it is run here."""
    of_parser = argparse.ArgumentParser.parse_args

    def parse_alone(parser: argparse.ArgumentParser, *arguments: Any, **named: Any) -> None:
        of_parser(parser, *arguments, **named)
        raise _Parsed

    def do_not_invoke(*_: Any) -> None:
        raise _Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_alone)
    monkeypatch.setattr(typer.core.TyperCommand, "invoke", do_not_invoke)
    wrong, checked = [], 0
    for command in commands:
        if command.words[0] != "python" or (command.words[1:2] == ("-m",) and not command.words[2].startswith("bench")):
            continue
        if command.words[1] == "-m":
            name, words = command.words[2], command.words[3:]
        elif command.words[1].startswith("benchmarks/"):
            name, words = command.words[1].removesuffix(".py").replace("/", "."), command.words[2:]
        else:
            continue
        monkeypatch.setattr(sys, "argv", [name, *words])
        try:
            runpy.run_module(name, run_name="__main__")
            wrong.append(f"{command}: it parsed nothing")
        except _Parsed:
            checked += 1
        except SystemExit as end:
            wrong.append(f"{command}: exit code {end.code}")
    assert wrong == []
    assert checked >= 20


def test_make_mlflow_and_readme_name_one_server(commands: list[Command]) -> None:
    """`mlflow ui` has the options that the pages give it."""
    from mlflow.cli import cli

    named = [command for command in commands if command.words[0] == "mlflow"]
    assert named
    for command in named:
        name, found, rest = cli.resolve_command(cli.context_class(cli), list(command.words[1:]))
        assert found is not None
        found.make_context(name, list(rest))
