"""Candidates for one task, right but for the lines that a test puts into them."""

from __future__ import annotations

import itertools
import textwrap

from evaluators.evaluator import Evaluator
from evaluators.records import Task
from tests.evaluators.outcomes import assert_ok

TASK = Task(
    "test/matmul_relu",
    1,
    "matmul_relu",
    """
import torch
import torch.nn as nn

n = 192


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, n))

    def forward(self, x):
        return torch.relu(x @ self.weight)


def get_inputs():
    return [torch.randn(n, n)]


def get_init_inputs():
    return [n]
""",
)
_nonces = itertools.count(1)
# Finds the judge's socket among the program's descriptors, as any program can, and sends a message of its own.
PIPE = """
def pipe():
    for descriptor in range(3, 1024):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                found = socket.socket(fileno=os.dup(descriptor))
                found.getpeername()  # CUDA has sockets of its own, which nobody answers
                return found
        except OSError:
            pass

def say(body, *descriptors):
    end, data = pipe(), struct.pack("<I", len(body)) + body
    if descriptors:
        data = data[socket.send_fds(end, [data], descriptors) :]
    end.sendall(data)

# What an honest runner says after one call.
def answer(*descriptors):
    in_cpp = b"\\1" + struct.pack("<dq", 1e-3, 0)
    say(in_cpp if "WARPSMITH_NATIVE" in os.environ else b'{"seconds": [0.001]}', *descriptors)
"""


def program(top: str = "", init: str = "", forward: str = "", result: str = "torch.relu(x @ self.weight)") -> str:
    """A candidate that is right but for the lines put into it. Each has a number of its own, so that no verdict is
    remembered for it."""
    lines = [
        "import ctypes, gc, json, os, signal, socket, stat, struct, sys, threading, time",
        "import torch",
        "import torch.nn as nn",
        f"nonce = {next(_nonces)}",
        textwrap.dedent(top),
        "class ModelNew(nn.Module):",
        "    def __init__(self, n):",
        "        super().__init__()",
        "        self.weight = nn.Parameter(torch.randn(n, n))",
        textwrap.indent(textwrap.dedent(init), " " * 8),
        "    def forward(self, x):",
        textwrap.indent(textwrap.dedent(forward), " " * 8),
        f"        return {result}",
    ]
    return "\n".join(lines) + "\n"


def next_nonce() -> int:
    """A number that no program has had, so that no verdict is remembered for its source."""
    return next(_nonces)


def assert_next_is_ok(evaluator: Evaluator) -> None:
    """The evaluator still judges a good program as `ok`."""
    verdict = evaluator.evaluate(TASK, program())
    assert_ok(verdict)
