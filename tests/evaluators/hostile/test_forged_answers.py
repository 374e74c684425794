"""A forged answer ends in a verdict. It never raises in the judge, and the program gains nothing by it."""

from __future__ import annotations

import math
import struct

import pytest

from evaluators.records import Outcome
from tests.evaluators.hostile.programs import PIPE, TASK, assert_next_is_ok, program
from tests.evaluators.hostile.storage import assert_storable

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
    "no burst": b"\x01",
    "ready without being asked": b"\x02",
    "half a burst": b"\x01" + struct.pack("<d", 1e-3),
    "a burst of two calls": b"\x01" + struct.pack("<2d2q", 1e-3, 1e-3, 0, 0),
    "a burst of NaN": b"\x01" + struct.pack("<dq", math.nan, 0),
    "a burst of negative seconds": b"\x01" + struct.pack("<dq", -1.0, 0),
    "a burst far away": b"\x01" + struct.pack("<dq", 1e-3, 1 << 62),
    "a burst before the beginning": b"\x01" + struct.pack("<dq", 1e-3, -64),
    "long error": b'{"error": "E", "message": "' + b"x" * 3000000 + b'"}',
}


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
    verdict = evaluator.evaluate(TASK, program(top=PIPE, forward="answer()"))
    assert verdict.outcome in (Outcome.RUNTIME_ERROR, Outcome.TIMEOUT, Outcome.WRONG)


def test_forged_answers_leave_a_good_evaluator(evaluator) -> None:
    assert_next_is_ok(evaluator)
