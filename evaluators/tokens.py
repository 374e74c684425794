"""How much Python's parser would have to read in a text, found before it reads any of it.

CPython's parser has no limit of time. It takes about a microsecond for a token, but much more for some texts. The count
must never be lower than the parser's work: whatever this module and some version of Python may read differently counts
as if all of it were code.
"""

from __future__ import annotations

import re

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
