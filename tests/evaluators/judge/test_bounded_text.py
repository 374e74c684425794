"""Whatever a program's text holds, reading it takes little time.

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
from evaluators.guard.copies import is_copy
from evaluators.guard.rendition import rendition
from evaluators.guard.similarity import pieces
from evaluators.guard.text import TextIsPlain
from evaluators.judge.witness import OwnKernels
from evaluators.records import Candidate
from evaluators.syntax import MAX_CHARACTERS, MAX_TOKENS, count_tokens, parse_source, why_not_python
from evaluators.tasks import find_task, program_source

_SECONDS = 0.2  # half of it on a machine like that of docs/benchmarks.md
_REFERENCE = program_source(find_task("level1/softmax"))

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
STATEMENTS = [
    *(
        "a\n",
        "a;",
        "x = {1: 2}\n",
        "x = a < b < c\n",
        "x = a if b else c\n",
        "x = [a for b in c]\n",
        "x = lambda a: b\n",
    ),
    *("x = f'{a}'\n", "x = f'{a:{b}}'\n", "x = 'a'\n", "x = 'text/of/a/path'\n", "return a\n", "with a as b: c\n"),
    *("try: a\nexcept b: c\n", "match a:\n case [b]: c\n", "def f():\n '''a'''\n", "global a\n", "del a\n", "a[b:c]\n"),
    *("from a import b\n", "async def f(): await a\n", "class Model(A): b = c\n", "super(A, self).a()\n", "x.y = z\n"),
    *("def f(a):\n    return a\n", "@a\nclass A:\n    pass\n", "f(a, b, c=d)\n", "a, b = c\n", "a += 1\n", "a: b\n"),
]
IN_A_STRING = "x = r'''\n#include <a>;\nreturn {}'''\n"
FORMS = ["{}", "# {}\n", "x = ({}\n)", "x = 1\n{}", "error: {}\n", "a{}a", IN_A_STRING]


def hostile_texts(mixtures: int = 60) -> list[str]:
    """Each fragment repeated, as it is and in a string of C++, then mixtures of some; and statements, as many as are
    parsed."""
    draw = random.Random(7)
    texts = [form.replace("{}", repeated(part, MAX_CHARACTERS)) for part in FRAGMENTS for form in ("{}", IN_A_STRING)]
    for _ in range(mixtures):
        body = repeated("".join(draw.choices(FRAGMENTS, k=draw.randint(2, 4))), draw.choice([20_000, MAX_CHARACTERS]))
        start, end = draw.choices(["", "a", "\n", *FRAGMENTS], k=2)
        texts.append(draw.choice(FORMS).replace("{}", start + body + end))
    handlers = [f"{' ' * depth}try: a\n{' ' * depth}except b:\n" for depth in range(80)]
    texts.append("".join(handlers) + f"{' ' * 80}{'a;' * (MAX_TOKENS // 2 - 500)}\n")
    return texts + [part * (MAX_TOKENS // count_tokens(part)) for part in STATEMENTS]


def repeated(part: str, size: int) -> str:
    return part * (size // len(part))


TEXTS = hostile_texts()


def findings(source: str) -> Any:
    evidence: Any = type("Evidence", (), {"source": source})
    return list(TextIsPlain().examine(evidence))


READERS: dict[str, Callable[[str], Any]] = {
    "kernels": lambda text: OwnKernels(text).hold("f"),
    "kernels of libraries": lambda text: OwnKernels("", text.encode(errors="replace")).hold("_Z1fv"),
    "name of a kernel": lambda text: OwnKernels("").hold(text) or OwnKernels("").hold(f"_ZN{text}"),
    "hints": hints.needs_build,
    "message": compiler_message,
    "blame": lambda text: blame.is_own_error(text, Path("/nowhere"), frozenset),
    "place of an error": blame.names_a_line,
    "complaint": farm._as_torch_says,
    "findings": findings,
    "pieces": pieces.__wrapped__,
    "rendition": rendition,
    "copy": lambda text: is_copy(text, _REFERENCE),
    "digest": lambda text: Candidate.propose("a", text, ""),
    "tree": lambda text: _tree(text),
    "why it does not parse": why_not_python,
    "all for one verdict": lambda text: (Candidate.propose("a", text, ""), why_not_python(text), findings(text)),
}


def _tree(text: str) -> None:
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        parse_source(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_hostile_texts_are_read_in_time(name: str) -> None:
    read = READERS[name]
    rendition("x = abs(y)")  # which reads our own programs once
    slow = {}
    for number, text in enumerate(TEXTS):
        seconds = _seconds(read, text)
        for again in range(2):  # a collection of garbage may fall into one of them
            # Functions may remember texts, so each time another one is read.
            seconds = min(seconds, _seconds(read, f"{text}#{again}")) if seconds >= _SECONDS else seconds
        if seconds >= _SECONDS:
            slow[f"{number}: {text[:60]!r}...{text[-20:]!r} ({len(text)})"] = round(seconds, 2)
    assert not slow


def _seconds(read: Callable[[str], Any], text: str) -> float:
    start = time.thread_time()
    read(text)
    return time.thread_time() - start
