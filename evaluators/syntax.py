"""Reading a program's text: its syntax tree, from any thread, and the form in which two proposals are the same.

No program is executed here.
"""

import ast
import codecs
import io
import re
import threading
import tokenize
import warnings
from functools import lru_cache
from typing import Any

from evaluators.tokens import count_tokens

_PARSING = threading.Lock()
_TWO_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?[^\r\n]*")  # in which Python looks for the encoding
_MAX_DEPTH = 1000  # of a normalised tree. `ast.parse` reads deeper ones, but not at every depth of the stack


def parse_source(source: str) -> ast.Module:
    """The syntax tree of a program's text. Python's warnings about it are of no use to our user and left out.

    One thread parses at a time: CPython before 3.12 counts the depth of all threads' trees in one place and raises
    SystemError ("AST constructor recursion depth mismatch") if two trees are built at once.

    Raises SyntaxError, ValueError, RecursionError or MemoryError, as `ast.parse` does, and SyntaxError for a text that
    declares another encoding than UTF-8, or that takes long to parse (`evaluators.tokens`).
    """
    count_tokens(source)
    _refuse_other_encodings(source)
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def shared_tree(source: str) -> ast.Module:
    """The syntax tree of a text, parsed once for all readers of the same text. Nobody may change it. Raises what
    `parse_source` raises."""
    tree = _tree_or_error(source)
    if isinstance(tree, ast.Module):
        return tree
    raise type(tree)(*tree.args)


@lru_cache(maxsize=4)  # a verdict's text, and those of other threads
def _tree_or_error(source: str) -> ast.Module | Exception:
    try:
        return parse_source(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return error.with_traceback(None)


def why_not_python(source: str) -> str | None:
    """Why the text does not parse, or None if it does.

    It is not compiled: CPython compiles the body of each `finally` twice, so nested ones take any time and memory. A
    program that parses and does not compile (`return` outside of a function) fails in its runner.
    """
    try:
        shared_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error)
    return None


def normalised_source(source: str) -> str:
    """The text's syntax tree, written out. Texts of the same form are programs that differ in comments and layout
    alone; docstrings, which a program can read, are part of it.

    A program can also read its own file and the numbers of its lines. These make no difference: comments may differ
    between two texts of the same form, so both may.

    The form of a text that does not parse, or whose tree is very deep, is the text itself.
    """
    try:
        tree = shared_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    return _written(tree) or source


def _written(tree: ast.Module) -> str | None:
    """The nodes of a tree with their fields, in order, one part a line; different for different trees. None for a tree
    that is too deep. It does not recurse, so the depth of the stack at which it is called makes no difference."""
    parts: list[str] = []
    rest: list[str | tuple[int, Any]] = [(0, tree)]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        depth, branch = item
        if depth > _MAX_DEPTH:
            return None
        inside: list[str | tuple[int, Any]] = []
        if isinstance(branch, list):
            parts.append("[")
            inside += [_leaf(part) or (depth + 1, part) for part in branch]
        else:
            parts.append(type(branch).__name__)
            for name in branch._fields:
                value = getattr(branch, name, None)
                if value is not None and value != []:  # so that a Python with more fields writes the same
                    inside += (f".{name}", _leaf(value) or (depth + 1, value))
        inside.append(_END)
        inside.reverse()
        rest += inside
    return "\n".join(parts)


_END = "."  # of a node or a list


def _leaf(value: Any) -> str | None:
    """How a value is written that holds no others; None for a node with fields or a list."""
    if isinstance(value, ast.AST):
        return None if value._fields else f"{type(value).__name__}\n{_END}"
    if isinstance(value, list):
        return None
    return hex(value) if type(value) is int else repr(value)  # decimal digits are limited in number


def _refuse_other_encodings(source: str) -> None:
    """Raises SyntaxError for a text whose file Python would not read as UTF-8: code could hide in its comments."""
    found = _TWO_LINES.match(source)
    first_lines = re.sub(r"\r\n?", "\n", found[0] if found else "").encode(errors="replace")
    encoding, _ = tokenize.detect_encoding(io.BytesIO(first_lines).readline)
    if codecs.lookup(encoding).name != "utf-8":
        raise SyntaxError(f"it declares the encoding {encoding}, and only utf-8 is read")
