"""The commands of Markdown pages, as a real shell understands them: with its quotes, variables, patterns and comments.

A shell runs each block of a page with functions in the place of our programs. They write down their arguments. Programs
of others do nothing.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:\.venv/bin/)?warpsmith [^`]+)`")
_LANGUAGES = {"", "sh", "bash", "shell", "console"}
_PROGRAMS = (
    r"warpsmith|python3?|mlflow|make|pip|ray|kubectl|helm|docker|sky|sbatch|chromium|vllm|curl|export|\.venv/bin/\w+"
)
_BEGINS = re.compile(rf"^(?:#|[A-Za-z_]+=|(?:exec )?(?:{_PROGRAMS})\b)")
_GRAMMAR = re.compile(r" \[(?:--|key=)|<[A-Z]+>|\|(?:thorough|values)")

_FILE = re.compile(r"# ([\w-]+\.ya?ml)\n")

_RECORDS = r"""
record() { printf '%s\0' BEGIN "$@" >&9; }
for name in warpsmith python python3 mlflow make; do
  eval "$name() { record $name \"\$@\"; }"
  eval ".venv/bin/$name() { record $name \"\$@\"; }"
done
command_not_found_handle() { return 0; }
exec() { "$@"; }
mktemp() { echo folder; }
cd() { :; }
kill() { :; }
PATH=/nowhere
"""


@dataclass(frozen=True)
class Command:
    """A command with its arguments. `page`: relative to the repository."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def blocks(page: Path) -> Iterator[str]:
    """The fenced blocks of a page that are commands. Of a session with its output, the lines after a prompt."""
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        body = re.sub(rf"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
        lines = body.splitlines()
        if match["language"] not in _LANGUAGES or _GRAMMAR.search(body):
            continue
        if any(line.startswith("$ ") for line in lines):
            yield "\n".join(_prompted(lines))
        elif lines and _BEGINS.match(lines[0]):
            yield body


def _prompted(lines: list[str]) -> Iterator[str]:
    goes_on = False
    for line in lines:
        if goes_on or line.startswith("$ "):
            yield line.removeprefix("$ ")
            goes_on = line.rstrip().endswith("\\")


def commands_of(page: Path, name: str, folder: Path) -> Iterator[Command]:
    """The commands of our programs in a page's blocks. `folder`: where the shell runs, which decides what its patterns
    match."""
    script = "\n".join(blocks(page))  # in one shell, as a reader who follows the page
    done = subprocess.run(
        ["/bin/bash", "-c", f"exec 9>&1 1>/dev/null\n{_RECORDS}\n{script}\nwait"],
        cwd=folder, env={}, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert not done.stderr, f"{name}: {done.stderr.decode()}"
    for record in done.stdout.decode().split("BEGIN\0")[1:]:
        yield Command(name, tuple(record.split("\0")[:-1]))


def files_of(page: Path) -> Iterator[tuple[str, str]]:
    """The files that a page shows whole: name and content of blocks that begin with a comment that names a file."""
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        if named := _FILE.match(match["body"]):
            yield named[1], match["body"]


def spans_of(page: Path, name: str) -> Iterator[Command]:
    """The commands that a page names in its text, each optional part taken."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in sorted(set(SPAN.findall(text))):
        words = [word.strip("[]") for word in found.replace("\n", " ").split()]
        yield Command(name, tuple(word for word in words if word not in ("...", "\\|")))
