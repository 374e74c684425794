"""Reading a program's text: its syntax tree, from any thread, and the form in which two proposals are the same.

No program is executed here. CPython's parser has no limit of time: it takes about a microsecond for a token, but much
more for some texts. So tokens are counted first. The count must never be lower than the parser's work: whatever the
count and some version of Python may read differently counts as if all of it were code.
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

MAX_CHARACTERS = 200_000
MAX_TOKENS = 16_000
"""The longest text that is parsed. The longest kernel that CUDA-L1 published has a third of these tokens, and a
language model's answer has about as many tokens of Python as of its own."""

_MAX_FOREIGN = 1_000  # characters outside of ASCII in names: Python sorts their accents, in quadratic time
_MAX_READ_AGAIN = 50_000_000  # characters: CPython 3.11 reads an f-string again for each of its fields
_BLANK = r"(?:[ \t\f]|\#[^\r\n]*+|\\(?:\r\n?|\n))*+"  # with comments, and ends of lines that are continued
_LINE_END = r"[\r\n](?:[ \t\f\r\n]|\#[^\r\n]*+)*+"  # with the empty lines that follow
_LETTER = r"[A-Za-z0-9_\x80-\U0010ffff]"
_NUMBER = r"0[xXoObB][0-9a-fA-F_]++|(?:[0-9][0-9_]*+\.?+[0-9_]*+|\.[0-9][0-9_]*+)(?:[eE][+-]?[0-9][0-9_]*+)?+"
_OPERATOR = r"\*\*=?|//=?|>>=?|<<=?|->|:=|!=|\.\.\.|[-+*/%&|^@=<>]=|."
_STRING = "|".join(
    rf"{quote * 3}(?:[^{quote}\\]|\\.|{quote}(?!{quote * 2}))*+(?:{quote * 3})?+"
    rf"|{quote}(?:[^{quote}\\\r\n]|\\(?:\r\n|.))*+{quote}?+"
    for quote in "'\""
)
_TOKEN = re.compile(
    rf"{_BLANK}(?:{_LINE_END}|(?:[fFtT][rR]?|[rR][fFtT])(?P<formatted>{_STRING})|[bBrRuU]{{0,2}}(?:{_STRING})"
    rf"|[A-Za-z_][A-Za-z0-9_]*+(?!{_LETTER})|(?P<foreign>(?![0-9]){_LETTER}++)|{_NUMBER}|{_OPERATOR}|\Z)",
    re.DOTALL,
)
_PART = re.compile(rf"{_LETTER}++|\S")  # of an f-string
# An f-string that ends at the same place in all versions of Python: without quotes or comments in a field that could
# end the string, or its field, in one of them alone.
_CODE = r"""[^{}'"#\\\r\n]"""
_QUOTED = rf"(?:{_CODE}|#|\{{{_CODE}*+\}})*+"
_FIELD = rf"""\{{(?:{_CODE}|'{_QUOTED}'|"{_QUOTED}"|\{{{_CODE}*+\}})*+\}}"""
_PLAIN_FORMATTED = re.compile(rf"(?:[^{{}}]|\{{\{{|\}}\}}|{_FIELD})*+")

_PARSING = threading.Lock()
_TWO_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?[^\r\n]*")  # in which Python looks for the encoding
_MAX_DEPTH = 1000  # of a normalised tree. `ast.parse` reads deeper ones, but not at every depth of the stack


def parse_source(source: str) -> ast.Module:
    """The syntax tree of a program's text. Python's warnings about it are of no use to our user and left out.

    One thread parses at a time: CPython before 3.12 counts the depth of all threads' trees in one place and raises
    SystemError ("AST constructor recursion depth mismatch") if two trees are built at once.

    Raises SyntaxError, ValueError, RecursionError or MemoryError, as `ast.parse` does, and SyntaxError for a text that
    declares another encoding than UTF-8, or that takes long to parse (`count_tokens`).
    """
    count_tokens(source)
    _refuse_other_encodings(source)
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def count_tokens(source: str) -> int:
    """The number of names, numbers, strings, operators and ends of lines in a text, in a few milliseconds at most. The
    words and signs of an f-string count one by one.

    Raises SyntaxError for a text that takes Python's parser long: more than MAX_CHARACTERS or MAX_TOKENS, many
    characters outside of ASCII in names, or long f-strings of many fields.
    """
    if len(source) > MAX_CHARACTERS:
        raise SyntaxError(f"longer than {MAX_CHARACTERS} characters")
    tokens = foreign = read_again = 0
    for token in _TOKEN.finditer(source):
        tokens += 1
        if token.lastgroup == "foreign":
            foreign += len(token["foreign"])
        elif token.lastgroup == "formatted":
            text = token["formatted"]
            tokens += len(_PART.findall(text))
            foreign += len(text) - len(text.encode("ascii", "ignore"))
            read_again += len(text) * text.count("{")
            if not _PLAIN_FORMATTED.fullmatch(text):
                tokens += len(source) - token.end()
        if tokens > MAX_TOKENS:
            raise SyntaxError(f"more than {MAX_TOKENS} tokens (names, numbers, strings, operators and lines)")
    if foreign > _MAX_FOREIGN:
        raise SyntaxError(f"names with more than {_MAX_FOREIGN} characters outside of ASCII")
    if read_again > _MAX_READ_AGAIN:
        raise SyntaxError("f-strings with too many fields for their length")
    return tokens


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
