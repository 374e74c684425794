"""Inputs that a task does not show: other distributions of values, other shapes.

A candidate that leaves out what the shown inputs do not exercise (`relu` on positive numbers, a tail that never occurs)
computes another function; these find it. Nothing here is required of a program whose reference cannot do it either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from evaluators import tree
from evaluators.records import Task
from evaluators.tasks import program_source

_SPREAD = 4.0


def distributions(values: list[Any], generator: torch.Generator) -> Iterator[tuple[str, list[Any]]]:
    """The same inputs with other values in their floating-point tensors: standard normal ones where the task's own are
    never negative, then its own times four. Integers stay, since they are often indices."""
    _, tensors = tree.flatten(values)
    if any(_is_positive(one) for one in tensors):
        drawn = [_normal(one, generator) if _is_positive(one) else one for one in tensors]
        yield "normally distributed", tree.unflatten(values, drawn)
    if any(one.is_floating_point() for one in tensors):
        wide = [one * _SPREAD if one.is_floating_point() else one for one in tensors]
        yield f"{_SPREAD:.0f} times larger", tree.unflatten(values, wide)


def _is_positive(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and bool(tensor.amin() >= 0)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.empty_like(like)  # keeps the strides
    return drawn.normal_(generator=generator)


def shape_variants(task: Task) -> list[dict[str, int]]:
    """Size overrides that change the shapes of the inputs and nothing else: the module-level integers that `get_inputs`
    depends on and neither `get_init_inputs` nor `Model` does. The first at 5/8 of every such size, the second odd."""
    body = ast.parse(program_source(task)).body
    sizes, uses = _constants(body), _names_used(body)
    free = _reachable("get_inputs", uses) - _reachable("get_init_inputs", uses) - _reachable("Model", uses)
    known = {name: sizes[name] for name in sorted(free & set(sizes)) if sizes[name] >= 2}
    if not known:
        return []
    return [
        {name: max(1, 5 * value // 8) for name, value in known.items()},
        {name: max(1, 5 * value // 8 - 1 | 1) for name, value in known.items()},
    ]


def _constants(body: list[ast.stmt]) -> dict[str, int]:
    """Module-level names that are assigned a plain integer."""
    found: dict[str, int] = {}
    for node in body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for name, value in zip(names, values, strict=False):
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and type(value.value) is int:
                        found[name.id] = value.value
    return found


def _names_used(body: list[ast.stmt]) -> dict[str, set[str]]:
    """For every module-level name, the names that its definition reads."""
    uses: dict[str, set[str]] = {}
    for node in body:
        read = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            uses.setdefault(node.name, set()).update(read)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        uses.setdefault(name.id, set()).update(read)
    return uses


def _reachable(start: str, uses: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    queue = [start]
    while queue:
        for name in uses.get(queue.pop(), set()) - found:
            found.add(name)
            queue.append(name)
    return found
