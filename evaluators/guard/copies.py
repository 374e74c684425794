"""Recognises a program that only repeats the reference: it is right, as fast as the reference, and of no use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from evaluators.syntax import parse_source

_NAMES = {"Model": "ModelNew"}
_INPUTS = frozenset({"get_inputs", "get_init_inputs"})
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def is_copy(source: str, reference: str) -> bool:
    """Whether a program contains all classes and functions of the reference, with `Model` named `ModelNew`, and does
    nothing else on import that could change them.

    Comments, docstrings, layout, imports, sizes, `get_inputs` and how `super` is called make no difference; another
    name of a variable does. Text that does not parse is no copy.
    """
    wanted, own = _parts(reference), _parts(source)
    if not wanted.definitions or not wanted.definitions <= own.definitions:
        return False
    return own.effects <= wanted.effects and own.bound.isdisjoint(wanted.names)


@dataclass(frozen=True)
class _Parts:
    """The top level of a program, as normalised text: its classes and functions, and their names; the names that other
    statements bind; and the statements that may do more than to bind names."""

    definitions: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    effects: frozenset[str] = frozenset()


@lru_cache(maxsize=1024)
def _parts(source: str) -> _Parts:
    """The parts of a program; none if it does not parse."""
    try:
        tree = _without_docstrings(parse_source(source))
        named = {node.name: node for node in tree.body if isinstance(node, _Definition) and node.name not in _INPUTS}
        if "ModelNew" in named:
            named.pop("Model", None)  # some programs quote the reference
        others = [node for node in tree.body if not isinstance(node, _Definition)]
        bound = {name for node in others for name in _bound_names(node)}
        return _Parts(
            frozenset(ast.unparse(_Renamer().visit(node)) for node in named.values()),
            frozenset(_NAMES.get(name, name) for name in named),
            frozenset(bound),
            frozenset(ast.unparse(node) for node in others if _has_effects(node)),
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Parts()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


def _bound_names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    else:
        names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
        yield from (name.id for name in names if isinstance(name.ctx, ast.Store))


def _has_effects(node: ast.stmt) -> bool:
    """Whether a statement does more than to bind names, when the program is imported."""
    if isinstance(node, ast.Assign):
        return not all(isinstance(target, ast.Name) for target in node.targets)
    if isinstance(node, ast.AnnAssign):
        return not isinstance(node.target, ast.Name)
    if isinstance(node, ast.If):
        return not ast.unparse(node.test).startswith("__name__ ==")
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return not isinstance(node, ast.Import | ast.ImportFrom | ast.Pass)


class _Renamer(ast.NodeTransformer):
    """Gives the same definition with `ModelNew` for `Model`, and `super()` for `super(ModelNew, self)`."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.name = _NAMES.get(node.name, node.name)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = _NAMES.get(node.id, node.id)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = []
        return node
