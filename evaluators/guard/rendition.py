"""The form of a program that a reward checker sees: all that the program does, and no text that its author wrote.

A policy that is rewarded for speed may write messages to its judge. So comments and docstrings are left out, the
program's own names become numbers, and strings and foreign names stay only if all their words occur in our own programs
or in the libraries. Characters outside of ASCII are replaced. What is left must never be able to hold a sentence.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import torch

from evaluators.gauntlet.programs import discover
from evaluators.guard.similarity import names_of_its_own
from evaluators.syntax import count_tokens, parse_source
from evaluators.tasks import load_tasks, program_source
from evaluators.tasks.loader import load_variants

LONGEST = 12_000  # characters of a rendition; a longer one loses its middle
_HEAD = LONGEST * 2 // 3
_MOST_TOKENS = 8_000  # of a program: those of a longer one take more than LONGEST characters
_KEPT = frozenset({"ModelNew", "Model", "forward", "self", "cls"})
_LONGEST_TEXT, _MOST_WORDS = 40, 4  # characters and words of a string that is shown
_LONGEST_NUMBER = 20  # digits
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_CPP = re.compile(
    r"""(?P<comment>//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)
    |R"(?P<mark>[^()\\\s"]{0,16})\((?:(?!\)(?P=mark)").)*+(?:\)(?P=mark)")?
    |"(?:\\.|[^"\\\n])*+"?
    |'(?:\\.|[^'\\\n])*+'?
    |(?P<number>\.?\d(?:[\w.']|(?<=[eEpP])[+-])*+)
    |(?P<name>[^\W\d]\w*+)
    |(?P<space>[ \t]++)""",
    re.DOTALL | re.VERBOSE,
)
_CPP_NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]{1,16}|[0-9.]{1,20}(?:[eE][+-]?\d{1,3})?)(?:[uU]?[lL]{0,2}|[fF])")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_PATH_WORDS = (
    "proc self task thread mem maps smaps pagemap environ cmdline fd fdinfo status stat dev shm tmp var home usr"
)
_CPP_WORDS = """
alignas auto bool break case catch char class const constexpr continue default delete do double else enum explicit
extern false float for friend goto if inline int long mutable namespace new noexcept nullptr operator private
protected public reinterpret_cast return short signed sizeof static static_cast struct switch template this throw true
try typedef typename union unsigned using virtual void volatile while define include pragma once ifdef ifndef endif
unroll std size_t int32_t int64_t uint32_t uint64_t __global__ __device__ __shared__ __host__ __restrict__
__launch_bounds__ __syncthreads __shfl_down_sync __shfl_xor_sync __ldg threadIdx blockIdx blockDim gridDim warpSize
dim3 float2 float4 half __half cudaStream_t cudaMemcpyAsync cudaMalloc cudaFree
"""


def rendition(source: str) -> str:
    """The program with numbered names and without its author's words. Empty if the program does not parse, or is too
    long or too deeply nested."""
    try:
        if count_tokens(source) > _MOST_TOKENS:
            return ""
        body = parse_source(source)
        anonymiser = _Anonymiser(body)
        body = anonymiser.visit(body)
        for node in ast.walk(body):
            if getattr(node, "body", None) == []:
                node.body = [ast.Pass()]  # type: ignore[attr-defined]
        text = ast.unparse(ast.fix_missing_locations(body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    text = "\n\n".join([text, *(f"# {name}:\n{code}" for name, code in anonymiser.cpp.items())])
    text = _FOREIGN.sub("?", text)
    if len(text) <= LONGEST:
        return text
    return f"{text[:_HEAD]}\n# ({len(text) - LONGEST} characters are left out)\n{text[_HEAD - LONGEST :]}"


def is_whole(shown: str) -> bool:
    """Whether a rendition shows all of its program."""
    return 0 < len(shown) <= LONGEST


class _Anonymiser(ast.NodeTransformer):
    """Replaces everything in a syntax tree that its author was free to choose. `cpp` collects the strings of C++."""

    def __init__(self, body: ast.Module) -> None:
        self._own = names_of_its_own(body) - _KEPT
        self._attributes = {
            node.attr for node in ast.walk(body) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        } | {node.name for node in ast.walk(body) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        self._numbers: dict[str, str] = {}
        self.cpp: dict[str, str] = {}

    def _name(self, name: str) -> str:
        return name if name not in self._own and self._is_known(name) else self._numbered(name)

    def _foreign(self, name: str) -> str:
        """The form of a name that a library has chosen: a word of C++, or an attribute."""
        return name if self._is_known(name) else self._numbered(name)

    @staticmethod
    def _is_known(name: str) -> bool:
        return all(part in _vocabulary() for part in name.split("."))

    def _numbered(self, name: str) -> str:
        is_special = name.startswith("__") and name.endswith("__") and name in _vocabulary()
        return name if name in _KEPT or is_special else self._numbers.setdefault(name, f"n{len(self._numbers) + 1}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = self._numbered(node.attr) if node.attr in self._attributes else self._foreign(node.attr)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = self._name(node.arg), None
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self.generic_visit(node)
        if node.arg is not None:
            node.arg = self._name(node.arg) if node.arg in self._own else self._foreign(node.arg)
        return node

    def visit_alias(self, node: ast.alias) -> ast.AST:
        node.name = node.name if node.name == "*" else self._name(node.name)
        node.asname = self._name(node.asname) if node.asname else None
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        self.generic_visit(node)
        node.module = self._name(node.module) if node.module else None
        return node

    def _names(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = [self._name(name) for name in node.names]
        return node

    visit_Global = visit_Nonlocal = _names

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.name = self._name(node.name)
        if not isinstance(node, ast.ClassDef):
            node.returns = None
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition

    def _type_parameter(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        node.name = self._name(node.name)
        return cast(ast.AST, node)

    visit_TypeVar = visit_ParamSpec = visit_TypeVarTuple = _type_parameter  # of Python 3.12

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        return ast.Assign([node.target], node.value) if node.value else None

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        node.name = self._name(node.name) if node.name else None
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drops docstrings, and remarks that pretend to be code."""
        return None if isinstance(node.value, ast.Constant | ast.JoinedStr) else self.generic_visit(node)

    def visit_JoinedStr(self, node: Any) -> ast.AST:
        fields = [part for part in node.values if not isinstance(part, ast.Constant)]
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        shown = [self.visit(part) for part in (ast.Constant(text), *(field.value for field in fields))]
        return ast.Call(ast.Name("format"), shown, [])

    visit_TemplateStr = visit_JoinedStr  # of Python 3.14

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if isinstance(value, str):
            if not _is_cpp(value):
                return ast.Constant(_anonymous_text(value, self._foreign))
            name = f"cpp{len(self.cpp) + 1}"
            self.cpp[name] = _anonymous_cpp(value, self._foreign)
            return ast.Name(name)
        if isinstance(value, bytes):
            return ast.Constant(f"<{len(value)} bytes>")
        if isinstance(value, int) and not isinstance(value, bool) and len(f"{abs(value):x}") > _LONGEST_NUMBER:
            return ast.Constant("<a long number>")
        return node

    def visit_MatchAs(self, node: ast.MatchAs) -> ast.AST:
        self.generic_visit(node)
        node.name = self._name(node.name) if node.name else None
        return node

    def visit_MatchStar(self, node: ast.MatchStar) -> ast.AST:
        node.name = self._name(node.name) if node.name else None
        return node

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        self.generic_visit(node)
        node.rest = self._name(node.rest) if node.rest else None
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        self.generic_visit(node)
        node.kwd_attrs = [self._name(name) for name in node.kwd_attrs]
        return node


def _is_cpp(text: str) -> bool:
    return bool(re.search(r"[;{]", text) and re.search(r"__global__|#include|\breturn\b|\bvoid\b", text))


def _anonymous_text(text: str, rename: Callable[[str], str]) -> str:
    """A short string, such as a path or a flag, with its words renamed; of any other string only its length."""
    if not text.isascii() or len(text) > _LONGEST_TEXT or len(_WORD.findall(text)) > _MOST_WORDS:
        return f"<{len(text)} characters>"
    return _WORD.sub(lambda match: rename(match[0]), text)


def _anonymous_cpp(text: str, rename: Callable[[str], str]) -> str:
    """C++ without comments and literals. Its names get the same numbers as in the program around it."""

    def replacement(match: re.Match[str]) -> str:
        if match["name"]:
            return rename(match["name"])
        if match["number"]:
            return match[0] if _CPP_NUMBER.fullmatch(match[0]) else "0"
        return " " if match["comment"] or match["space"] else '"..."'

    return re.sub(r"\n\s*\n+", "\n", _CPP.sub(replacement, text)).strip()


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    """The words of the programs that we wrote, and the names in Python and torch."""
    words: set[str] = {*dir(builtins), *sys.stdlib_module_names, *_CPP_WORDS.split(), *_PATH_WORDS.split()}
    for owner in (torch, torch.Tensor, torch.nn, torch.nn.Module, torch.nn.functional, torch.cuda, sys, object, type):
        words |= set(dir(owner))
    sources = [program.source for program in discover()]
    honest = [program.source for program in discover() if not program.is_exploit]
    for task in load_tasks("bundled"):
        honest += [program_source(task), *(variant.source for variant in load_variants(task.id))]
    for source in sources + honest:
        words |= _names_in(source)
    for source in honest:
        words |= _cpp_in(source)
    return frozenset(words)


def _cpp_in(source: str) -> set[str]:
    """The words of C++ in a program's strings."""
    texts = [node.value for node in ast.walk(parse_source(source)) if isinstance(node, ast.Constant)]
    names = (
        match["name"] for text in texts if isinstance(text, str) and _is_cpp(text) for match in _CPP.finditer(text)
    )
    return {name for name in names if name}


def _names_in(source: str) -> set[str]:
    """The foreign names in a program: of attributes, modules and keywords, and the words of paths."""
    body = parse_source(source)
    own, names = names_of_its_own(body), set[str]()
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names |= set(node.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= set(node.module.split("."))
        elif isinstance(node, ast.keyword) and node.arg:
            names.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "/" in node.value[:_LONGEST_TEXT]:
            names |= set() if " " in node.value else set(_WORD.findall(node.value))
    return names - own
