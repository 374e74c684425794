"""Programs can be parsed from any thread, and are read as Python reads their files."""

from __future__ import annotations

import ast
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluators.syntax import MAX_CHARACTERS, MAX_TOKENS, parse_source, why_not_python

SOURCE = Path(__file__).read_text()
# CPython compiles the body of each `finally` twice, so this one 2 ** 16 times: gigabytes of code.
COPIED_BODIES = "".join(f"{' ' * depth}try: 0\n{' ' * depth}finally:\n" for depth in range(16)) + f"{' ' * 16}f(a)\n"


class Cyclic:
    """Only the garbage collector frees it. Its finaliser lets another thread run while a tree is being built."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture
def eager_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
def test_threads_parse_at_the_same_time(eager_switches: None) -> None:
    """`ast.parse` itself sometimes fails here under Python 3.11 (SystemError)."""
    expected, trees, errors = ast.dump(parse_source(SOURCE)), [], []

    def parse() -> None:
        for _ in range(100):
            for _ in range(20):
                Cyclic()
            try:
                trees.append(parse_source(SOURCE))
            except SystemError as error:
                errors.append(error)

    threads = [threading.Thread(target=parse) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(trees) == 400
    assert {ast.dump(tree) for tree in trees} == {expected}


HIDDEN = "# +AAo-x = 2"  # in UTF-7 the comment ends before x


@pytest.mark.parametrize(
    "first",
    [
        "# coding: utf-7\n",
        "# -*- coding: latin-1 -*-\n",
        "#!/usr/bin/python\n# vim: set fileencoding=utf-7 :\n",
        "\n# coding=utf-7\n",
        "\r# coding=utf-7\n",
        "\x0c# coding=utf-7\r",
        "# coding: unheard-of\n",
    ],
)
def test_a_file_that_python_would_decode_otherwise_is_no_program(first: str) -> None:
    source = f"{first}x = 1\n{HIDDEN}\n"
    assert "encoding" in (why_not_python(source) or "")
    with pytest.raises(SyntaxError, match="encoding"):
        parse_source(source)


@pytest.mark.parametrize(
    "first",
    ["# coding: utf-8\n", "# -*- coding: UTF8 -*-\n", "\n\n# coding: utf-7\n", "'coding: utf-7'\n", ""],
)
def test_a_declaration_of_utf_8_or_none_is_python(tmp_path: Path, first: str) -> None:
    source = f"{first}x = 1\n{HIDDEN}\n"
    assert why_not_python(source) is None
    (tmp_path / "program.py").write_text(source)
    assert runpy.run_path(str(tmp_path / "program.py"))["x"] == 1


def test_a_program_is_read_and_not_compiled() -> None:
    """What it takes to compile a program has no bound in the length of its text."""
    start = time.thread_time()
    assert why_not_python(COPIED_BODIES) is None
    assert time.thread_time() - start < 0.1


MANY_LINES = "a\n" * MAX_TOKENS
TOO_MUCH = {
    "characters": ("#" * (MAX_CHARACTERS + 1), "characters"),
    "short lines": (MANY_LINES, "tokens"),
    "one long line": ("x = [" + "1," * MAX_TOKENS + "]", "tokens"),
    "blanks between": ("x = [" + "1 , " * MAX_TOKENS + "]", "tokens"),
    "comments between": ("a #\n" * MAX_TOKENS, "tokens"),
    "continued lines": ("x = a" + "\\\n+a" * MAX_TOKENS, "tokens"),
    "strings": ("x = " + "'' " * MAX_TOKENS + "\n", "tokens"),
    "numbers with dots": ("x = [" + "1..a," * MAX_TOKENS + "]", "tokens"),
    "numbers with signs": ("x = 0xe" + "+0xe" * MAX_TOKENS, "tokens"),
    "a string that is not closed": ("'\n" + MANY_LINES, "tokens"),
    "an escaped end of a line": ("'\\\r\n'\n" + MANY_LINES, "tokens"),
    "fields of one string": ("f'" + "{a}" * MAX_TOKENS + "'", "tokens"),
    "fields and much text": ("f'" + "{a}" * 2_000 + "a" * 100_000 + "'", "f-strings"),
    "quotes in a field": ("""f"{'"'''}"\n""" + MANY_LINES, "tokens"),  # since Python 3.12 one string ends there
    "accents": ("a" + "\u0301\u0316" * 10_000, "ASCII"),
    "accents in a field": ("f'{a" + "\u0301\u0316" * 10_000 + "}'", "ASCII"),
}
FEW_TOKENS = {
    "statements": "a\n" * (MAX_TOKENS // 2 - 1),
    "a comment": "#" * MAX_CHARACTERS,
    "comments": "# a\n" * (MAX_CHARACTERS // 4),
    "empty lines": "\n" * MAX_CHARACTERS,
    "blanks": " " * MAX_CHARACTERS,
    "a string": "x = '" + "a, " * 60_000 + "'",
    "a string of lines": 'x = """' + "f(a);\n" * 30_000 + '"""',
    "accents": "x = '" + "\u0301\u0316" * 50_000 + "'  # " + "\u0301\u0316" * 40_000,
    "an f-string": "x = f'" + '{a["b"]:>{c}}' * 100 + "{{ }}" * 100 + "a " * 1_000 + "'",
    "an f-string of lines": 'x = f"""' + "int {a}[{', '.join(b)}] = {{ 0 }};\n" * 200 + '"""  # ' + "-" * 100_000,
    "a long number": "x = 0x" + "f" * 100_000,
    "numbers": "x = 1.5e-3 + .5j + 0b1 + 1_000 + 1.",
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_text_that_takes_long_to_parse_is_refused_first(name: str) -> None:
    source, limit = TOO_MUCH[name]
    seconds = []
    for _ in range(3):  # a collection of garbage may fall into any of them
        start = time.thread_time()
        reason = why_not_python(source) or ""
        seconds.append(time.thread_time() - start)
        assert limit in reason
    assert min(seconds) < 0.05


@pytest.mark.parametrize("name", FEW_TOKENS)
def test_a_long_text_of_few_tokens_is_read(name: str) -> None:
    assert why_not_python(FEW_TOKENS[name]) is None
