"""The sizes of a task that belong to its inputs alone, and the other shapes that they allow."""

from __future__ import annotations

import ast
import symtable

from evaluators.records import Task
from evaluators.syntax import parse_source
from evaluators.tasks import program_source


def shape_variants(task: Task) -> list[dict[str, int]]:
    """Size overrides that change the shapes of the inputs and nothing else (`input_sizes`). The first at 5/8 of every
    such size, the second odd."""
    known = input_sizes(task)
    if not known:
        return []
    return [
        {name: max(1, 5 * value // 8) for name, value in known.items()},
        {name: max(1, 5 * value // 8 - 1 | 1) for name, value in known.items()},
    ]


def input_sizes(task: Task) -> dict[str, int]:
    """The sizes of at least 2 that belong to the inputs alone: module-level integers that `get_inputs` depends on and
    neither `get_init_inputs` nor `Model` does, by name."""
    body = parse_source(program_source(task)).body
    sizes, uses = _constants(body), _names_used(body)
    free = _reachable("get_inputs", uses) - _reachable("get_init_inputs", uses) - _reachable("Model", uses)
    return {name: sizes[name] for name in sorted(free & set(sizes)) if sizes[name] >= 2}


def _constants(body: list[ast.stmt]) -> dict[str, int]:
    """Module-level names that are assigned a plain integer and nothing else: what `program_source` can override."""
    found: dict[str, int] = {}
    others: set[str] = set()
    for node in body:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            for name, value in _assigned(target, node.value):
                if isinstance(value, ast.Constant) and type(value.value) is int:
                    found[name] = value.value
                else:
                    others.add(name)
    return {name: value for name, value in found.items() if name not in others}


def _assigned(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr | None]]:
    """The names of an assignment's target and what each is assigned: None where a value stands for several names."""
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    plain: dict[str, ast.expr] = {}
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=False))
        if not any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts)):
            plain = {place.id: one for place, one in pairs if isinstance(place, ast.Name)}
    return [(name, plain.get(name)) for name in _names(target)]


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _names_used(body: list[ast.stmt]) -> dict[str, set[str]]:
    """For every module-level name, the module-level names that its definition reads."""
    uses: dict[str, set[str]] = {}
    for node in body:
        scope = symtable.symtable(ast.unparse(node), "<task>", "exec")
        read = _names_read(scope)
        bound = {one.get_name() for one in scope.get_symbols() if one.is_assigned()}
        for name in bound | _names_changed(node):
            uses.setdefault(name, set()).update(read)
    return uses


def _names_read(scope: symtable.SymbolTable) -> set[str]:
    """The module's names that a scope and those within it read; a function's own variables are not among them."""
    found = {
        one.get_name()
        for one in scope.get_symbols()
        if one.is_referenced() and (one.is_global() or not isinstance(scope, symtable.Function))
    }
    return found.union(*map(_names_read, scope.get_children()))


def _names_changed(node: ast.stmt) -> set[str]:
    """The names whose items or attributes a module-level assignment sets, as in `sizes["n"] = n`."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return set().union(*map(_names, targets))


def _reachable(start: str, uses: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    queue = [start]
    while queue:
        for name in uses.get(queue.pop(), set()) - found:
            found.add(name)
            queue.append(name)
    return found
