"""Whether a compiler's complaint, made with the thin headers, would be the same with torch's own.

Most programs that do not compile have an error that has nothing to do with torch, and compiling them again with torch's
headers to learn so takes most of a minute. In doubt they are.
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
# What only nvcc knows, or CUDA's headers: torch's, which have these words, do not bring it to a C++ compiler.
_OF_CUDA = re.compile(
    r"threadIdx|blockIdx|blockDim|gridDim|warpSize|__(global|device|host|shared|constant|shfl|sync)\w*"
)
_OF_TORCH = re.compile(r"\b(torch|at|c10|caffe2|py|pybind11)::|\b(TORCH|AT|C10|CAFFE2|PYBIND11|CUDA|PY|THC)_\w*")
# What `load_inline` writes for a function that `functions=` names: nothing of torch's stands in for a missing one.
_BINDING = re.compile(r"torch::wrap_pybind_function\((\w+)\)")
# Errors that the thin headers are written to have because torch's have them: a second module, and `tensor.type()`.
_SAME_WITH_TORCH = re.compile(
    r"redefinition of '.*\bwarpsmith_(module|fill)_|at::DeprecatedTypeProperties['\"] to ['\"]c10::ScalarType"
)
_EXCERPT_LINES = 3
_MOST_ERRORS = 20  # for each of which all headers may be read
_SECONDS = 20.0


def is_own_error(output: str, headers: Path, words: Callable[[], Container[str]] = frozenset) -> bool:
    """Whether every error in what a compiler printed is one of syntax or an unknown name, in a line that has nothing of
    torch, and neither a file below `headers` (torch's) nor `words` (what these include of others) knows these names; or
    one that torch's headers are known to have."""
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
    """Whether one error is the program's; `excerpt` begins with it and has the line that it is about."""
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
    """Whether any line of what a compiler printed is an error with its place."""
    return any(map(_ERROR.match, output.splitlines())) or "undefined reference" in output


@lru_cache(maxsize=1024)
def _is_known(name: str, headers: Path) -> bool:
    """Whether the word stands in any of the headers."""
    command = ["grep", "-rqwF", "--", name, str(headers)]
    try:
        return subprocess.run(command, timeout=_SECONDS, check=False).returncode != 1
    except (OSError, subprocess.TimeoutExpired):
        return True
