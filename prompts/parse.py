"""Finds the analysis, the design and the program in a model's answer.

Accepts what models really write: headings that are missing or at another level, several code blocks, fences left open.
Never executes or imports what it reads, never raises on any text, and takes time linear in the text's length.
"""

from __future__ import annotations

import ast
import re
import textwrap
from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate, islice

from evaluators.syntax import MAX_CHARACTERS, MAX_TOKENS, count_tokens, shared_tree

_CHARACTER_BUDGET = 1_000_000  # of all programs that are tried in one answer, so that no answer is slow
_TOKEN_BUDGET = 2 * MAX_TOKENS  # of those programs, for Python's parser
_PARSE_OVERHEAD = 20  # tokens that a call of the parser counts for, besides its text
_MOST_FENCES = 1_000  # in one answer; further ones are text
_FENCES_AHEAD = 16  # fences that may be the end of a block
_CLOSERS_TRIED = 6  # ends that are tried if a block does not parse: its fence may be inside a string

_REASONING_END = re.compile(r"</think(?:ing)?>")
_REASONING_START = re.compile(r"\s*<think(?:ing)?>")
_CLASS = re.compile(r"^class[ \t]+ModelNew\b", re.MULTILINE)
_HEADING = re.compile(  # matched against the beginning of a line, with runs of blanks made single
    r"(?P<hash>#{1,6})? ?(?P<bold>\*\*|__)? ?(?:(?:step|part|section) )?(?:\d{1,2} ?[.):]? ?)?"
    r"(?P<full>performance |algorithm(?:ic)? |code )?(?P<name>analysis|design|implementation)(?![A-Za-z0-9])"
    r"(?P<after>[ :*_#]*)(?P<more>.?)",
    re.IGNORECASE,
)
_HEADING_PREFIX = 100  # characters of a line in which a heading must be recognised
_TITLE = re.compile("analysis|design|implementation", re.IGNORECASE)
_FENCE_MARK = re.compile(r"(?:^|(?<=\r))(?:[^\S\r\n]|\0)*(?:```|~~~)", re.MULTILINE)
_END_BUDGET = 500_000  # characters that one call of `end_of_program` may read; each fence reads all before it
_END_OVERHEAD = 5_000  # characters that a fence counts for, besides its text


@dataclass(frozen=True)
class ParsedResponse:
    """The parts of an answer. Either `code` is the program, or `problem` says in a few words why there is none."""

    analysis: str | None
    design: str | None
    code: str | None
    problem: str | None


@dataclass(frozen=True)
class _Fence:
    line: int
    indent: str
    mark: str
    info: str


@dataclass(frozen=True)
class _Heading:
    line: int
    name: str
    rest: str


@dataclass(frozen=True)
class _Block:
    """A code block: `start` is the line of its opening fence, `end` the first line after it. `open_string`: further
    lines may close a string and make it parse."""

    start: int
    end: int
    code: str
    tree: ast.Module | None
    open_string: bool
    closed: bool

    @property
    def defines_model(self) -> bool:
        return _defines_model(self.tree) if self.tree else bool(_CLASS.search(self.code))

    @property
    def is_cut(self) -> bool:
        return not self.closed and self.tree is None

    @property
    def is_program(self) -> bool:
        """Whether the block is a program that no further text can change.

        A fence line is not valid Python except inside a string. So if no string is open at the end of a block that does
        not parse, further text cannot make it parse.
        """
        return self.closed and self.defines_model and (self.tree is not None or not self.open_string)


def parse_response(text: str, finish_reason: str = "stop") -> ParsedResponse:
    """Finds the three parts of an answer.

    The program is the last block that defines `ModelNew`; blocks of the implementation section come first. A block that
    was never closed counts if it parses. With `finish_reason` "length", a program that the analysis quotes is not taken
    for the answer. A complete program with a syntax error is returned: the build reports the error.
    """
    was_cut = finish_reason == "length"
    answer = _without_reasoning(_clean(text))
    document = _Document(answer, _Reader())
    code, problem = _find_code(document, was_cut)
    if code is not None and len(code) > MAX_CHARACTERS:
        code, problem = None, f"longer than {MAX_CHARACTERS} characters"
    return ParsedResponse(document.section("analysis"), document.section("design"), code, problem)


def end_of_program(text: str, start: int = 0) -> int | None:
    """The first position after `start` at which an unfinished answer may be ended, or None if it has to go on.

    This is the position just after the fence that closes the program. A quoted program ends nothing: if there are
    headings, only blocks under the implementation heading count, and blocks in the reasoning before an answer never do.
    `parse_response` finds the program in the text before the position. Text that would have followed (another version,
    an explanation) is not waited for.
    """
    if "ModelNew" not in text:
        return None
    budget, reader = _END_BUDGET, _Reader()
    for mark in _FENCE_MARK.finditer(text):
        end = mark.end()
        if end <= start:
            continue
        budget -= end + _END_OVERHEAD
        if budget < 0:
            return None
        if _holds_program(text[:end], reader):
            return end
    return None


