"""Whatever a program does ends in a verdict of the right outcome, and the next good program is `ok` on the same
evaluator."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import textwrap
from pathlib import Path

import pytest

from evaluators.records import Outcome, Task, Verdict, verdict_table

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


def program(top: str = "", init: str = "", forward: str = "", result: str = "torch.relu(x @ self.weight)") -> str:
    """A candidate that is right but for the lines put into it. Each is a new one, so that none is remembered."""
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


# The judge's socket is among the descriptors, as any program can find out.
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

def say(body):
    pipe().sendall(struct.pack("<I", len(body)) + body)

def runner():
    frame = sys._getframe()
    while type(frame.f_locals.get("self")).__name__ != "Runner":
        frame = frame.f_back
    return frame.f_locals["self"]
"""
FORK_BOMB = """
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
MANY_FILES = """
for number in range(100000):
    with open(f"file-{number}", "wb") as file:
        file.write(bytes(1 << 20))
"""
OTHERS = """
found = []
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        try:
            os.close(os.open(f"/proc/{name}/mem", os.O_RDWR))
            found.append(name)
        except OSError:
            pass
libc = ctypes.CDLL(None)
found += [process for process in range(1, 5000) if process != os.getpid() and libc.ptrace(16, process, 0, 0) == 0]
if found:
    raise RuntimeError(f"in reach: {found}")
"""
LAZY = """
class Tensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        if function is torch.Tensor.copy_:
            target, lazy = arguments
            with torch._C.DisableTorchFunctionSubclass():
                for _ in range(2):
                    target.copy_(torch.relu(lazy.x @ lazy.weight))
            return target
        return super().__torch_function__(function, types, arguments, options or {})
"""
LAZY_RESULT = """
lazy = torch.empty_like(x).as_subclass(Tensor)
lazy.x, lazy.weight = x, self.weight
return lazy
"""
TRUNCATE = """
for name in os.listdir("/proc/self/fd"):
    for size in (0, 1 << 40):
        try:
            os.ftruncate(int(name), size)
        except OSError:
            pass
