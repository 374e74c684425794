"""Hostile texts of programs, drawn from a seed: what a policy, or somebody who knows the judge, could write to make
reading them slow.

A text is a bulk of up to 200,000 characters of one family in one place: alone, behind a program that works, or in its
comments, strings or dead code, so that the program goes the whole way through the judge. Nothing here runs a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from evaluators.gauntlet.programs import discover
from evaluators.syntax import MAX_CHARACTERS, count_tokens
from evaluators.tasks import find_task, program_source
from evaluators.tasks.loader import Variant, load_variants

TASKS = (
    "level1/triangular_matmul",
    "level2/linear_sum_sigmoid_gate",
    "level2/matmul_group_norm_hardtanh",
    "level3/residual_mlp",
)
"""Bundled tasks on whose verdicts the judge spends nearly the same time again and again."""
EXTENSION = ("level1/avg_pool1d", "inline_cpp")
"""A task and its program that compiles C++."""

_MOST = MAX_CHARACTERS - 200  # room for a last line, by which the same text is judged again
_SIZES = (_MOST, _MOST, 60_000, 15_000)

Bulk = str | Callable[[Random, int], str]
"""A piece that is repeated, or what makes a bulk of so many characters."""


@dataclass(frozen=True)
class HostileText:
    """A text of a family for a task. `place`: where its bulk stands in the program `base`; `alone` if that is empty."""

    family: str
    number: int
    task: str
    place: str
    base: str
    source: str


@dataclass(frozen=True)
class Family:
    """Bulks, and the places for them. `as_read`: half of the bulks are cut to what is still parsed."""

    bulks: Sequence[Bulk]
    places: Sequence[str]
    as_read: bool = False


def hostile_texts(count: int, seed: int) -> list[HostileText]:
    """`count` texts, the same for the same seed; of each family about as many."""
    names = list(FAMILIES)
    return [_text(names[number % len(names)], number // len(names), seed) for number in range(count)]


def right_variants(task: str) -> list[Variant]:
    """The right programs that ship with a task; of those of `EXTENSION`, that one alone."""
    right = [variant for variant in load_variants(task) if variant.expect != "wrong"]
    return [variant for variant in right if task != EXTENSION[0] or variant.name == EXTENSION[1]]


def _text(name: str, number: int, seed: int) -> HostileText:
    family, draw = FAMILIES[name], Random(f"{seed}/{name}/{number}")
    task, size = draw.choice(TASKS), _SIZES[(number + draw.randrange(2)) % len(_SIZES)]
    place = family.places[number % len(family.places)]
    if place == "extension":
        task = EXTENSION[0]
    elif place == "exploit":
        task = draw.choice([program for program in _exploits() if program[0] in TASKS])[0]
    base = _base(task, place, draw)
    own = base and f"{base}\ntext_{list(FAMILIES).index(name)}_{number} = 0\n"  # no two texts are the same program
    bulk = _bulk(draw.choice(family.bulks), draw, size - len(base) - 1000)
    source = _placed(place, own, bulk)
    while len(source) > _MOST or (family.as_read and number % 2 and _is_refused(source)):
        bulk = bulk[: int(0.9 * len(bulk))]
        bulk = bulk[: bulk.rfind("\n") + 1] or bulk
        source = _placed(place, own, bulk)
    return HostileText(name, number, task, place, base, source)


def _base(task: str, place: str, draw: Random) -> str:
    """The program around the bulk."""
    if place == "exploit":
        return draw.choice([source for name, source in _exploits() if name == task])
    if place == "reference":
        return program_source(find_task(task)).replace("class Model(", "class ModelNew(")
    return "" if place == "alone" else draw.choice(right_variants(task)).source


@lru_cache(maxsize=1)
def _exploits() -> list[tuple[str, str]]:
    return [(program.task, program.source) for program in discover("cpu") if program.is_exploit]


def _bulk(kind: Bulk, draw: Random, size: int) -> str:
    return kind * (max(size, 0) // len(kind)) if isinstance(kind, str) else kind(draw, size)


def _placed(place: str, base: str, bulk: str) -> str:
    if place == "alone":
        return bulk
    if place in ("after", "exploit", "reference"):
        return f"{base}\n{bulk}"
    if place == "comment":
        return f"{base}\n" + "\n".join(f"# {line}" for line in re.split(r"[\r\n]", bulk))
    if place == "dead":
        return f"{base}\ndef unused():\n" + "".join(f"    {line}\n" for line in bulk.split("\n")) + "    return 0\n"
    plain = bulk.replace("'''", "' ' '").replace('"""', '" " "').replace("\0", "").rstrip("\\")
    plain = plain.encode("utf-8", "replace").decode()
    if place == "string":
        return f"{base}\nNOTES = r'''\n{plain}\n'''\n"
    if place == "docstring":
        return f'r"""{plain}\n"""\n{base}'
    assert place == "extension", place
    start = base.index("torch::Tensor pool(")
    return f"{base[:start]}{plain}\n{base[start:]}".replace('source = """', 'source = r"""', 1)


