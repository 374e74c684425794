"""Each defence recognises its cheat by the evidence, and finds nothing in an honest program's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluators.guard import Evidence, examine
from evaluators.host.census import Census
from evaluators.records import Estimate, Finding, KernelUse, Timing, Trace
from evaluators.timing.clocks import Hidden

ALONE = Census(threads=1, children=0, children_seconds=0.0)
ONE = Estimate(1e-4, 0.9e-4, 1.1e-4, 20)


def honest() -> Evidence:
    return Evidence(
        source="import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.relu()\n",
        timing=Timing(ONE, ONE, 20, "precision", 0.0),
        hidden=Hidden(Estimate(0.01, -0.02, 0.04, 20), 1e-5, 2e-4),
        together=(ONE, ONE),
        alone=(ONE, ONE),
        waited=Estimate(0.0, -0.01, 0.01, 20),
        reference=ALONE,
        candidate=ALONE,
        trace=Trace((), 0.9e-4, 1.0, 1),
    )


def only(evidence: Evidence) -> Finding:
    [finding] = examine(evidence)
    return finding


def test_an_honest_program_has_no_findings() -> None:
    assert examine(honest()) == []
    assert examine(replace(honest(), trace=None, alone=None)) == []


def test_time_that_only_the_judges_clock_saw_is_suspect() -> None:
    finding = only(replace(honest(), hidden=Hidden(Estimate(0.8, 0.7, 0.9, 20), 1e-3, 2e-4)))
    assert (finding.kind, finding.severity) == ("clocks", "suspect")
    assert "80%" in finding.message
    assert examine(replace(honest(), hidden=Hidden(Estimate(0.8, 0.7, 0.9, 20), 1e-5, 2e-4))) == []


def test_a_call_faster_than_its_output_can_be_written_is_suspect() -> None:
    finding = only(replace(honest(), floor_bytes=200 << 20, floor_seconds=1.2e-4))
    assert (finding.kind, finding.severity) == ("floor", "suspect")
    assert "200.0 MiB" in finding.message
    assert "120.0 µs" in finding.message
    assert examine(replace(honest(), floor_bytes=200 << 20, floor_seconds=1.105e-4)) == []


def test_kernels_that_take_longer_than_the_call_are_suspect() -> None:
    finding = only(replace(honest(), trace=Trace((), 5e-4, 1.0, 2)))
    assert (finding.kind, finding.severity) == ("hidden_work", "suspect")


def test_a_reference_that_is_slow_after_the_program_alone_is_suspect() -> None:
    faster = replace(honest(), timing=replace(honest().timing, reference_seconds=Estimate(1.3e-4, 1.2e-4, 1.4e-4, 20)))
    finding = only(replace(faster, slowed=Estimate(1.5, 1.3, 1.6, 9)))
    assert (finding.kind, finding.severity) == ("neighbours", "suspect")
    assert "1.50 times" in finding.message
    assert examine(replace(faster, slowed=Estimate(1.5, 1.1, 1.6, 9))) == []
    assert examine(replace(honest(), slowed=Estimate(1.5, 1.3, 1.6, 9))) == [], "it gains nothing"


def test_a_program_whose_kernels_are_not_recorded_is_suspect() -> None:
    recorded = replace(honest(), is_recorded=True)
    for evidence in (replace(recorded, trace=None), replace(recorded, trace=Trace((), 0.0, 0.0, 0))):
        finding = only(evidence)
        assert (finding.kind, finding.severity) == ("records", "suspect")
    kernels = (KernelUse("k", False, 7, 1, 1e-4),)
    assert examine(replace(recorded, trace=Trace(kernels, 0.9e-4, 0.0, 1))) == []


def seconds(value: float) -> Estimate:
    return Estimate(1.02 * value, value, 1.05 * value, 9)


def alone(reference: float, candidate: float, together: tuple[float, float]) -> Evidence:
    return replace(
        honest(),
        alone=(seconds(reference), seconds(candidate)),
        together=(seconds(together[0]), seconds(together[1])),
    )


@pytest.mark.parametrize("together", [1e-6, 1e-4, 5e-4])
def test_a_call_that_is_fast_only_among_others_is_suspect(together) -> None:
    finding = only(alone(1e-3, 1e-3, (1e-3, together)))
    assert (finding.kind, finding.severity) == ("bursts", "suspect")
    assert "1000 µs" in finding.message


@pytest.mark.parametrize(
    ("reference", "candidate", "together"),
    [
        (1e-3, 1e-3, (1e-3, 1e-3)),
        (1.05e-3, 1.5e-4, (1e-3, 1e-4)),  # cold caches slow a fast call more
        (3e-5, 4e-5, (1e-5, 1e-5)),
        (5e-3, 5e-3, (1e-3, 1e-3)),  # first calls that are slow for both
        (1e-3, 1e-3, (1e-3, 9.3e-4)),
    ],
)
def test_the_cost_of_being_alone_is_not_suspect(reference, candidate, together) -> None:
    assert examine(alone(reference, candidate, together)) == []


def test_the_functions_that_measure_must_not_be_replaced() -> None:
    finding = only(replace(honest(), replaced=("time.perf_counter", "a", "b", "c", "d")))
    assert (finding.kind, finding.severity) == ("integrity", "hack")
    assert "time.perf_counter" in finding.message
    assert "and 1 more" in finding.message


def test_a_program_whose_processes_make_the_reference_wait_is_suspect() -> None:
    left = Census(1, 3, 0.0)
    finding = only(replace(honest(), waited=Estimate(0.5, 0.3, 0.7, 20), candidate=left))
    assert (finding.kind, finding.severity) == ("neighbours", "suspect")
    assert "50%" in finding.message
    for low, high in ((0.0, 0.9), (0.04, 0.15), (-0.9, -0.5)):
        waited = Estimate((low + high) / 2, low, high, 20)
        assert examine(replace(honest(), waited=waited, candidate=left)) == []
    # Without processes it is other load on the host: a fast program's bursts end before they have to wait.
    assert examine(replace(honest(), waited=Estimate(0.5, 0.3, 0.7, 20))) == []


def test_weights_that_cannot_be_replaced_are_suspect() -> None:
    finding = only(replace(honest(), missing_weights=("a.weight", "b", "c", "d")))
    assert (finding.kind, finding.severity) == ("weights", "suspect")
    assert "a.weight, b, c and 1 more" in finding.message


def test_work_on_the_references_time_is_suspect() -> None:
    finding = only(replace(honest(), beside_seconds=0.3))
    assert (finding.kind, finding.severity) == ("neighbours", "suspect")
    assert "300 ms" in finding.message
    assert examine(replace(honest(), beside_seconds=0.005)) == []


def test_flags_that_hold_for_one_side_alone_are_suspect() -> None:
    finding = only(replace(honest(), flags=("allow_tf32 = True",)))
    assert (finding.kind, finding.severity) == ("flags", "suspect")
    assert "allow_tf32 = True" in finding.message


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (Census(5, 0, 0.0), ""),
        (Census(6, 0, 0.0), "5 threads more"),
        (Census(1, 2, 0.0), ""),
        (Census(1, 2, 0.5), "2 other processes"),
    ],
)
def test_threads_and_processes_that_are_left_are_a_hint(candidate, words) -> None:
    findings = examine(replace(honest(), candidate=candidate))
    assert [finding.severity for finding in findings] == (["hint"] if words else [])
    assert all(words in finding.message for finding in findings)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import threading", "starts threads"),
        ("import sys; sys._getframe()", "looks at its callers"),
        ("torch.relu = None", "sets attributes of torch"),
        ("from evaluators import runner", "imports the evaluator"),
        ("try:\n    f()\nexcept Exception:\n    def g():\n        return 1", "returns another result when it fails"),
        ("s = '#include <thread>\\nstd::thread t; // fork'", "its text starts threads"),
        ("s = '#include <x>\\n/* std::thread */ \"cudaStreamCreate\" int x;'", ""),
        ("s = 'std::thread, but no program'", ""),
        ("self.x = 1", ""),
    ],
)
def test_a_text_that_looks_odd_is_a_hint(line, words) -> None:
    findings = examine(replace(honest(), source=line))
    assert [(finding.kind, finding.severity) for finding in findings] == ([("text", "hint")] if words else [])
    assert all(words in finding.message for finding in findings)
    assert not any("fork" in finding.message or "processes" in finding.message for finding in findings)


def test_a_text_of_many_oddities_is_one_finding() -> None:
    source = "import threading, subprocess, socket, gc, inspect, ctypes, mmap, weakref"
    assert "and 3 more" in only(replace(honest(), source=source)).message


def test_a_text_that_does_not_parse_has_no_findings() -> None:
    assert examine(replace(honest(), source="def (")) == []
