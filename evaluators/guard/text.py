"""Hints from a program's text, for a person who reads the verdict. Text proves nothing and decides nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from evaluators.guard.evidence import Evidence
from evaluators.records import Finding
from evaluators.syntax import shared_tree

_MOST = 5
_MODULES = {
    "threading": "starts threads",
    "multiprocessing": "starts processes",
    "subprocess": "starts processes",
    "concurrent": "starts threads or processes",
    "socket": "opens sockets",
    "ctypes": "reaches into memory by ctypes",
    "gc": "looks through the process's objects",
    "inspect": "looks at its callers",
    "atexit": "works at the end of the process",
    "weakref": "works when objects end",
    "evaluators": "imports the evaluator",
    "mmap": "maps memory",
    "time": "reads a clock",
}
_ATTRIBUTES = {
    "_getframe": "looks at its callers",
    "data_ptr": "reads addresses of tensors",
    "_version": "reads versions of tensors",
    "fork": "starts processes",
    "__torch_function__": "overrides operators of tensors",
    "__torch_dispatch__": "overrides operators of tensors",
    "Stream": "uses streams of its own",
    "half": "computes at a lower precision",
    "bfloat16": "computes at a lower precision",
    "float16": "computes at a lower precision",
    "allow_tf32": "sets the precision of matrix products",
    "set_float32_matmul_precision": "sets the precision of matrix products",
    "training": "asks whether it is in training",
    "is_grad_enabled": "asks for the gradient mode",
}
_WORDS = {  # of C++ and CUDA
    "thread": "starts threads",
    "async": "works asynchronously",
    "fork": "starts processes",
    "cudaStreamCreate": "uses streams of its own",
    "cudaStreamCreateWithFlags": "uses streams of its own",
    "getStreamFromPool": "uses streams of its own",
    "unordered_map": "keeps a map",
    "__half": "computes at a lower precision",
    "__nv_bfloat16": "computes at a lower precision",
    "cudaCtxResetPersistingL2Cache": "sets the cache's policy",
    "accessPolicyWindow": "sets the cache's policy",
    "dlopen": "loads libraries",
    "mprotect": "changes memory protection",
}
_TOKENS = re.compile(
    r"""//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?          # comments, which may have no end
    |"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?  # literals
    |([A-Za-z_]\w*+)""",
    re.VERBOSE | re.DOTALL,
)
_CPP = re.compile(r"#include\b|__global__|PYBIND11_MODULE|torch::Tensor|at::Tensor")


class TextIsPlain:
    """Names the parts of a program's text that a reader should look at first."""

    def examine(self, evidence: Evidence) -> Iterable[Finding]:
        try:
            body = shared_tree(evidence.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        hints = list(dict.fromkeys(_hints(body)))
        if hints:
            more = f" and {len(hints) - _MOST} more" if len(hints) > _MOST else ""
            yield Finding("text", "hint", f"its text {', '.join(hints[:_MOST])}{more}")


def _hints(body: ast.Module) -> Iterator[str]:
    """What a reader should look at, from top to bottom; in one pass, since handlers of errors may hold others."""
    rest: list[tuple[ast.AST, bool]] = [(body, False)]
    while rest:
        node, in_handler = rest.pop()
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield from _in_string(node.value)
            continue
        if isinstance(node, ast.Return) and in_handler:
            yield "returns another result when it fails"
        yield from _in_python(node)
        in_handler = in_handler or isinstance(node, ast.ExceptHandler)
        children = [(child, in_handler) for child in ast.iter_child_nodes(node) if child._fields]
        children.reverse()
        rest += children


def _in_python(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield from _look_up(_ATTRIBUTES, node.attr)
        if isinstance(node.ctx, ast.Store) and (base := _base(node)) not in ("self", "cls", "ctx", ""):
            yield f"sets attributes of {base}"
    elif isinstance(node, ast.Import):
        for name in node.names:
            yield from _look_up(_MODULES, name.name.partition(".")[0])
    elif isinstance(node, ast.ImportFrom):
        yield from _look_up(_MODULES, (node.module or "").partition(".")[0])
    elif isinstance(node, ast.FunctionDef):
        yield from _look_up(_ATTRIBUTES, node.name)


def _base(node: ast.Attribute) -> str:
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def _in_string(text: str) -> Iterator[str]:
    """Hints from a string that holds C++ or CUDA, but not from comments and literals in it."""
    if _CPP.search(text):
        for word in dict.fromkeys(_TOKENS.findall(text)):
            yield from _look_up(_WORDS, word)


def _look_up(table: dict[str, str], name: str) -> Iterator[str]:
    if name in table:
        yield table[name]
