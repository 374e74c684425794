"""Whatever a Markdown page names exists: paths, modules, links, configuration keys, `make` targets, commands."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from configs.checks import leaves
from configs.schema import ArchConfig, EvaluationConfig, RunConfig, SftConfig, TeacherConfig
from orchestration.commands.main import app

ROOT = Path(__file__).parents[2]
FOLDERS = "evaluators|orchestration|actors|learners|prompts|configs|cluster|benchmarks|tests|docs"
PACKAGES = FOLDERS.removesuffix("|tests|docs")

PATH = re.compile(rf"(?<![\w/.~%-])(?:\.\./)*((?:{FOLDERS})/[\w./*-]*)")
MODULE = re.compile(rf"(?<![\w/.-])((?:{PACKAGES})(?!\.(?:md|py)\b)(?:\.\w+)+)(?![\w/*-])")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
IMAGE = re.compile(r'<img [^>]*src="([^"]+)"')
HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"`make ([a-z-]+)")
SEVERAL = EvaluationConfig({"NAME": ArchConfig()})
TEACHERS = SftConfig(endpoints={"NAME": TeacherConfig()})
KEYS = {key for key, _, _ in leaves(RunConfig(name="any", evaluation=SEVERAL, sft=TEACHERS))}
SECTIONS = {key[: end.start()] for key in KEYS for end in re.finditer(r"\.", key)}
KEY = re.compile(rf"(?<![\w/.-])((?:{'|'.join(SECTIONS)})\.(?!(?:md|py|jsonl)\b)[a-z_.]*[a-z])(?![\w/(])")
FORMER_KEYS = {  # of earlier runs; the pages say what does the same today
    "contrastive_rl.hide_best",
    "reward.copies",
    "reward.offset",
    "sft.beat_exemplars",
}
COMMAND = re.compile(r"(?:^|`|bin/)warpsmith ([a-z]+)", re.MULTILINE)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def names(pattern: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    for page in pages():
        for name in sorted(set(pattern.findall(page.read_text(encoding="utf-8")))):
            yield page, name


def missing(pattern: re.Pattern[str], exists: Callable[[str], object]) -> list[str]:
    return [f"{page.relative_to(ROOT)}: {name}" for page, name in names(pattern) if not exists(name)]


def path_exists(name: str) -> bool:
    name = name.rstrip(".")
    return any(ROOT.glob(name.rstrip("/"))) if "*" in name else (ROOT / name).exists()


def module_exists(name: str) -> bool:
    """Whether a dotted name is a module or package, or a name that one of them defines."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        source = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
        if source.is_file():
            return length == len(parts) or parts[length] in defined_names(source)
    return False


def defined_names(source: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.ImportFrom(names=aliases):
                found.update(alias.asname or alias.name for alias in aliases)
    return found


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def link_works(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_every_path_of_a_page_exists() -> None:
    assert missing(PATH, path_exists) == []


def test_every_module_of_a_page_exists() -> None:
    assert missing(MODULE, lambda name: name in KEYS or module_exists(name)) == []  # `cluster` is a section, too


def test_every_configuration_key_of_a_page_exists() -> None:
    assert missing(KEY, (KEYS | SECTIONS | FORMER_KEYS).__contains__) == []


def test_every_make_target_of_a_page_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert missing(TARGET, lambda name: re.search(rf"^{name}:", makefile, re.MULTILINE)) == []


def test_every_command_of_a_page_exists() -> None:
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {group.name for group in app.registered_groups}
    assert missing(COMMAND, commands.__contains__) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = [*LINK.findall(text), *IMAGE.findall(text)]
    assert [link for link in links if not link_works(page, link)] == []
