"""However a program fails, it ends in a verdict of the right outcome, and the next good program is `ok` on the same
evaluator."""

from __future__ import annotations

import os

import pytest

from evaluators.records import Outcome
from tests.evaluators.hostile.programs import PIPE, TASK, assert_next_is_ok, next_nonce, program
from tests.evaluators.hostile.storage import assert_storable
from tests.evaluators.test_syntax import COPIED_BODIES

FORK_BOMB = """
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
FAILING: dict[str, tuple[str, str]] = {
    "does not parse": ("build_error", "def ("),
    "null bytes": ("build_error", "x = 1\0\n"),
    "half a surrogate pair": ("build_error", "x = '\ud800'\n"),
    "deep brackets": ("build_error", "(" * 20000),
    "deep operators": ("build_error", "x = " + "-" * 100000 + "1"),
    "deep attributes": ("build_error", "x = a" + ".a" * 50000),
    "very many statements": ("build_error", program(top="x = 1\n" * 20_000)),
    "very many accents": ("build_error", program(top="a" + "\u0301\u0316" * 90_000)),
    "no ModelNew": ("build_error", "x = 1\n"),
    "returns from a module": ("build_error", program(top="return")),
    "loops in import": ("timeout", program(top="while True: pass")),
    "loops in constructor": ("timeout", program(init="while True: pass")),
    "loops in forward": ("timeout", program(forward="while True: pass")),
    "forks without end": ("timeout", program(forward=FORK_BOMB)),
    "eats memory": ("runtime_error", program(forward="keep = []\nwhile True: keep.append(bytearray(1 << 26))")),
    "starts threads": (
        "runtime_error",
        program(forward="while True: threading.Thread(target=time.sleep, args=(60,)).start()"),
    ),
    "segfaults": ("runtime_error", program(forward="ctypes.string_at(0)")),
    "aborts": ("runtime_error", program(forward="os.abort()")),
    "exits": ("runtime_error", program(top="os._exit(0)")),
    "exits politely": ("runtime_error", program(forward="sys.exit(0)")),
    "prints gigabytes": ("runtime_error", program(forward="while True: print('x' * (1 << 20), flush=True)")),
    "one big file": (
        "runtime_error",
        program(forward="with open('f', 'wb') as f:\n    while True: f.write(bytes(1<<20))"),
    ),
    "ten thousand files": (
        "runtime_error",
        program(forward="for n in range(10_000): open(str(n), 'w').close()"),
    ),
    "many files": (
        "runtime_error",
        program(forward="for n in range(100):\n    with open(str(n), 'wb') as f: f.write(bytes(1 << 20))"),
    ),
    "closes descriptors": ("runtime_error", program(forward="os.closerange(0, 4096)")),
    "raises KeyboardInterrupt": ("runtime_error", program(forward="raise KeyboardInterrupt")),
    "recurses": ("runtime_error", program(top="def f(): return f()", forward="f()")),
    "raises the unprintable": (
        "runtime_error",
        program(top="class E(Exception):\n    def __str__(self): raise E", forward="raise E"),
    ),
    "raises a surrogate": ("runtime_error", program(forward="raise ValueError('\\ud800')")),
    "replaces its output file": (
        "runtime_error",
        program(forward="try: os.unlink('output.txt')\nexcept OSError: pass\nos.mkfifo('output.txt'); os._exit(1)"),
    ),
    "giant message": ("runtime_error", program(top=PIPE, forward="pipe().sendall(b'\\xff' * 8)")),
    "endless message": (
        "timeout",
        program(
            top=PIPE, forward="p = pipe(); p.sendall(struct.pack('<I', 1 << 20))\nwhile True: p.send(b' ')"
        ).replace("p.send(b' ')", "time.sleep(0.05); p.send(b' ')"),
    ),
    "sends descriptors": ("wrong", program(top=PIPE, forward="answer(*[0] * 200); time.sleep(60)")),
    "answers instead of computing": ("wrong", program(top=PIPE, forward="answer(); time.sleep(60)")),
    "changes its input": ("wrong", program(forward="y = torch.relu(x @ self.weight); x.zero_()", result="y")),
    "returns its input": ("wrong", program(result="x")),
    "other strides": ("wrong", program(result="torch.relu(x @ self.weight).t().contiguous().t()")),
    "a subclass": (
        "wrong",
        program(top="class T(torch.Tensor): pass", result="torch.relu(x @ self.weight).as_subclass(T)"),
    ),
    "a subclass of the same name": (
        "wrong",
        program(
            top="class Tensor(torch.Tensor): __module__, __qualname__ = 'torch', 'Tensor'",
            result="torch.relu(x @ self.weight).as_subclass(Tensor)",
        ),
    ),
    "a parameter": ("wrong", program(result="nn.Parameter(torch.relu(x @ self.weight))")),
    "other dtype": ("wrong", program(result="torch.relu(x @ self.weight).double()")),
    "other shape": ("wrong", program(result="torch.relu(x @ self.weight)[None]")),
    "other nesting": ("wrong", program(result="(torch.relu(x @ self.weight),)")),
    "nothing": ("wrong", program(result="None")),
    "NaN": ("wrong", program(result="torch.relu(x @ self.weight) * float('nan')")),
    "zeros": ("wrong", program(result="torch.zeros_like(x)")),
    "float16": ("wrong", program(result="torch.relu(x.half() @ self.weight.half()).float()")),
    "bfloat16": ("wrong", program(result="torch.relu(x.bfloat16() @ self.weight.bfloat16()).float()")),
    "finishes later": (
        "wrong",
        program(
            forward="""
            y = torch.empty_like(x)
            def later():
                time.sleep(0.02)
                y.copy_(torch.relu(x @ self.weight))
            threading.Thread(target=later).start()
            """,
            result="y",
        ),
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_hostile_program_ends_in_its_verdict(evaluator, name) -> None:
    outcome, source = FAILING[name]
    verdict = evaluator.evaluate(TASK, source)
    assert verdict.outcome == outcome, verdict.message
    assert not verdict.speedups
    assert verdict.message
    assert len(verdict.message) <= 2000
    assert_storable(verdict)
    assert_next_is_ok(evaluator)


def test_a_program_that_takes_all_memory_to_compile_fails_in_its_own_process(evaluator) -> None:
    verdict = evaluator.evaluate(TASK, COPIED_BODIES.replace("f(a)", "f(a); " * 200))
    assert verdict.outcome in (Outcome.RUNTIME_ERROR, Outcome.TIMEOUT), verdict.message
    assert_next_is_ok(evaluator)


def test_no_descriptor_of_the_judge_leaks(evaluator) -> None:
    def open_at_rest() -> int:
        assert_next_is_ok(evaluator)
        evaluator.start()  # waits for the processes that start behind a verdict
        return len(os.listdir("/proc/self/fd"))

    before = open_at_rest()
    for name in ("sends descriptors", "giant message", "exits", "closes descriptors"):
        outcome, source = FAILING[name]
        assert evaluator.evaluate(TASK, source + f"\nagain = {next_nonce()}\n").outcome == outcome
    assert open_at_rest() <= before


def test_programs_that_differ_in_a_docstring_are_judged_apart(evaluator) -> None:
    """A program can run its docstring."""
    source = program(top='class Documented:\n    "HERE"', result="torch.relu(eval(Documented.__doc__))")
    outcomes = [evaluator.evaluate(TASK, source.replace("HERE", text)).outcome for text in ("x @ self.weight", "x")]
    assert outcomes == [Outcome.OK, Outcome.WRONG]


def test_a_comment_is_never_run(evaluator) -> None:
    """In UTF-7, which a program's file could declare, this comment ends before the second line of code."""
    hidden = "# coding: utf-7\n# +AAo-raise RuntimeError('the comment ran')\n"
    verdict = evaluator.evaluate(TASK, hidden + program())
    assert verdict.outcome is Outcome.BUILD_ERROR
    assert "encoding" in verdict.message
