"""Recognises a program that only repeats the reference: it is right, as fast as the reference, and of no use."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from evaluators.syntax import shared_tree

_NAMES = {"Model": "ModelNew"}
_INPUTS = frozenset({"get_inputs", "get_init_inputs"})
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_UNREAD = frozenset({"kind", "type_comment"})  # fields of layout alone


def is_copy(source: str, reference: str) -> bool:
    """Whether a program contains all classes and functions of the reference, with `Model` named `ModelNew`, and does
    nothing else on import that could change them.

    Comments, docstrings, layout, imports, sizes, `get_inputs` and how `super` is called make no difference; another
    name of a variable does. Text that does not parse is no copy.
    """
    wanted, own = _parts_of_reference(reference), _parts(source)
    if not wanted.definitions or not wanted.definitions.keys() <= own.definitions.keys():
        return False
    if not all(_are_alike(own.definitions[name], node) for name, node in wanted.definitions.items()):
        return False
    if not all(any(_are_alike(effect, known) for known in wanted.effects) for effect in own.effects):
        return False
    return wanted.definitions.keys().isdisjoint(_bound_names(own.others))


@dataclass(frozen=True)
class _Parts:
    """The top level of a program: its classes and functions by name, and its other statements; of these, `effects` may
    do more than to bind names."""

    definitions: Mapping[str, _Definition] = field(default_factory=dict)
    others: tuple[ast.stmt, ...] = ()
    effects: tuple[ast.stmt, ...] = ()


@lru_cache(maxsize=512)
def _parts_of_reference(reference: str) -> _Parts:
    return _parts(reference)


def _parts(source: str) -> _Parts:
    """The parts of a program; none if it does not parse."""
    try:
        tree = shared_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Parts()
    named = {node.name: node for node in tree.body if isinstance(node, _Definition) and node.name not in _INPUTS}
    if "ModelNew" in named:
        named.pop("Model", None)  # some programs quote the reference
    others = tuple(node for node in tree.body if not isinstance(node, _Definition))
    definitions = {_NAMES.get(name, name): node for name, node in named.items()}
    return _Parts(definitions, others, tuple(node for node in others if _has_effects(node)))


def _bound_names(statements: tuple[ast.stmt, ...]) -> Iterator[str]:
    for node in statements:
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
        return not _asks_for_the_name(node.test)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return not isinstance(node, ast.Import | ast.ImportFrom | ast.Pass)


def _asks_for_the_name(test: ast.expr) -> bool:
    """Whether a condition is `__name__ == "__main__"`, with any constant."""
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name) or test.left.id != "__name__":
        return False
    return isinstance(test.ops[0], ast.Eq) and all(isinstance(other, ast.Constant) for other in test.comparators)


def _are_alike(first: ast.AST, second: ast.AST) -> bool:
    """Whether two trees are the same but for what makes no difference. It ends at the first difference, so that it
    takes no longer than the smaller tree."""
    rest: list[tuple[Any, Any]] = [(first, second)]
    while rest:
        one, other = rest.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, ast.AST):
            names = [name for name in one._fields if name not in _UNREAD]
            rest += ((_field_of(one, name), _field_of(other, name)) for name in names)
        elif isinstance(one, list):
            if len(one) != len(other):
                return False
            rest += zip(one, other, strict=True)
        elif one != other:
            return False
    return True


def _field_of(node: ast.AST, name: str) -> Any:
    """A field as it is compared: with `ModelNew` for `Model`, without docstrings, and `super()` without arguments."""
    value: Any = getattr(node, name, None)
    if name == "body" and isinstance(node, _Definition):
        return value[1:] or [ast.Pass()] if _is_docstring(value[0]) else value
    if name == "args" and isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        return []
    is_name = name == "id" or (name == "name" and isinstance(node, ast.ClassDef))
    return _NAMES.get(value, value) if is_name else value


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
