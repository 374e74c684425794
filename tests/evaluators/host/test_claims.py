"""A runner's claim is decoded into bounded values of its type, or is a violation of the protocol, and nothing else."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.host import claims
from evaluators.host.claims import StateForm
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.protocol import ProtocolViolation

DECODERS = {
    "start": claims.decode_containment,
    "error": claims.decode_error,
    "construct": claims.decode_state,
    "call": lambda reply: claims.decode_call(reply, 1),
    "gated": claims.decode_gated,
    "mismatch": claims.decode_mismatch,
    "trace": claims.decode_trace,
    "integrity": claims.decode_integrity,
    "compile": claims.decode_compilation,
    "extension": claims.decode_extension,
}
FORM = ["weight", "float32", [3, 4]]
EXTENSION = {"name": "a", "sources": [["main.cpp", "int x;"]], "headers": [["parts/a.h", ""]], "cflags": ["-O2"]}
HONEST: dict[str, dict[str, Any]] = {
    "start": {"active": ["rlimits"]},
    "error": {"error": "ValueError", "message": "no"},
    "construct": {"state": [FORM], "flags": {"float32_matmul_precision": "highest"}},
    "call": {"seconds": [0.5]},
    "gated": {"places": [512, 0]},
    "mismatch": {"mismatch": {"kind": "tensor"}},
    "trace": {"kernels": [["scaled", 7, 0.0, 1e-3]]},
    "integrity": {"names": ["time.time"], "flags": {}},
    "compile": {"library": "extension.so", "seconds": 1.5},
    "extension": EXTENSION,
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4)
)


def burst(*seconds: float, places: tuple[int, ...] = ()) -> bytes:
    """The answer of the loop in C++."""
    return b"\x01" + struct.pack(f"<{len(seconds)}d{len(places)}q", *seconds, *places)


def refuses(operation: str, claim: Any) -> bool:
    try:
        DECODERS[operation](claim)
    except ProtocolViolation:
        return True
    return False


@pytest.mark.parametrize("operation", HONEST)
def test_an_honest_claim_is_accepted(operation) -> None:
    assert not refuses(operation, HONEST[operation])


def test_claims_are_decoded_into_their_values() -> None:
    assert claims.decode_state(HONEST["construct"])[0] == [StateForm("weight", "float32", [3, 4])]
    assert claims.decode_call({"seconds": [1, 0.5]}, 2) == ([1.0, 0.5], [], None)
    assert claims.decode_burst(burst(1, 0.5, places=(64, 0, 0, 128)), 2, 2) == ([1.0, 0.5], [[64, 0], [0, 128]], None)
    assert claims.decode_burst(burst(1, 0.5), 2, 0) == ([1.0, 0.5], [[], []], None)
    assert claims.decode_call({"mismatch": {"kind": "tensor"}}, 2) == ([], [], {"kind": "tensor"})
    assert claims.decode_trace({"kernels": None}) is None
    assert claims.decode_trace(HONEST["trace"]) == [("scaled", 7, 0.0, 1e-3)]
    assert claims.decode_error(HONEST["call"]) is None
    assert claims.decode_compilation({"late": "no time"}) == {"late": "no time"}
    request = claims.decode_extension(EXTENSION)
    assert request == ExtensionRequest("a", (("main.cpp", "int x;"),), ("-O2",), headers=(("parts/a.h", ""),))


@pytest.mark.parametrize("operation", HONEST)
@settings(deadline=None)
@given(data=st.data())
def test_a_claim_of_anything_is_accepted_or_a_violation(operation, data) -> None:
    fields = HONEST[operation]
    changed = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(fields, JSON)))
    strange = data.draw(st.dictionaries(st.text(st.characters()), JSON, max_size=2))
    refuses(operation, {**fields, **changed, **strange})
    refuses(operation, {**changed, **strange})


@pytest.mark.parametrize(
    "seconds",
    [True, "1", None, -1, -1e-9, math.nan, math.inf, 1e6 + 1, 10**400, [1.0]],
    ids=lambda value: str(value)[:9],
)
def test_a_duration_is_a_number_from_0_to_a_million(seconds) -> None:
    assert refuses("call", {"seconds": [seconds]})
    if isinstance(seconds, float):
        with pytest.raises(ProtocolViolation):
            claims.decode_burst(burst(seconds, places=(0,)), 1, 1)
    assert refuses("compile", {"library": "extension.so", "seconds": seconds})
    assert claims.decode_trace({"kernels": [["scaled", 7, 0.0, seconds]]}) == []


@pytest.mark.parametrize("body", [b"", b"\x01", burst(1.0), burst(1.0, places=(1, 2)), burst(1.0, places=(1,)) + b"x"])
def test_a_burst_has_a_duration_and_the_places_of_each_call(body) -> None:
    with pytest.raises(ProtocolViolation):
        claims.decode_burst(body, 1, 1)


def test_an_answer_to_a_burst_in_words_names_another_form() -> None:
    assert refuses("mismatch", {"seconds": [0.5], "places": [[0]]})


@pytest.mark.parametrize("claim", [{}, {"seconds": []}, {"seconds": [1.0, 1.0]}, {"mismatch": None}, {"mismatch": [1]}])
def test_a_call_has_as_many_durations_as_seeds_or_a_mismatch(claim) -> None:
    assert refuses("call", claim)


@pytest.mark.parametrize(
    "form",
    [
        ["weight", "float32"],
        ["weight", "float32", [3], 1],
        [3, "float32", [3]],
        ["weight", "quint8", [3]],
        ["weight", "float32", 3],
        ["weight", "float32", [True]],
        ["weight", "float32", [3.0]],
        ["weight", "float32", [-1]],
        ["weight", "float32", [1 << 48]],
        ["weight", "float32", [1 << 24, 1 << 24]],
        ["weight", "float32", [10**400]],
        ["weight", "float32", [1] * 65],
        {"name": "weight"},
    ],
)
def test_a_form_that_no_plain_tensor_has_is_a_violation(form) -> None:
    assert refuses("construct", {"state": [FORM, form], "flags": {}})


def test_claims_of_too_many_parts_are_violations() -> None:
    assert refuses("construct", {"state": [FORM] * 100_001, "flags": {}})
    assert refuses("trace", {"kernels": [1] * 10_001})


@pytest.mark.parametrize(
    "kernel",
    [["a", 7, 0.0], ["a", 7, 2.0, 1.0], ["a", -1, 0.0, 1.0], ["a", 1 << 64, 0.0, 1.0], ["a", True, 0.0, 1.0], [1], 3],
)
def test_a_record_that_is_none_does_not_cost_the_others(kernel) -> None:
    good = ["scaled", 7, 0.0, 1e-3]
    assert claims.decode_trace({"kernels": [good, kernel, good]}) == [tuple(good)] * 2


def test_long_claims_that_may_be_honest_are_cut() -> None:
    names, flags = claims.decode_integrity({"names": ["n" * 300] * 2000, "flags": {"a": "v" * 300}})
    assert names == ("n" * 100,) * 1000
    assert flags == {"a": "v" * 100}
    assert claims.decode_error({"error": "E" * 300, "message": "m" * 20_000}) == ("E" * 100, "m" * 10_000)


@pytest.mark.parametrize(
    "claim",
    [
        {},
        {"library": "a.so"},
        {"seconds": 1.0},
        {"lost": "a", "late": "b"},
        {"library": "a.so", "seconds": 1, "lost": ""},
    ],
)
def test_the_compilers_have_a_library_or_one_reason(claim) -> None:
    assert refuses("compile", claim)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": 3},
        {"sources": []},
        {"sources": "main.cpp"},
        {"sources": [["main.cpp"]]},
        {"sources": [["../main.cpp", ""]]},
        {"sources": [["/etc/main.cpp", ""]]},
        {"sources": [["a/../../main.cpp", ""]]},
        {"sources": [[".hidden", ""]]},
        {"sources": [["a.cpp", ""], ["a.cpp", ""]]},
        {"headers": [["main.cpp", ""]]},
        {"cflags": [1]},
        {"cflags": ["a\0b"]},
        {"ldflags": {"a": 1}},
        {"name": "a-b"},
        {"name": "a" * 300},
        {"cflags": ["\ud800"]},
        {"sources": [["a.cpp", "\ud800"]]},
        {"sources": [["a.cpp", "a\0b"]]},
        {"sources": [["a", ""]], "headers": [["a/b.h", ""]]},
    ],
)
def test_an_extension_that_cannot_be_built_is_refused_with_a_reason(changed) -> None:
    with pytest.raises(ProtocolViolation, match=r"extension|file"):
        claims.decode_extension(json.loads(json.dumps(EXTENSION | changed)))
