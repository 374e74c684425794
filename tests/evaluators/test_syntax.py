"""Programs can be parsed from any thread."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluators.syntax import parse_source

SOURCE = Path(__file__).read_text()


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
