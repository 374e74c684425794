"""Makes small mistakes in right programs, with words on what is wrong and how to correct it.

A mistake is one edit of the text. Whether the program then fails is not decided here: the judge says so. Never runs a
program.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evaluators.syntax import parse_source

_LONGEST = 60  # characters of code in a sentence
_SWAPPED = {"+": "-", "-": "+", "*": "/", "/": "*"}
_SYMBOLS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_CPP_LINE = re.compile(r"^[ \t]*(?!//|for\b)(\S[^\n{}]*);[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Mistake:
    """A program with a mistake. `cause`: what is wrong with it. `cure`: what to do."""

    name: str
    source: str
    cause: str
    cure: str


@dataclass(frozen=True)
class _Edit:
    """Puts `text` in the place of the bytes from `start` to `end`. `values`: for the sentences."""

    start: int
    end: int
    text: str
    values: tuple[tuple[str, str], ...] = ()


class _Program:
    """A parsed program, with places as bytes."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        self.tree = parse_source(source)
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[last - 1] + column

    def text(self, start: int, end: int) -> str:
        return self.data[start:end].decode()

    def code(self, node: ast.expr) -> str:
        return self.text(*self.span(node))

    def edited(self, edit: _Edit) -> str:
        return (self.data[: edit.start] + edit.text.encode() + self.data[edit.end :]).decode()

    def all(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def forwards(self) -> Iterator[ast.FunctionDef]:
        for node in self.all(ast.FunctionDef):
            assert isinstance(node, ast.FunctionDef)
            if node.name == "forward":
                yield node


def _forgotten_imports(program: _Program) -> Iterator[_Edit]:
    used = {node.id for node in program.all(ast.Name) if isinstance(node, ast.Name)}
    for node in program.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and len(node.names) == 1:
            name = node.names[0].asname or node.names[0].name.split(".")[0]
            if name in used and program.text(*program.span(node)).count("\n") == 0:
                start, end = program.span(node)
                line = program.text(start, end)
                yield _Edit(start, end + 1, "", (("name", name), ("line", line)))


def _misread_names(program: _Program) -> Iterator[_Edit]:
    known = {node.id for node in program.all(ast.Name) if isinstance(node, ast.Name)} | set(dir(builtins))
    for forward in program.forwards():
        stored = {node.id for node in ast.walk(forward) if isinstance(node, ast.Name) and type(node.ctx) is ast.Store}
        for node in ast.walk(forward):
            if isinstance(node, ast.Name) and type(node.ctx) is ast.Load and node.id in stored and len(node.id) > 2:
                other = node.id[:-1] if node.id.endswith("s") else f"{node.id}s"
                if other not in known:
                    yield _Edit(*program.span(node), other, (("wrong", other), ("right", node.id)))


def _wrong_axes(program: _Program) -> Iterator[_Edit]:
    for call, word in _keywords(program, "dim"):
        if (axis := _integer(word.value)) is not None:
            other = 0 if axis else 1
            values = (("wrong", f"dim={other}"), ("right", f"dim={axis}"), ("call", program.code(call.func)))
            yield _Edit(*program.span(word.value), str(other), values)


def _dropped_axes(program: _Program) -> Iterator[_Edit]:
    for call, word in _keywords(program, "keepdim"):
        if isinstance(word.value, ast.Constant) and word.value.value is True:
            yield _Edit(*program.span(word.value), "False", (("call", program.code(call.func)),))


def _keywords(program: _Program, name: str) -> Iterator[tuple[ast.Call, ast.keyword]]:
    for call in program.all(ast.Call):
        assert isinstance(call, ast.Call)
        yield from ((call, word) for word in call.keywords if word.arg == name)


def _integer(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int else None


def _swapped_operators(program: _Program) -> Iterator[_Edit]:
    for forward in program.forwards():
        for node in ast.walk(forward):
            if not isinstance(node, ast.BinOp) or type(node.op) not in _SYMBOLS:
                continue
            start, end, symbol = program.span(node.left)[1], program.span(node.right)[0], _SYMBOLS[type(node.op)]
            between = program.text(start, end)
            if between.count(symbol) != 1 or "#" in between or len(program.code(node)) > _LONGEST:
                continue
            place = start + between.index(symbol)
            right = program.code(node)
            wrong = program.text(program.span(node)[0], place) + _SWAPPED[symbol]
            wrong += program.text(place + 1, program.span(node)[1])
            yield _Edit(place, place + 1, _SWAPPED[symbol], (("wrong", wrong), ("right", right)))


def _missing_returns(program: _Program) -> Iterator[_Edit]:
    for forward in program.forwards():
        last = forward.body[-1]
        if isinstance(last, ast.Return) and last.value is not None:
            yield _Edit(program.span(last)[0], program.span(last.value)[0], "")


def _uninitialised_modules(program: _Program) -> Iterator[_Edit]:
    for node in program.all(ast.Expr):
        assert isinstance(node, ast.Expr)
        if program.code(node.value).replace(" ", "") == "super().__init__()":
            yield _Edit(*program.span(node), "pass")


def _open_brackets(program: _Program) -> Iterator[_Edit]:
    for node in program.all(ast.Return, ast.Assign):
        assert isinstance(node, ast.Return | ast.Assign)
        start, end = program.span(node)
        line = program.text(start, end)
        if line.endswith(")") and "\n" not in line and len(line) <= _LONGEST:
            yield _Edit(end - 1, end, "", (("line", line),))


def _wrong_namespaces(program: _Program) -> Iterator[_Edit]:
    names = {alias.asname or alias.name for node in program.all(ast.Import) for alias in getattr(node, "names", ())}
    for node in program.all(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        if isinstance(node.value, ast.Name) and node.value.id in ("torch", "F"):
            other = "F" if node.value.id == "torch" else "torch"
            if other in names:
                values = (("wrong", f"{other}.{node.attr}"), ("right", f"{node.value.id}.{node.attr}"))
                yield _Edit(*program.span(node.value), other, values)


def _wrong_constants(program: _Program) -> Iterator[_Edit]:
    for forward in program.forwards():
        for node in ast.walk(forward):
            if isinstance(node, ast.Constant) and type(node.value) is float and node.value:
                wrong = repr(2.0 * node.value)
                yield _Edit(*program.span(node), wrong, (("wrong", wrong), ("right", program.code(node))))


def _missing_semicolons(program: _Program) -> Iterator[_Edit]:
    for node in program.all(ast.Constant):
        assert isinstance(node, ast.Constant)
        if not isinstance(node.value, str) or ("#include" not in node.value and "at::" not in node.value):
            continue
        start, end = program.span(node)
        text = program.text(start, end)
        for found in _CPP_LINE.finditer(text):
            place = start + len(text[: found.end(1)].encode())
            if len(found[1]) <= _LONGEST and not found[1].startswith("#"):
                yield _Edit(place, place + 1, "", (("line", found[1]),))


@dataclass(frozen=True)
class _Kind:
    edits: Callable[[_Program], Iterator[_Edit]]
    causes: tuple[str, ...]
    cures: tuple[str, ...]


_KINDS: dict[str, _Kind] = {
    "forgotten_import": _Kind(
        _forgotten_imports,
        (
            "`{name}` is used, but nothing imports it.",
            "The module never imports `{name}`.",
            "An import is missing, that of `{name}`.",
        ),
        ("Add the import at the top: `{line}`.", "Write `{line}` before the class.", "Import it: `{line}`."),
    ),
    "misread_name": _Kind(
        _misread_names,
        (
            "`{wrong}` is read, but no statement sets it; the value is called `{right}`.",
            "There is no `{wrong}`: the variable is `{right}`.",
            "A name is misspelt, `{wrong}` for `{right}`.",
        ),
        ("Read `{right}`.", "Use the name `{right}` everywhere.", "Replace `{wrong}` by `{right}`."),
    ),
    "wrong_axis": _Kind(
        _wrong_axes,
        (
            "`{call}` works along `{wrong}`, which is not the axis of the reference.",
            "The axis is wrong: `{wrong}` in `{call}`.",
            "With `{wrong}`, `{call}` combines values that do not belong together.",
        ),
        ("Take `{right}`.", "The axis must be `{right}`.", "Call `{call}` with `{right}`."),
    ),
    "dropped_axis": _Kind(
        _dropped_axes,
        (
            "`{call}` drops the axis that it reduces, so its result does not line up with the tensor any more.",
            "The result of `{call}` has one axis less than what it is combined with.",
            "`keepdim=False` in `{call}` takes an axis away that the next operator needs.",
        ),
        ("Set `keepdim=True`.", "Keep the reduced axis: `keepdim=True`.", "Call `{call}` with `keepdim=True`."),
    ),
    "swapped_operator": _Kind(
        _swapped_operators,
        (
            "`{wrong}` is not what the reference computes there.",
            "An operator is wrong, in `{wrong}`.",
            "The formula is changed: it has `{wrong}`.",
        ),
        ("Compute `{right}`.", "Write `{right}` instead.", "It must be `{right}`."),
    ),
    "missing_return": _Kind(
        _missing_returns,
        (
            "`forward` computes the result and does not return it.",
            "The last line of `forward` lacks its `return`, so the call gives None.",
            "Nothing comes back from `forward`.",
        ),
        ("Return the result of the last line.", "Put `return` before it.", "Let `forward` return the tensor."),
    ),
    "uninitialised_module": _Kind(
        _uninitialised_modules,
        (
            "The constructor does not initialise `nn.Module`.",
            "`super().__init__()` is missing, and a module cannot work without it.",
            "`ModelNew` never calls the constructor of `nn.Module`.",
        ),
        ("Begin the constructor with `super().__init__()`.", "Call `super().__init__()` first."),
    ),
    "open_bracket": _Kind(
        _open_brackets,
        (
            "A bracket is never closed, so the text is no Python program.",
            "One closing bracket is missing.",
            "The module does not parse: a bracket stays open.",
        ),
        ("Close it: `{line}`.", "The whole statement is `{line}`.", "Write `{line}`."),
    ),
    "wrong_namespace": _Kind(
        _wrong_namespaces,
        (
            "`{wrong}` is not the function that is meant.",
            "The function is looked for in the wrong module, as `{wrong}`.",
            "`{wrong}` stands where another module has the function.",
        ),
        ("Call `{right}`.", "The name is `{right}`.", "Use `{right}`."),
    ),
    "wrong_constant": _Kind(
        _wrong_constants,
        (
            "The constant `{wrong}` is not that of the reference.",
            "A number is wrong: `{wrong}`.",
            "`{wrong}` changes the function.",
        ),
        ("It must be `{right}`.", "Use `{right}`.", "Put `{right}` back."),
    ),
    "missing_semicolon": _Kind(
        _missing_semicolons,
        (
            "A C++ statement has no semicolon: `{line}`.",
            "The compiler stops behind `{line}`, where a semicolon is missing.",
            "`{line}` is not ended.",
        ),
        ("End it with a semicolon.", "Add the semicolon behind `{line}`.", "Put `;` there."),
    ),
}
KINDS: Sequence[str] = tuple(_KINDS)
"""The names of the kinds of mistakes."""


def mistakes_in(source: str, rng: np.random.Generator, kinds: Sequence[str] = KINDS) -> list[Mistake]:
    """One mistake of each kind that the program offers a place for, in random order and wording.

    Empty for a program that does not parse.
    """
    try:
        program = _Program(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = []
    for name in kinds:
        kind = _KINDS[name]
        edits = list(kind.edits(program))
        if edits:
            edit = edits[int(rng.integers(len(edits)))]
            values = dict(edit.values)
            cause, cure = (phrases[int(rng.integers(len(phrases)))] for phrases in (kind.causes, kind.cures))
            found.append(Mistake(name, program.edited(edit), cause.format(**values), cure.format(**values)))
    return [found[index] for index in rng.permutation(len(found))]
