"""What a program's text says about what it compiles. Hints only: a program that compiles by other means does so in its
runner, under the start limit."""

from __future__ import annotations

import ast
import re
import sys

from evaluators.syntax import shared_tree

_COMPILE = re.compile(r"\bcompile\(")
_TRITON = re.compile(r"\btriton\b")
_OF_A_GPU = re.compile(r"cuda|gpu|triton|ctypes|cpp|^compile$|^jit$|^ops$|^library$", re.IGNORECASE)
_PLAIN_MODULES = (sys.stdlib_module_names | {"torch", "numpy"}) - {"ctypes", "multiprocessing", "subprocess"}


def builds_extensions(source: str) -> bool:
    """Whether the source mentions torch's C++ and CUDA extensions."""
    return "cpp_extension" in source or "load_inline" in source


def uses_inductor(source: str) -> bool:
    """Whether the source mentions `torch.compile`."""
    if "torch.compile" in source or "_inductor" in source:
        return True
    return "compile(" in source and _COMPILE.search(source) is not None


def compiles_when_called(source: str) -> bool:
    """Whether the source mentions a compiler that works as the program runs: `torch.compile` or Triton."""
    return uses_inductor(source) or ("triton" in source and _TRITON.search(source) is not None)


def needs_build(source: str) -> bool:
    """Whether the source mentions anything that compiles."""
    return builds_extensions(source) or compiles_when_called(source)


def is_plain_torch(source: str) -> bool:
    """Whether the code mentions nothing that a machine without a GPU may lack: it compiles nothing, names no GPU, and
    imports the standard library, numpy and torch alone. Comments and docstrings do not count. False for a text that
    does not parse."""
    try:
        nodes = list(ast.walk(shared_tree(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    remarks = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # strings that nothing is done with
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    if not all(name.partition(".")[0] in _PLAIN_MODULES for name in imported):
        return False
    words = {word for node in nodes if id(node) not in remarks for word in _words(node)}
    return not any(_OF_A_GPU.search(word) for word in words)


def _words(node: ast.AST) -> list[str]:
    """The names and texts that stand in a node itself."""
    values = [value for _, value in ast.iter_fields(node)]
    return [value for value in values if isinstance(value, str)]
