"""Whatever a program's text holds, reading it takes time in proportion to its length.

Seconds are those of the processor, since other tests load the machine.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluators.compile import blame, farm, hints
from evaluators.compile.messages import compiler_message
from evaluators.guard.copies import _parts
from evaluators.guard.rendition import rendition
from evaluators.guard.similarity import pieces
from evaluators.guard.text import TextIsPlain
from evaluators.judge.witness import OwnKernels
from evaluators.records import Candidate
from evaluators.syntax import parse_source, why_not_python

_LONGEST = 200_000
_TEXT_SECONDS = 0.1
_TREE_SECONDS = 4.0  # Python itself takes up to a second for the tree of such a text

FRAGMENTS = [
    *("(", "[", "{", ")", "]", "}", "((", "[(", "{[", "()", "{}"),
    *("'", '"', "'''", '"""', "\\", "\\'", '\\"', "\\\\", 'R"(', 'R"a(', ')a"', "f'{", "}'", 'f"{x'),
    *("/*", "*/", "//", "/", "*", "#", "/**", "# \n", "//\n", "/*\n"),
    *("__global__", "__global__ ", "__global__ a ", "__global__ a(", "__global__;", "__global__ void f(int a) {}\n"),
    *("@triton.jit", "@triton.jit\n", "@jit ", "@jit def ", "@triton.jit\ndef f(x):\n    pass\n", "def f ", "def "),
    *("a", "_", "9", " ", "\n", "\t", "\r", ";", ",", ".", ".a", "-", "not ", "~", "a.", "1+", "a,", "a=", "x[", "*a,"),
    *("lambda: ", "lambda x=", "if 1:\n ", "for a in a:", "a if a else ", "await ", "yield ", "a := ", "async "),
    *("#include <a>\n", "return ", "void ", "torch::Tensor ", "at::", "PYBIND11_MODULE", "threads", "thread "),
    *("\u00e9", "\u4e00", "\U0001f600", "\u200b", "\u2028", "\x0c", "\x00", "\ufeff", "\u0661", "\ud800"),
    *("/@", "/a", "/a ", "| ", "1 | ", "\n ", "a(1): error: ", "a:1: error: b\n", "error: redefinition of '", "error "),
    *(
        "'const warpsmith::Function* warpsmith_module_a(",
        "'void warpsmith_fill_a(",
        'identifier "',
        'def("a")',
        "compile(",
    ),
    *("if a:\n    a = 1\n", "class A:\n    pass\n", "x = 1\n", "import a\n", "a.b.c = 1\n", "x = [1, 2]\n"),
]
IN_A_STRING = "x = r'''\n#include <a>;\nreturn {}'''\n"
FORMS = ["{}", "# {}\n", "x = ({}\n)", "x = 1\n{}", "error: {}\n", "a{}a", IN_A_STRING]


def hostile_texts(mixtures: int = 60) -> list[str]:
    """Each fragment repeated, as it is and in a string of C++, then mixtures of some."""
    draw = random.Random(7)
    texts = [form.replace("{}", repeated(part, _LONGEST)) for part in FRAGMENTS for form in ("{}", IN_A_STRING)]
    for _ in range(mixtures):
        body = repeated("".join(draw.choices(FRAGMENTS, k=draw.randint(2, 4))), draw.choice([20_000, _LONGEST]))
        start, end = draw.choices(["", "a", "\n", *FRAGMENTS], k=2)
        texts.append(draw.choice(FORMS).replace("{}", start + body + end))
    return texts


def repeated(part: str, size: int) -> str:
    return part * (size // len(part))


TEXTS = hostile_texts()


def findings(source: str) -> Any:
    evidence: Any = type("Evidence", (), {"source": source})
    return list(TextIsPlain().examine(evidence))


TEXT: dict[str, Callable[[str], Any]] = {
    "kernels": lambda text: OwnKernels(text).hold("f"),
    "kernels of libraries": lambda text: OwnKernels("", text.encode(errors="replace")).hold("_Z1fv"),
    "name of a kernel": lambda text: OwnKernels("").hold(text) or OwnKernels("").hold(f"_ZN{text}"),
    "hints": hints.needs_build,
    "message": compiler_message,
    "blame": lambda text: blame.is_own_error(text, Path("/nowhere"), frozenset),
    "place of an error": blame.names_a_line,
    "complaint": farm._as_torch_says,
}
TREE: dict[str, Callable[[str], Any]] = {
    "findings": findings,
    "pieces": pieces.__wrapped__,
    "rendition": rendition,
    "copy": _parts.__wrapped__,
    "digest": lambda text: Candidate.propose("a", text, ""),
    "tree": lambda text: _tree(text),
    "compile": why_not_python,
}


def _tree(text: str) -> None:
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        parse_source(text)


@pytest.mark.parametrize(
    ("function", "most"),
    [
        *(pytest.param(function, _TEXT_SECONDS, id=name) for name, function in TEXT.items()),
        *(pytest.param(function, _TREE_SECONDS, id=name, marks=pytest.mark.slow) for name, function in TREE.items()),
    ],
)
def test_hostile_texts_are_read_in_time(function: Callable[[str], Any], most: float) -> None:
    rendition("x = abs(y)")  # which reads our own programs once
    slow = {}
    for text in TEXTS:
        start = time.thread_time()
        function(text)
        seconds = time.thread_time() - start
        if seconds > most:
            slow[f"{text[:60]!r}...{text[-20:]!r} ({len(text)})"] = round(seconds, 2)
    assert not slow