def _holds_program(text: str, reader: _Reader) -> bool:
    document = _Document(_without_reasoning(_clean(text)), reader)
    return any(block.is_program for group in _groups(document, was_cut=True) for block in group)


def _clean(text: str) -> str:
    text = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    return text.encode("utf-8", "replace").decode("utf-8")


def _without_reasoning(text: str) -> str:
    """Removes the reasoning before an answer. Some chat templates leave only its closing tag in the response."""
    position = 0
    while (end := _REASONING_END.search(text, position)) and (position == 0 or _REASONING_START.match(text, position)):
        position = end.end()
    return "" if _REASONING_START.match(text, position) else text[position:]


def _find_code(document: _Document, was_cut: bool) -> tuple[str | None, str | None]:
    """The program and None, or None and the problem."""
    for group in _groups(document, was_cut):
        usable = [block for block in group if block.defines_model and not block.is_cut]
        if usable:
            return usable[-1].code, None
        if any(block.is_cut for block in group):
            return None, "truncated"
    if not was_cut or not document.headings or document.has_implementation:
        bare = document.bare_code()
        if bare is not None:
            return bare, None
    if was_cut:
        return None, "truncated"
    return None, "does not define ModelNew" if document.blocks else "no code block"


def _groups(document: _Document, was_cut: bool) -> list[list[_Block]]:
    """The blocks that may be the program, in groups, the likeliest group first."""
    implementation = [block for block in document.blocks if document.is_implementation(block.start)]
    return [implementation] if was_cut and document.headings else [implementation, document.blocks]


class _Reader:
    """Parses the programs in one answer, each once, as long as its budget lasts."""

    def __init__(self) -> None:
        self._characters, self._tokens = _CHARACTER_BUDGET, _TOKEN_BUDGET
        self._read: dict[str, tuple[ast.Module | None, bool]] = {}

    @property
    def is_spent(self) -> bool:
        """Whether it reads no further program."""
        return min(self._characters, self._tokens) <= 0

    def read(self, code: str) -> tuple[ast.Module | None, bool]:
        """The tree of a program, None for one that does not parse or is not read; and whether it ends inside a
        triple-quoted string, which further lines may close."""
        if code not in self._read:
            if self.is_spent:
                return None, True
            self._read[code] = self._parse(code)
        return self._read[code]

    def _parse(self, code: str) -> tuple[ast.Module | None, bool]:
        self._characters -= len(code)
        try:
            tokens = count_tokens(code)
        except SyntaxError:
            self._tokens -= MAX_TOKENS // 4  # to count them takes a fourth of the time to parse them
            return None, False
        self._tokens -= tokens + _PARSE_OVERHEAD
        try:
            return shared_tree(code), False
        except SyntaxError as error:
            return None, "unterminated triple-quoted" in error.msg
        except (ValueError, RecursionError, MemoryError):
            return None, False