"""
SEND_DESCRIPTORS = """
body = b'{"seconds": [0.001]}'
socket.send_fds(pipe(), [struct.pack("<I", len(body)) + body], [0] * 200)
time.sleep(60)
"""
DEEP_FOLDERS = """
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
"""

FAILING: dict[str, tuple[str, str]] = {
    "does not parse": ("build_error", "def ("),
    "null bytes": ("build_error", "x = 1\0\n"),
    "half a surrogate pair": ("build_error", "x = '\ud800'\n"),
    "deep brackets": ("build_error", "(" * 20000),
    "deep operators": ("build_error", "x = " + "-" * 100000 + "1"),
    "deep attributes": ("build_error", "x = a" + ".a" * 50000),
    "no ModelNew": ("build_error", "x = 1\n"),
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
    "sends descriptors": ("wrong", program(top=PIPE, forward=SEND_DESCRIPTORS)),
    "answers instead of computing": (
        "wrong",
        program(top=PIPE, forward="say(b'{\"seconds\": [0.001]}'); time.sleep(60)"),
    ),
    "copies nothing": ("wrong", program(top="torch.Tensor.copy_ = lambda self, other: self")),
    "changes its input": ("wrong", program(forward="y = torch.relu(x @ self.weight); x.zero_()", result="y")),
    "returns its input": ("wrong", program(result="x")),
    "other strides": ("wrong", program(result="torch.relu(x @ self.weight).t().contiguous().t()")),
    "a subclass": (
        "wrong",
        program(top="class T(torch.Tensor): pass", result="torch.relu(x @ self.weight).as_subclass(T)"),
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
FORGED = {
    "not JSON": b"hello",
    "not an object": b"[1]",
    "not text": b"\xff\xfe\x00",
    "nothing in it": b"{}",
    "seconds of words": b'{"seconds": "x"}',
    "seconds of lists": b'{"seconds": [[1]]}',
    "too many seconds": b'{"seconds": [1, 1, 1]}',
    "NaN seconds": b'{"seconds": [NaN]}',
    "infinite seconds": b'{"seconds": [1e999]}',
    "negative seconds": b'{"seconds": [-1]}',
    "huge seconds": b'{"seconds": [%s]}' % (b"9" * 4000),
    "deep seconds": b'{"seconds": ' + b"[" * 100000 + b"]" * 100000 + b"}",
    "moderately deep mismatch": b'{"mismatch": ' + b'{"kind": "list", "items": [' * 300 + b"1" + b"]}" * 300 + b"}",
    "empty mismatch": b'{"mismatch": {}}',
    "null mismatch": b'{"mismatch": null}',
    "mismatch of no shape": b'{"mismatch": {"kind": "tensor"}}',
    "mismatch of wrong items": b'{"mismatch": {"kind": "list", "items": 3}}',
    "null error": b'{"error": null}',
    "error of objects": b'{"error": {"a": []}, "message": [[]]}',
    "long error": b'{"error": "E", "message": "' + b"x" * 3000000 + b'"}',
}


def assert_next_is_ok(evaluator) -> None:
    verdict = evaluator.evaluate(TASK, program())
    assert verdict.outcome is Outcome.OK, verdict.message


def assert_storable(verdict: Verdict) -> None:
    assert Verdict.from_row(json.loads(json.dumps(verdict.to_row()))) == verdict
    assert Verdict.from_row(verdict_table([verdict]).to_pylist()[0]) == verdict


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


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_answer_never_raises_in_the_judge(evaluator, name) -> None:
    forward = f"say({FORGED[name]!r})\ntime.sleep(60)"
    if len(FORGED[name]) > 10000:  # keep the source itself small
        forward = f"say(b'{{\"error\": \"' + b'x' * {len(FORGED[name])} + b'\"}}')\ntime.sleep(60)"
    if name == "deep seconds":
        forward = "say(b'{\"seconds\": ' + b'[' * 100000 + b']' * 100000 + b'}')\ntime.sleep(60)"
    verdict = evaluator.evaluate(TASK, program(top=PIPE, forward=forward))
    assert verdict.outcome in (Outcome.RUNTIME_ERROR, Outcome.WRONG)
    assert_storable(verdict)


@pytest.mark.parametrize("name", ["not JSON", "nothing in it", "seconds of words", "null error"])
def test_a_forged_answer_to_load_never_raises_in_the_judge(evaluator, name) -> None:
    body = FORGED[name].replace(b"seconds", b"state")
    verdict = evaluator.evaluate(TASK, program(top=PIPE + f"\nsay({body!r})"))
    assert verdict.outcome is Outcome.RUNTIME_ERROR


def test_answering_twice_gains_nothing(evaluator) -> None:
    verdict = evaluator.evaluate(TASK, program(top=PIPE, forward="say(b'{\"seconds\": [0.001]}')"))
    assert verdict.outcome in (Outcome.RUNTIME_ERROR, Outcome.TIMEOUT, Outcome.WRONG)


def test_forged_answers_leave_a_good_evaluator(evaluator) -> None:
    assert_next_is_ok(evaluator)


@pytest.mark.parametrize(
    "forward",
    [
        "os.kill(os.getppid(), 9)",
        "os.kill(-1, 9)",
        "os.killpg(0, 9)",
        "os.kill(os.getpid(), 19)",
        OTHERS,
        TRUNCATE,
        DEEP_FOLDERS,
        MANY_FILES,
    ],
    ids=["parent", "everybody", "group", "stops itself", "other processes", "shrinks memory", "deep folders", "files"],
)
def test_a_hostile_program_reaches_nobody_else(evaluator, forward) -> None:
    verdict = evaluator.evaluate(
        TASK, program(top="done = []", forward=f"if not done:\n    done.append(1)\n{textwrap.indent(forward, '    ')}")
    )
    if forward is OTHERS:
        assert verdict.outcome is Outcome.OK, verdict.message
    assert verdict.outcome in (Outcome.OK, Outcome.RUNTIME_ERROR, Outcome.TIMEOUT), verdict.message
    assert_next_is_ok(evaluator)


def test_no_descriptor_of_the_judge_leaks(evaluator) -> None:
    evaluator.evaluate(TASK, program())
    before = len(os.listdir("/proc/self/fd"))
    for name in ("sends descriptors", "giant message", "exits", "closes descriptors"):
        outcome, source = FAILING[name]
        assert evaluator.evaluate(TASK, source + f"\nagain = {next(_nonces)}\n").outcome == outcome
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_lazy_tensor_is_charged_for_its_work(evaluator) -> None:
    verdict = evaluator.evaluate(TASK, program(top=LAZY, forward=LAZY_RESULT))
    assert verdict.outcome in (Outcome.OK, Outcome.SUSPECT), verdict.message
    assert verdict.timing.candidate_seconds.value > 1.3 * verdict.timing.reference_seconds.value


@pytest.mark.parametrize(
    "top",
    [
        "time.perf_counter = lambda: 0.0",
        "import evaluators.runner.serve\nevaluators.runner.perf_counter = lambda: 0.0",
        "import evaluators.runner.serve\nticks = iter(range(10**9))\n"
        "evaluators.runner.serve.perf_counter = lambda: next(ticks) * 1e-7",
        "relu = torch.relu\ntorch.relu = lambda x: relu(x)\ntorch.default_generator.manual_seed(0)",
    ],
    ids=["perf_counter", "the runner's clock", "a slow clock", "torch"],
)
def test_a_patched_clock_gains_nothing(evaluator, top) -> None:
    verdict = evaluator.evaluate(TASK, program(top=top))
    assert verdict.outcome in (Outcome.OK, Outcome.SUSPECT, Outcome.HACK), verdict.message
    assert 0.7 < verdict.timing.reference_seconds.value / verdict.timing.candidate_seconds.value < 1.4


AHEAD = """
from evaluators.runner.serve import Runner
cache = {}
weight = []

