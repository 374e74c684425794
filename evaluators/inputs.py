"""Inputs that a task does not show: other distributions of values, other shapes.

A candidate that leaves out what the shown inputs do not exercise (`relu` on positive numbers, a tail that never occurs)
computes another function; these find it. Nothing here is required of a program whose reference cannot do it either.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from evaluators import tree
from evaluators.records import Task
from evaluators.syntax import parse_source
from evaluators.tasks import program_source

_LAST_BITS = {torch.float32: (torch.int32, 19), torch.float64: (torch.int64, 48)}  # all but the first four
_ALTERNATING = 0x5555_5555_5555_5555
_SPREAD, _FAR = 4.0, 64.0  # times the task's own; the exponential of 89 overflows single precision


def distributions(values: list[Any], generator: torch.Generator) -> Iterator[tuple[str, list[Any]]]:
    """The same inputs with other values in their floating-point tensors: standard normal ones where the task's own are
    never negative, then its own times 4 and times 64. Integers stay, since they are often indices."""
    _, tensors = tree.flatten(values)
    if any(_is_positive(one) for one in tensors):
        drawn = [_normal(one, generator) if _is_positive(one) else one for one in tensors]
        yield "normally distributed", tree.unflatten(values, drawn)
    if any(one.is_floating_point() for one in tensors):
        wide = [one * _SPREAD if one.is_floating_point() else one for one in tensors]
        yield f"{_SPREAD:.0f} times larger", tree.unflatten(values, wide)
        far = [one * _FAR if one.is_floating_point() else one for one in tensors]
        yield f"{_FAR:.0f} times larger", tree.unflatten(values, far)


def rounding_alike(values: list[Any]) -> list[Any] | None:
    """The same inputs, but for the last bits of their numbers, which are 0101...: at whatever precision less than its
    own each is taken, it loses a third of a unit in the last place, in the direction in which all others do. Rounding
    errors that a sum averages away otherwise then add up. None without numbers of 32 or 64 bits."""
    _, tensors = tree.flatten(values)
    if not any(one.dtype in _LAST_BITS for one in tensors):
        return None
    return tree.unflatten(values, [_with_last_bits(one) if one.dtype in _LAST_BITS else one for one in tensors])


def _with_last_bits(tensor: Tensor) -> Tensor:
    integers, count = _LAST_BITS[tensor.dtype]
    mask = (1 << count) - 1
    changed = ((tensor.view(integers) & ~mask) | (_ALTERNATING & mask)).view(tensor.dtype)
    is_normal = (tensor.abs() >= torch.finfo(tensor.dtype).tiny) & torch.isfinite(tensor)
    return torch.where(is_normal, changed, tensor)


def _is_positive(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and bool(tensor.amin() >= 0)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.empty_like(like)  # keeps the strides
    return drawn.normal_(generator=generator)


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
