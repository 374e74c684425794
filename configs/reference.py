"""Makes docs/reference/config.md of `configs.schema`: `python -m configs.reference`, or `make reference`.

The schema is the only source: its comments, ranges, choices and defaults. Writes nothing but that page.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import MISSING

from configs import schema, schema_archs, schema_cluster, schema_phases, schema_tasks
from configs.schema import RunConfig

MODULES = (schema, schema_archs, schema_cluster, schema_phases, schema_tasks)
"""Which modules have the classes of the schema."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "config.md"

_PLACE = r"(?:section|table|equation) [\d.]*\d"
_CITATION = re.compile(rf"CUDA-L1 ({_PLACE}(?:(?:, | and ){_PLACE})*)")
_ONLY_CITATION = re.compile(rf" \({_CITATION.pattern}\)")
_GUIDE, _LINK = re.compile(r"docs/(guides/[\w-]+\.md)"), r"[\1](../\1)"
_TYPE_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}
_LIST_WORDS = {int: "list of whole numbers", str: "list of texts"}
_INTRODUCTION = """\
# Configuration reference

Made from [`configs/schema.py`](../../configs/schema.py), with the modules beside it, by `make reference`.
Do not edit this page: edit the schema.

A run's configuration is a YAML file with these sections, and `section.key=value` on the command line sets single keys.
An unknown key, or a value out of its range, is refused before anything starts. `warpsmith run CONFIG --dry-run` prints
every key with its value. The column *CUDA-L1* says where the paper ([arXiv 2507.14111](https://arxiv.org/abs/2507.14111))
has a setting; without an entry the default is our own choice.
"""


def documentation() -> dict[str, dict[str, str]]:
    """The comment of every field of the schema, on one line, by class and field."""
    found: dict[str, dict[str, str]] = {}
    for module in MODULES:
        source = inspect.getsource(module)
        comments = {
            token.start[0]: token
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
        for section in ast.parse(source).body:
            if isinstance(section, ast.ClassDef):
                annotated = [node for node in section.body if isinstance(node, ast.AnnAssign)]
                found[section.name] = {ast.unparse(node.target): _comment_of(node, comments) for node in annotated}
    return found


def _comment_of(node: ast.AnnAssign, comments: dict[int, tokenize.TokenInfo]) -> str:
    """The comment behind a field, else the block of comment lines directly above it."""
    behind = comments.get(node.end_lineno or node.lineno)
    if behind is not None:
        return behind.string.removeprefix("#").strip()
    block: list[str] = []
    line = node.lineno - 1
    while line in comments and comments[line].start[1] == node.col_offset:
        block.insert(0, comments[line].string.removeprefix("#").strip())
        line -= 1
    return " ".join(block)


def page() -> str:
    """The whole reference as Markdown."""
    comments = documentation()
    return _INTRODUCTION + "".join(_section(RunConfig(name=MISSING), "", comments))


def _section(section: Any, prefix: str, comments: dict[str, dict[str, str]]) -> Iterator[str]:
    """The table of a section's keys, then its inner sections. `prefix`: `learner.`, empty for the run itself."""
    hints = get_type_hints(type(section))
    title = f"`{prefix.rstrip('.')}`" if prefix else "The run"
    summary = " ".join((type(section).__doc__ or "").split())
    yield f"\n## {title}\n\n{_GUIDE.sub(_LINK, summary)}\n\n"
    yield "| key | type or choices | range | default | what it does | CUDA-L1 |\n"
    yield "| --- | --- | --- | --- | --- | --- |\n"
    inner: list[tuple[Any, str]] = []
    for item in fields(section):
        if is_dataclass(getattr(section, item.name)):
            inner.append((getattr(section, item.name), f"{prefix}{item.name}."))
        elif get_origin(hints[item.name]) is dict:
            inner.append((get_args(hints[item.name])[1](), f"{prefix}{item.name}.NAME."))
        else:
            default, comment = getattr(section, item.name), comments[type(section).__name__][item.name]
            yield _row(f"{prefix}{item.name}", hints[item.name], default, item, comment)
    for each, of_each in inner:
        yield from _section(each, of_each, comments)


def _row(key: str, hint: Any, default: Any, item: Field[Any], comment: str) -> str:
    places = ", ".join(_CITATION.findall(comment))
    text = _GUIDE.sub(_LINK, _ONLY_CITATION.sub("", comment))
    cells = (f"`{key}`", _kind(hint, item), _range(item), _default(default), text, places)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _kind(hint: Any, item: Field[Any]) -> str:
    choices = item.metadata.get("choices")
    if choices:
        return ("list of " if get_origin(hint) is list else "") + ", ".join(f"`{choice}`" for choice in choices)
    return _LIST_WORDS[get_args(hint)[0]] if get_origin(hint) is list else _TYPE_WORDS[hint]


def _range(item: Field[Any]) -> str:
    low, high = item.metadata.get("low"), item.metadata.get("high")
    if low is None:
        return ""
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"


def _default(value: Any) -> str:
    if value == MISSING:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`" if value != "" else "empty"


def main() -> None:
    """Writes the page."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