class _Document:
    """The code blocks of an answer and the headings between them, found in one pass from top to bottom."""

    def __init__(self, text: str, reader: _Reader) -> None:
        self._text, self._reader = text, reader
        self._lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
        fences = (_fence(index, line) for index, line in enumerate(self._lines) if "```" in line or "~~~" in line)
        self._fences = list(islice(filter(None, fences), _MOST_FENCES))
        self.blocks: list[_Block] = []
        self.headings: list[_Heading] = []
        self._outside: list[int] = []  # numbers of the lines that are neither code nor heading
        self._read()

    @property
    def has_implementation(self) -> bool:
        return any(heading.name == "implementation" for heading in self.headings)

    def is_implementation(self, line: int) -> bool:
        """Whether the last heading before `line` is that of the implementation."""
        after = bisect(self.headings, line, key=lambda heading: heading.line)
        return after > 0 and self.headings[after - 1].name == "implementation"

    def section(self, name: str) -> str | None:
        """The text of the first section `name`, or None. A missing analysis is the text before the design."""
        for index, heading in enumerate(self.headings):
            if heading.name == name:
                last = self.headings[index + 1].line if index + 1 < len(self.headings) else len(self._lines)
                body = self._slice(heading.line + 1, last)
                return f"{heading.rest}\n{body}".strip() or None
        if name == "analysis" and self.headings and self.headings[0].name == "design":
            return self._slice(0, self.headings[0].line).strip() or None
        return None

    def bare_code(self) -> str | None:
        """A program without fences, if it parses: from the first import to the end, or to the last indented line."""
        lines = [self._lines[line] for line in self._outside]
        if self.has_implementation:
            last = max(heading.line for heading in self.headings if heading.name == "implementation")
            lines = [self._lines[line] for line in self._outside if line > last]
        starts = (i for i, line in enumerate(lines) if re.match(r"(?:import|from)[ \t]|class[ \t]+ModelNew\b", line))
        start = next(starts, None)
        if start is None:
            return None
        indented = max((i for i, line in enumerate(lines) if line[:1] in (" ", "\t") and line.strip()), default=start)
        for end in (len(lines), indented + 1):
            code = "\n".join(lines[start:end]).strip()
            tree, _ = self._reader.read(code)
            if tree is not None and _defines_model(tree):
                return code
        return None

    def _read(self) -> None:
        fences = {fence.line: index for index, fence in enumerate(self._fences)}
        titles = {index for index, line in enumerate(self._lines) if line and _TITLE.search(line[:_HEADING_PREFIX])}
        line = 0
        for special in sorted(fences.keys() | titles):
            if special < line:
                continue  # inside a block
            self._outside += range(line, special)
            line = special + 1
            if special in fences:
                block = self._block(fences[special])
                line = block.end
                if block.code.strip():
                    self.blocks.append(block)
            elif heading := _heading(special, self._lines[special]):
                self.headings.append(heading)
            else:
                self._outside.append(special)
        self._outside += range(line, len(self._lines))

    def _block(self, index: int) -> _Block:
        """The block that fence `index` opens.

        It ends at the first closing fence before which the code parses; before a fence inside a docstring it does not.
        If there is no such fence, a heading or another opening fence shows that the closing fence was forgotten.
        """
        opening = self._fences[index]
        ahead = self._fences[index + 1 : index + 1 + _FENCES_AHEAD]
        bare = [fence for fence in ahead if not fence.info and fence.mark[0] == opening.mark[0]]
        closers = [fence.line for fence in bare if len(fence.mark) >= len(opening.mark)] or [f.line for f in bare]
        for line in closers[:_CLOSERS_TRIED] if not self._reader.is_spent else []:
            block = self._cut(opening, line, line + 1, closed=True)
            if block.tree is not None:
                return block
        last = closers[0] if closers else len(self._lines)
        next_opening = min((fence.line for fence in ahead if fence.info and fence.line < last), default=last)
        for line in range(opening.line + 1, next_opening):
            if self._lines[line].startswith("##") and _heading(line, self._lines[line]):
                next_opening = line
                break
        if next_opening < last:
            return self._cut(opening, next_opening, next_opening, closed=True)
        return self._cut(opening, last, min(last + 1, len(self._lines)), closed=bool(closers))

    def _cut(self, opening: _Fence, last: int, end: int, *, closed: bool) -> _Block:
        first = opening.line + 1
        code = self._slice(first, last)
        if opening.indent:
            code = textwrap.dedent(code)
        if not closed:
            code = code.rstrip().rstrip("`").rstrip()  # a closing fence at the end of the last line
        return _Block(opening.line, end, code, *self._reader.read(code), closed)

    def _slice(self, first: int, last: int) -> str:
        return (
            self._text[self._starts[first] : max(self._starts[last] - 1, self._starts[first])] if first < last else ""
        )


def _fence(index: int, line: str) -> _Fence | None:
    text = line.strip()
    if text[:3] not in ("```", "~~~"):
        return None
    info = text.lstrip(text[0])
    if text[0] == "`" and "`" in info:
        return None  # inline code
    return _Fence(index, line[: len(line) - len(line.lstrip())], text[: len(text) - len(info)], info.strip())


def _heading(index: int, line: str) -> _Heading | None:
    """The heading in a line, if it is one: with hashes, in bold (text may follow), or a full title alone."""
    match = _HEADING.match(" ".join(line[:_HEADING_PREFIX].split()))
    if match is None:
        return None
    after, more, full = match["after"], match["more"], match["full"]
    rest = ""
    if match["bold"] and match["bold"] in after and full:
        name = re.search(match["name"], line)
        rest = line[name.end() :].lstrip(" \t:*_") if name else ""
    elif more and not (match["hash"] and full):
        return None  # a sentence that begins like a heading
    elif not match["hash"] and not full:
        return None
    return _Heading(index, match["name"].lower(), rest)


def _defines_model(tree: ast.Module) -> bool:
    """Whether a module binds `ModelNew` at its top level, also inside `if`, `with` and `try`."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            return True
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "ModelNew" for t in node.targets):
            return True
        if isinstance(node, ast.If | ast.Try | ast.With):
            waiting += node.body
        if isinstance(node, ast.If | ast.Try):
            waiting += node.orelse
        if isinstance(node, ast.Try):
            waiting += [statement for handler in node.handlers for statement in handler.body]
    return False
