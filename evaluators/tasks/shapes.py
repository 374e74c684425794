"""Finds the sizes of a task that only its inputs depend on, and the other input shapes that they allow.

Reads the program's text only; nothing is executed here.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator

from evaluators.records import Task
from evaluators.syntax import parse_source
from evaluators.tasks import program_source

_LEAST_SIZE = 4


def shape_variants(task: Task) -> list[dict[str, int]]:
    """Two sets of size overrides that change the shapes of the inputs and nothing else; none if no size allows that.

    The first has 5/8 of every such size (`input_sizes`), the second odd sizes close to that.
    """
    sizes = input_sizes(task)
    if not sizes:
        return []
    return [
        {name: max(1, 5 * value // 8) for name, value in sizes.items()},
        {name: max(1, 5 * value // 8 - 1 | 1) for name, value in sizes.items()},
    ]


def smaller_shapes(task: Task) -> Iterator[dict[str, int]]:
    """Size overrides that make the inputs small and change nothing else, the smallest first; the last one leaves all
    sizes as they are. No size falls below 4."""
    sizes = input_sizes(task)
    tried: list[dict[str, int]] = []
    for divisor in (64, 16, 4, 1):
        smaller = {name: min(value, max(_LEAST_SIZE, value // divisor)) for name, value in sizes.items()}
        if smaller not in tried:
            tried.append(smaller)
            yield smaller


def input_sizes(task: Task) -> dict[str, int]:
    """The sizes that belong to the inputs alone, by name: module-level integers of at least 2 that `get_inputs` depends
    on and neither `get_init_inputs` nor `Model` does."""
    body = parse_source(program_source(task)).body
    sizes, uses = _constants(body), _names_used(body)
    free = _reachable("get_inputs", uses) - _reachable("get_init_inputs", uses) - _reachable("Model", uses)
    return {name: sizes[name] for name in sorted(free & set(sizes)) if sizes[name] >= 2}


def _constants(body: list[ast.stmt]) -> dict[str, int]:
    """Module-level names that are assigned a plain integer and nothing else, so that `program_source` can override
    them."""
    integers: dict[str, int] = {}
    others: set[str] = set()
    for node in body:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            for name, value in _assigned(target, node.value):
                if isinstance(value, ast.Constant) and type(value.value) is int:
                    integers[name] = value.value
                else:
                    others.add(name)
    return {name: value for name, value in integers.items() if name not in others}


def _assigned(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr | None]]:
    """The names of an assignment's target, each with the value that it gets; None if one value is for several names."""
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    plain: dict[str, ast.expr] = {}
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=False))
        if not any(isinstance(element, ast.Starred) for element in (*target.elts, *value.elts)):
            plain = {name.id: element for name, element in pairs if isinstance(name, ast.Name)}
    return [(name, plain.get(name)) for name in _names(target)]


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _names_used(body: list[ast.stmt]) -> dict[str, set[str]]:
    """For every module-level name, the module-level names that its definition reads."""
    uses: dict[str, set[str]] = {}
    for node in body:
        scope = symtable.symtable(ast.unparse(node), "<task>", "exec")
        read = _names_read(scope)
        bound = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_assigned()}
        for name in bound | _names_changed(node):
            uses.setdefault(name, set()).update(read)
    return uses


def _names_read(scope: symtable.SymbolTable) -> set[str]:
    """The module's names that a scope and the scopes within it read, without a function's own variables."""
    names = {
        symbol.get_name()
        for symbol in scope.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or not isinstance(scope, symtable.Function))
    }
    return names.union(*map(_names_read, scope.get_children()))


def _names_changed(node: ast.stmt) -> set[str]:
    """The names whose items or attributes a module-level assignment sets, as in `sizes["n"] = n`."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return set().union(*map(_names, targets))


def _reachable(start: str, uses: dict[str, set[str]]) -> set[str]:
    """The names that a definition reads, directly or through other definitions."""
    reached: set[str] = set()
    queue = [start]
    while queue:
        for name in uses.get(queue.pop(), set()) - reached:
            reached.add(name)
            queue.append(name)
    return reached
