"""Reading a program's text: its syntax tree, from any thread, and the form in which two proposals are the same.

No program is executed here.
"""

import ast
import threading
import warnings

_PARSING = threading.Lock()


def parse_source(source: str) -> ast.Module:
    """The syntax tree of a program's text. Python's warnings about it are of no use to our user and left out.

    One thread parses at a time: CPython before 3.12 counts the depth of all threads' trees in one place and raises
    SystemError ("AST constructor recursion depth mismatch") if two trees are built at once.

    Raises SyntaxError, ValueError, RecursionError or MemoryError, as `ast.parse` does.
    """
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def why_not_python(source: str) -> str | None:
    """Why Python does not compile the text, or None if it does. Python's warnings about it are left out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<candidate>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error)
    return None


def normalised_source(source: str) -> str:
    """The source without comments, docstrings and layout, so that identical proposals share a digest.

    Text that does not parse is only stripped of blanks at the ends of its lines.
    """
    try:
        tree = parse_source(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "\n".join(line.rstrip() for line in source.strip().splitlines())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                node.body = node.body[1:] or [ast.Pass()]
    try:
        return ast.unparse(tree)
    except (RecursionError, ValueError):
        return source.strip()
