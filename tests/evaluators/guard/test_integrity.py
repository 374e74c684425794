"""A program that changes the functions that measure it is found, with their names, however deep the change."""

from __future__ import annotations

import pytest

from evaluators.records import Outcome

PROGRAM = """
import builtins, ctypes, gc, json, sys, time, types
import torch
import torch.nn as nn

WORD = ctypes.sizeof(ctypes.c_void_p)


def runner():
    frame = sys._getframe()
    while frame := frame.f_back:
        if hasattr(frame.f_locals.get("self"), "device"):
            return frame.f_locals["self"]


def copy_of(function):
    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


SELF = runner()
TIMED = type(SELF.device).timed
CHANGE


class ModelNew(nn.Module):
    def forward(self, x):
        return x.softmax(dim=1)
"""
CHANGES = {
    "a code object": (
        "was = builtins.was = copy_of(TIMED)\ndef timed(self, *given, **named): return was(self, *given, **named)\n"
        "TIMED.__code__ = timed.__code__",
        "timed",
    ),
    "instructions in place": (
        "code = TIMED.__code__  # a NOP for its first instruction\n"
        "ctypes.c_uint16.from_address(id(code) + type(code).__basicsize__).value = 9",
        "timed",
    ),
    "default values": ("type(SELF.channel).send.__defaults__ = ([],)", "Channel.send"),
    "keyword defaults": ("type(SELF.channel).__init__.__kwdefaults__['trusted'] = 1", "Channel.__init__"),
    "a cell": (
        "torch.cuda.Event.record.__closure__[0].cell_contents = type('Event', (), {})",
        "torch.cuda.Event.record",
    ),
    "a class's dictionary": (
        "gc.get_referents(type(SELF.device).__dict__)[0]['timed'] = copy_of(TIMED)",
        "timed",
    ),
    "a module's dictionary": ("TIMED.__globals__['perf_counter'] = lambda: 0.0 * time.time()", "perf_counter"),
    "a name before a built-in one": (
        "type(SELF).call.__globals__['enumerate'] = lambda *x: enumerate(*x)",
        "enumerate",
    ),
    "a built-in name": ("was = zip\nbuiltins.zip = lambda *x, **y: was(*x, **y)", "builtins.zip"),
    "a built-in's method table": (
        "at = id(time.perf_counter) + 2 * WORD\n"
        "ctypes.c_void_p.from_address(at).value = ctypes.c_void_p.from_address(id(time.monotonic) + 2 * WORD).value",
        "time.perf_counter",
    ),
    "a class of the library": ("json.JSONEncoder.encode = copy_of(json.JSONEncoder.encode)", "json.JSONEncoder.encode"),
    "the class of an object": (
        "SELF.device.__class__ = type('CpuRunner', (type(SELF.device),), {})",
        "CpuRunner",
    ),
    "a function that looks for changes": (
        "from evaluators.runner import originals\noriginals.inspect = types.SimpleNamespace(**vars(originals.inspect))",
        "originals.inspect",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_functions_that_measure_is_found(evaluator, change) -> None:
    if evaluator.device.arch != "cpu":
        pytest.skip("these are a CPU runner's functions")
    line, name = CHANGES[change]
    verdict = evaluator.evaluate("level1/softmax", PROGRAM.replace("CHANGE", line))
    assert verdict.outcome is Outcome.HACK, (verdict.message, verdict.guard)
    [finding] = [finding for finding in verdict.guard if finding.kind == "integrity"]
    assert name in finding.message


def test_functions_that_do_not_measure_may_be_changed(evaluator) -> None:
    change = "nn.Linear.extra = torch.relu_ = builtins.mine = json.mine = sys.setrecursionlimit(2000)"
    verdict = evaluator.evaluate("level1/softmax", PROGRAM.replace("CHANGE", change))
    assert verdict.timing is not None, verdict.message
    assert "integrity" not in [finding.kind for finding in verdict.guard]
