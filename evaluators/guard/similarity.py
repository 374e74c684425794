"""How alike two programs are: by what their syntax trees are made of, whatever their names, layout and constants.

A program becomes a bag of small pieces (a node with its parent, three statements in a row, three words of C++ in a row)
and two programs are as alike as the cosine of the angle between their bags. What a program calls (`data_ptr`,
`torch.empty`) keeps its name, since that is what cheats are made of; what it names itself does not.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

from evaluators.syntax import parse_source

_LONG = 40  # characters, from which a string may be a program of another language
_WORD = re.compile(
    r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|\"(?:\\.|[^\"\\\n])*+\"?|([A-Za-z_]\w*+|[{}()\[\];=<>+*/&|-])", re.DOTALL
)
_BUILTINS = frozenset(dir(builtins))


@lru_cache(maxsize=4096)
def pieces(source: str) -> Mapping[str, int]:
    """The bag of a program's pieces; of its words alone where it does not parse."""
    try:
        body = parse_source(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Counter(_in_a_row(_words(source)))
    own = names_of_its_own(body)
    found: Counter[str] = Counter()
    for node in ast.walk(body):
        label = _label(node, own)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr_context):
                found[f"{label}>{_label(child, own)}"] += 1
        for _, value in ast.iter_fields(node):
            if isinstance(value, list):
                found.update(_in_a_row(_label(one, own) for one in value if isinstance(one, ast.stmt)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > _LONG:
            found.update(_in_a_row(_words(node.value)))
    return found


def similarity(one: str, other: str) -> float:
    """0 for programs that have no piece in common, 1 for programs that differ in names and constants at most."""
    return cosine(_by_root(pieces(one)), _by_root(pieces(other)))


def cosine(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Of the angle between two weighted bags; 0 where one is empty."""
    shared = sum(weight * other[piece] for piece, weight in one.items() if piece in other)
    sizes = math.sqrt(sum(weight**2 for weight in one.values()) * sum(weight**2 for weight in other.values()))
    return shared / sizes if sizes else 0.0


def _by_root(bag: Mapping[str, int]) -> dict[str, float]:
    """Counted by the square roots of how often a piece occurs: programs that repeat themselves are not more alike for
    it."""
    return {piece: math.sqrt(count) for piece, count in bag.items()}


def names_of_its_own(body: ast.Module) -> set[str]:
    """What the program binds itself, but for what it imports."""
    found = {node.id for node in ast.walk(body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found - _BUILTINS


def _label(node: ast.AST, own: set[str]) -> str:
    kind = type(node).__name__
    if isinstance(node, ast.Name):
        return "name" if node.id in own else f"name {node.id}"
    if isinstance(node, ast.Attribute):
        return "attribute" if node.attr in own else f"attribute {node.attr}"
    if isinstance(node, ast.Constant):
        return f"constant {type(node.value).__name__}"
    if isinstance(node, ast.alias):
        return f"import {node.name}"
    return kind


def _words(text: str) -> Iterator[str]:
    return (match.group(1) for match in _WORD.finditer(text) if match.group(1))


def _in_a_row(labels: Iterable[str]) -> Iterator[str]:
    """Every three labels that follow each other, or all where they are fewer."""
    listed = list(labels)
    if 0 < len(listed) < 3:
        yield " ".join(listed)
    yield from map(" ".join, zip(listed, islice(listed, 1, None), islice(listed, 2, None), strict=False))
