"""Whether a compiler would report the same error with torch's own headers as with the thin ones.

Most programs that do not compile have an error that has nothing to do with torch. To compile them again with torch's
headers, only to see the error again, takes most of a minute. In doubt they are compiled again.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Container
from functools import lru_cache
from pathlib import Path

_ERROR = re.compile(r"^[^\s:(][^:(]*(?:\(\d+\)|:\d+(?::\d+)?): (?:fatal )?error: (.*)$")
_ANY_ERROR = re.compile(r"\b(error|undefined reference)\b", re.IGNORECASE)
_SUMMARY = re.compile(r"\d+ errors? (detected|generated)|compilation terminated|error limit reached")
_SYNTAX = re.compile(
    r"expected (a|an|'[;,)}\](\[{]'|primary-expression|expression|statement|declaration)"
    r"|missing terminating|stray '|unrecognized token|quoted string should contain|unterminated"
    r"|declaration is incompatible with previous|conflicting declaration|redefinition of '|redeclaration of '"
    r"|calling a __(host|device)__ function"
)
_UNKNOWN = re.compile(
    r"identifier \"(\w+)\" is undefined|'(\w+)' (?:was not declared in this scope|does not name a type)"
)
# Names that only nvcc or CUDA's headers define. Torch's headers have these words, too, but do not define the names for
# a C++ compiler.
_OF_CUDA = re.compile(
    r"threadIdx|blockIdx|blockDim|gridDim|warpSize|__(global|device|host|shared|constant|shfl|sync)\w*"
)
_OF_TORCH = re.compile(r"\b(torch|at|c10|caffe2|py|pybind11)::|\b(TORCH|AT|C10|CAFFE2|PYBIND11|CUDA|PY|THC)_\w*")
# The line that `load_inline` writes for a function that `functions=` names. Torch has no substitute for a missing one.
_BINDING = re.compile(r"torch::wrap_pybind_function\((\w+)\)")
# Errors that the thin headers cause on purpose, because torch's cause them: a second module, and `tensor.type()`.
_SAME_WITH_TORCH = re.compile(
    r"redefinition of '[^']*\bwarpsmith_(module|fill)_|at::DeprecatedTypeProperties['\"] to ['\"]c10::ScalarType"
)
_EXCERPT_LINES = 3
_MOST_ERRORS = 20  # all headers may be read for each of them
_SECONDS = 20.0


def is_own_error(output: str, headers: Path, words: Callable[[], Container[str]] = frozenset) -> bool:
    """Whether every error in a compiler's output is the program's own: torch's headers would not remove it.

    Such an error is one of syntax or of an unknown name, in a line without anything of torch's. Neither a file below
    `headers` (torch's) nor `words` (of the headers that these include) may contain the name. Errors that torch's
    headers are known to cause as well count, too.
    """
    lines = output.splitlines()
    errors = [number for number, line in enumerate(lines) if _ANY_ERROR.search(line) and not _SUMMARY.search(line)]
    complaints = [(number, found.group(1)) for number in errors if (found := _ERROR.match(lines[number]))]
    if not complaints or len(complaints) < len(errors) or len(complaints) > _MOST_ERRORS:
        return False
    if any(lines[number].startswith(str(headers)) for number in errors):
        return False
    return all(
        _is_own(complaint, "\n".join(lines[number : number + _EXCERPT_LINES]), headers, words)
        for number, complaint in complaints
    )


def _is_own(complaint: str, excerpt: str, headers: Path, words: Callable[[], Container[str]]) -> bool:
    """Whether one error is the program's own. `excerpt` begins with it and contains the line that it is about."""
    if _SAME_WITH_TORCH.search(complaint):
        return True
    unknown = _UNKNOWN.search(complaint)
    name = (unknown.group(1) or unknown.group(2)) if unknown else ""
    if name and name in _BINDING.findall(excerpt):
        return True
    if _OF_TORCH.search(_BINDING.sub("", excerpt)) or not (name or _SYNTAX.match(complaint)):
        return False
    return not name or bool(_OF_CUDA.fullmatch(name)) or not (_is_known(name, headers) or name in words())


def names_a_line(output: str) -> bool:
    """Whether any line of a compiler's output is an error with its place in the source."""
    return any(map(_ERROR.match, output.splitlines())) or "undefined reference" in output


@lru_cache(maxsize=1024)
def _is_known(name: str, headers: Path) -> bool:
    """Whether any of the headers contains the word. In doubt True."""
    command = ["grep", "-rqwF", "--", name, str(headers)]
    try:
        return subprocess.run(command, timeout=_SECONDS, check=False).returncode != 1
    except (OSError, subprocess.TimeoutExpired):
        return True
