"""How alike two programs are, by the pieces of their syntax trees, whatever their names, layout and constants.

A program becomes a bag of small pieces: a node with its parent, three statements in a row, three words of C++ in a row.
The similarity of two programs is the cosine of the angle between their bags. Names that a program calls (`data_ptr`,
`torch.empty`) are kept, since cheats are made of them; names that it defines itself are not.
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

from evaluators.syntax import shared_tree

_LONG = 40  # characters: a longer string may be a program in another language
_WORD = re.compile(
    r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|\"(?:\\.|[^\"\\\n])*+\"?|([A-Za-z_]\w*+|[{}()\[\];=<>+*/&|-])", re.DOTALL
)
_BLOCKS = ("body", "orelse", "finalbody")  # fields that hold statements in a row
_BUILTINS = frozenset(dir(builtins))


@lru_cache(maxsize=4096)
def pieces(source: str) -> Mapping[str, int]:
    """The bag of a program's pieces, with their counts. If the program does not parse, the pieces are of its words
    alone."""
    try:
        body = shared_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Counter(_in_a_row(_words(source)))
    own = names_of_its_own(body)
    found: list[str] = []
    rest: list[tuple[ast.AST, str]] = [(body, _label(body, own))]
    while rest:
        node, label = rest.pop()
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and len(node.value) > _LONG:
                found += _in_a_row(_words(node.value))
            continue
        children = [
            (child, _label(child, own))
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.expr_context)
        ]
        found += [f"{label}>{name}" for _, name in children]
        for block in _BLOCKS:
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                found += _in_a_row(type(statement).__name__ for statement in statements)
        rest += children
    return Counter(found)


def similarity(first: str, second: str) -> float:
    """0 for programs that have no piece in common, 1 for programs that differ in names and constants at most."""
    return cosine(_square_roots(pieces(first)), _square_roots(pieces(second)))


def cosine(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The cosine of the angle between two weighted bags; 0 if either is empty."""
    shared = sum(weight * second[piece] for piece, weight in first.items() if piece in second)
    sizes = math.sqrt(sum(weight**2 for weight in first.values()) * sum(weight**2 for weight in second.values()))
    return shared / sizes if sizes else 0.0


def _square_roots(bag: Mapping[str, int]) -> dict[str, float]:
    """The square roots of the counts, so that programs that repeat themselves are not more alike because of that."""
    return {piece: math.sqrt(count) for piece, count in bag.items()}


def names_of_its_own(body: ast.Module) -> set[str]:
    """The names that the program binds itself, without those that it imports."""
    names: set[str] = set()
    for node in ast.walk(body):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                names.add(node.id)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                names.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return names - _BUILTINS


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
    """Every three labels in a row, joined; all of them if there are fewer than three."""
    listed = list(labels)
    if 0 < len(listed) < 3:
        yield " ".join(listed)
    yield from map(" ".join, zip(listed, islice(listed, 1, None), islice(listed, 2, None), strict=False))
