"""Tells a program that only hands the reference back: right, as fast as it, and no use."""

from __future__ import annotations

import ast
from functools import lru_cache

from evaluators.syntax import normalised_source, parse_source

_NAMES = {"Model": "ModelNew"}
_INPUTS = frozenset({"get_inputs", "get_init_inputs"})
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def is_copy(source: str, reference: str) -> bool:
    """Whether a program's classes and functions contain all of the reference's, `Model` under the name of `ModelNew`.

    Comments, docstrings, layout, imports, sizes, `get_inputs` and how `super` is called make no difference; another
    name of a variable does. Text that does not parse is no copy.
    """
    wanted = _definitions(reference)
    return bool(wanted) and wanted <= _definitions(source)


@lru_cache(maxsize=1024)
def _definitions(source: str) -> frozenset[str]:
    """The top-level classes and functions of a program, each as normalised text; empty where it does not parse."""
    try:
        tree = parse_source(normalised_source(source))
        named = {node.name: node for node in tree.body if isinstance(node, _Definition)}
        if "ModelNew" in named:
            named.pop("Model", None)  # some programs quote the reference
        return frozenset(ast.unparse(_Renamed().visit(node)) for name, node in named.items() if name not in _INPUTS)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


class _Renamed(ast.NodeTransformer):
    """The same definition with `ModelNew` for `Model`, and `super()` for `super(ModelNew, self)`."""

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