def _is_refused(source: str) -> bool:
    try:
        count_tokens(source)
    except SyntaxError:
        return True
    return False


def _numbered(line: str) -> Callable[[Random, int], str]:
    """Lines that differ in a number, which stands for each `@`."""

    def make(draw: Random, size: int) -> str:
        lines = (line.replace("@", str(number)) for number in range(max(size, 0) // (len(line) + 5)))
        return "".join(lines)

    return make


def _nested(opening: str, closing: str, most: int, body: str) -> Callable[[Random, int], str]:
    """Brackets in brackets, `most` deep at most, again and again."""

    def make(draw: Random, size: int) -> str:
        depth = draw.choice((3, most // 3, most))
        unit = opening * depth + body + closing * depth + "\n"
        return unit * max(size // len(unit), 1)

    return make


def _blocks(lines: Sequence[str], most: int, body: str) -> Callable[[Random, int], str]:
    """Statements in statements: each of `lines` once a level, the last one opens the next level."""

    def make(draw: Random, size: int) -> str:
        depth = draw.choice((5, most))
        head = "".join(f"{' ' * level}{line}\n" for level in range(depth) for line in lines)
        row = f"{' ' * depth}{body}\n"
        return head + row * max((size - len(head)) // len(row), 1)

    return make


def _fuzz(draw: Random, size: int) -> str:
    """Pieces of all families, in disorder."""
    pieces = [bulk for family in FAMILIES.values() for bulk in family.bulks if isinstance(bulk, str)]
    few = draw.choices(pieces, k=draw.randint(2, 12))
    text = "".join(draw.choice(few) for _ in range(max(size, 0) // max(map(len, few)) + 1))
    return text[: max(size, 0)]


def _task_sources(draw: Random, size: int) -> str:
    source = program_source(find_task(draw.choice(TASKS))) + "\n"
    return source * max(size // len(source), 1)


def _noise(draw: Random, size: int) -> str:
    """Comments and assignments as a model adds them."""
    words = ("fused", "kernel", "speed-up", "of", "the", "block", "warp", "is", "cached", "here", "torch.empty_like(x)")
    lines = []
    while size > 0:
        text = " ".join(draw.choices(words, k=draw.randint(3, 12)))
        line = draw.choice((f"# {text}\n", f"# {text}\n", f"# {text}\n", f"note_{len(lines)} = {text!r}\n"))
        lines.append(line)
        size -= len(line)
    return "".join(lines)


CODE = ("dead", "after", "alone")
TEXT = ("comment", "string", "docstring", "alone")
FAMILIES: dict[str, Family] = {
    "brackets": Family(
        ["(", "[", "{", ")", "()", "[(", "{[(", "([{}])", _nested("(", ")", 190, "a"), _nested("[", "]", 90, "a, b")],
        ("alone", "dead", "comment", "string"),
        as_read=True,
    ),
    "quotes": Family(
        ["'", '"', "'''", '"""', "'\\'", 'r"\\"', "b''", "''\n", "'a' ", "'''\"\"\"", "\"'\\\n", "u'a'\n"],
        ("alone", "comment", "after", "string"),
    ),
    "f-strings": Family(
        [
            *("f'{a}'\n", "f'{a:{b}}'\n", "f'{'", 'f"""{a!r:>{b}}\n', "f'{{a}}'\n", "f'{\"a\"}' ", "rf'\\{a}'\n"),
            *(lambda draw, size: "f'" + "{a}" * (size // 3) + "'\n", lambda draw, size: "f'{" + "a" * size + "}'\n"),
        ],
        CODE,
        as_read=True,
    ),
    "comments": Family(["#", "# \n", "#\r", "# a\n", "# 'x'\n", "#\\\n", "# def f():\n"], ("after", "docstring")),
    "continued lines": Family(
        ["\\\n", "a + \\\n", " \\\n", "\\", "\\\r\n", lambda draw, size: "x = 1" + " + \\\n1" * (size // 6) + "\n"],
        CODE,
        as_read=True,
    ),
    "long lines": Family(
        [
            lambda draw, size: "x = [" + "1, " * (size // 3) + "]\n",
            lambda draw, size: "x = 1" + " + a" * (size // 4) + "\n",
            lambda draw, size: f"x = '{'a ' * (size // 2)}'\n",
            lambda draw, size: "def f(" + ", ".join(f"a{i}" for i in range(size // 8)) + "): pass\n",
            lambda draw, size: "a;" * (size // 2) + "\n",
        ],
        CODE,
    ),
    "short lines": Family(["\n", "a\n", "1\n", ";\n", "pass\n", " \n", "x=1\n", "\t\n"], CODE, as_read=True),
    "indentation": Family(
        [
            _blocks(["if a:"], 95, "a"),
            _blocks(["for a in b:"], 18, "a = b"),
            _blocks(["try: a", "except b:"], 90, "a"),
            _blocks(["with a as b:"], 18, "return b"),
            _blocks(["class A:"], 90, "b = 1"),
            _blocks(["def f():"], 90, "return f"),
            " a\n  b\n",
            "if a:\n b\n",
        ],
        CODE,
        as_read=True,
    ),
    "expressions": Family(
        [
            *(
                "-",
                "not ",
                "~",
                "a.",
                "a if b else ",
                "lambda: ",
                "await ",
                "*",
                "a := ",
                "a()",
                "a[b]",
                "x = a < b < c\n",
            ),
            *(_nested("f(", ")", 80, "a"), _nested("[a for a in ", "]", 60, "b"), _nested("{a: ", "}", 60, "b")),
        ],
        CODE,
        as_read=True,
    ),
    "numbers": Family(
        [
            *("9", "1.", "1e9\n", "0x1f + ", "1_0", "0b1\n", "1j\n", "x = 0.1\n"),
            *(lambda draw, size: f"x = 0x{'f' * size}\n", lambda draw, size: f"x = {'9' * 4000}\n" * (size // 4006)),
        ],
        CODE,
        as_read=True,
    ),
    "long strings": Family(
        [
            lambda draw, size: f"x = '{'a' * size}'\n",
            lambda draw, size: "x = '" + "\\x41" * (size // 4) + "'\n",
            lambda draw, size: "x = '" + "\\N{DIGIT ONE}" * (size // 13) + "'\n",
            lambda draw, size: "x = b'" + "\\377" * (size // 4) + "'\n",
            lambda draw, size: "x = (" + "'a' " * (size // 4) + ")\n",
        ],
        CODE,
    ),
    "line ends": Family(
        ["a\r", "a\r\n", "a\x0c\n", "\x1c", "\x1c\n", "a\u2028", "\u2029\n", "\x85", "\x0b", "a = 1\x1e\n"],
        (*TEXT, "after"),
    ),
    "marks and nulls": Family(["\ufeff", "\ufeffa\n", "\0", "a\0\n", "\x1a", "\x1b[31m", "\b"], TEXT),
    "surrogates": Family(["\ud800", "\udfff\n", "'\ud83d'\n", "a = '\udc80'\n"], ("alone", "after", "comment")),
    "encodings": Family(
        [
            lambda draw, size: f"# coding: {draw.choice(('latin-1', 'utf-7', 'utf-16', 'rot13'))}\n" + "a = 1\n" * 99,
            lambda draw, size: "# coding: " + "x" * size + "\n",
            lambda draw, size: "#" + " coding" * (size // 7) + "\n",
            lambda draw, size: " " * size + "# coding: utf-7\n",
        ],
        ("alone",),
    ),
    "directions and accents": Family(
        ["\u202e", "\u2066a\u2069", "\u05d0\u05d1 ", "a\u0301\u0316", "\u0301", "e\u0301 = 1\n", "\ufdfa", "\u200d"],
        (*TEXT, "after"),
    ),
    "look-alikes": Family(
        [
            _numbered("\u0430_@ = 1\n"),
            _numbered("ModelNe\uff57@ = 1\n"),
            "\u03bf = \u043e\n",
            "\u2170\u2171\n",
            "\u4e00 ",
        ],
        ("after", "dead", "string"),
        as_read=True,
    ),
    "docstrings": Family(
        ["words of a text. ", "Args:\n    x: a tensor.\n", ">>> f(x)\n", "## Code Implementation\n", "```python\n"],
        ("docstring", "string"),
    ),
    "statements": Family(
        [
            _numbered("import a@\n"),
            _numbered("from a@ import b@ as c@\n"),
            _numbered("def f@(a): return a\n"),
            _numbered("\n\nclass A@(B@): pass\n"),
            _numbered("x@ = y@.z@\n"),
            _numbered("x@: int = f(a@, b=@)\n"),
            _numbered("self.a@ = super(A@, self).b\n"),
            _numbered("match a@:\n case [b@]: pass\n"),
            _numbered("del a@, b@\n"),
        ],
        ("dead", "after", "dead"),
        as_read=True,
    ),
    "words of the guard": Family(
        [
            *("/*", "/**", "//", "//\n", '"\\', "'\\", 'R"(', 'R"a(', ')a"', "1e+", "1'0", ".5e", "a.b->c;\n"),
            *("std::thread ", "async ", "fork();", "#include <a>\n", "__half ", "/proc/self/mem "),
            *("__global__ ", "__global__ a(", "__global__ void f(int a) {}\n", "torch::Tensor ", "PYBIND11_MODULE"),
            *("@triton.jit\n", "@triton.jit\ndef f(x): x\n"),
        ],
        ("string", "comment", "string", "alone"),
    ),
    "task sources": Family([_task_sources], ("string", "docstring", "comment", "after")),
    "C++ of an extension": Family(
        [
            "// x\n",
            "/* x */",
            "/* * / ",
            "#define A(x) x\n",
            '// "\\\n',
            "#if 0\n((((\n#endif\n",
            "static int a();\n",
            ";",
        ],
        ("extension",),
    ),
    "compilers in words": Family(
        ["torch.compile ", "triton ", "load_inline( ", "compile(", "cpp_extension\n", "_inductor "],
        ("comment", "string"),
    ),
    "hacks with noise": Family([_noise], ("exploit",)),
    "references with noise": Family([_noise, _numbered("\n\n# size @\nbatch_@ = @\n")], ("reference",)),
    "work of a compiler": Family(
        [_blocks(["try: a", "finally:"], 17, "f(a, b)"), _numbered("def f@(): pass\n"), _numbered("f(a@=1)\n")],
        ("dead", "after"),
        as_read=True,
    ),
    "mixtures": Family([_fuzz], (*CODE, *TEXT)),
}