def ahead(inputs):
    last = {}
    while True:
        for slot, (x,) in enumerate(inputs):
            mark = x[0].tolist()
            if last.get(slot) != mark and weight:
                last[slot] = mark
                seen = x.clone()
                cache[slot] = (seen, torch.relu(seen @ weight[0]))

def start():
    frame = sys._getframe()
    while type(frame.f_locals.get("self")).__name__ != "Runner":
        frame = frame.f_back
    inputs = frame.f_locals["self"].inputs
    threading.Thread(target=ahead, args=(inputs,), daemon=True).start()
    return {x.data_ptr(): slot for slot, (x,) in enumerate(inputs)}
slots = {}
"""
AHEAD_FORWARD = """
if not slots:
    weight.append(self.weight.detach())
    slots.update(start())
slot = slots[x.data_ptr()]
if slot in cache and torch.equal(cache[slot][0], x):
    return cache[slot][1]
"""


def test_working_ahead_while_the_reference_runs_gains_nothing(evaluator) -> None:
    """A thread reads the inputs as soon as the judge has written them, and would have the answer before the call."""
    verdict = evaluator.evaluate(TASK, program(top=AHEAD, forward=AHEAD_FORWARD))
    assert verdict.outcome is not Outcome.INFRA
    assert verdict.speedup is None or verdict.speedup < 1.25


def _processes_named(name: str) -> list[str]:
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text().strip() == name:
                found.append(comm.parent.name)
    return found


def test_a_daemon_does_not_survive_its_program(evaluator) -> None:
    name = f"ws-daemon-{os.getpid() % 10000}"
    forward = f"""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)
            os.closerange(0, 100)
            time.sleep(300)
        os._exit(0)
    time.sleep(0.2)
    os._exit(3)
    """
    verdict = evaluator.evaluate(TASK, program(forward=forward))
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert _processes_named(name) == []


def test_a_program_leaves_nothing_behind(evaluator) -> None:
    mark = Path(f"/tmp/ws-leftover-{os.getpid()}")
    forward = f"""
    open("inside", "w").close()
    for place in ("{mark}", "/var/tmp/{mark.name}", "/dev/shm/{mark.name}"):
        try:
            open(place, "w").close()
        except OSError:
            pass
    raise RuntimeError(f"folder={{os.getcwd()}}")
    """
    verdict = evaluator.evaluate(TASK, program(forward=forward))
    folder = Path(verdict.message.partition("folder=")[2].splitlines()[0])
    assert folder.name.startswith("warpsmith-runner-")
    assert not folder.exists()
    left = [place for place in (mark, Path("/var/tmp", mark.name), Path("/dev/shm", mark.name)) if place.exists()]
    for place in left:
        place.unlink()
    if "read_only_host" not in verdict.evaluator["containment"]:
        pytest.skip("this host does not let the evaluator mount")
    assert left == []
