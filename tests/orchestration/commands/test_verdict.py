"""A printed verdict shows everything that it rests on, within 100 columns."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from evaluators.records import (
    ClockSample,
    Correctness,
    Estimate,
    Finding,
    KernelUse,
    Outcome,
    Timing,
    Trace,
    Verdict,
)
from orchestration.commands.verdict import print_verdict

KERNELS = (
    KernelUse("void my_kernel<float, 4>(float const*, float*, int)", True, 7, 2, 30e-6),
    KernelUse("ampere_sgemm_" + "x" * 150, False, 13, 1, 6e-6),
    *(KernelUse(f"small_{index}[tail]", False, 7, 1, 2e-6) for index in range(4)),
)
VERDICT = Verdict(
    "c" * 16,
    "level1/softmax",
    "H200",
    Outcome.OK,
    correctness=Correctness(40, 2e-7, 7e-6, deterministic=True),
    speedups={
        "eager": Estimate(4.0, 3.9, 4.1, 30),
        "torch_compile_reduce_overhead": Estimate(1.25, 1.2, 1.3, 30),
        "cudnn": Estimate(4.2, 4.1, 4.3, 30),
    },
    timing=Timing(
        Estimate(36e-6, 35e-6, 37e-6, 30),
        Estimate(144e-6, 143e-6, 145e-6, 30),
        30,
        "interval",
        0.01,
        tuple(
            ClockSample(0.1 * index, mhz, 3201, 40, reasons)
            for index, (mhz, reasons) in enumerate([(1980, ""), (1755, "power"), (1800, "power thermal")])
        ),
    ),
    guard=(Finding("shapes", "hint", "fails at [rows] = 40"),),
    evaluator={"preset": "fast", "containment": "session rlimits pid_namespace network_namespace read_only_host"},
    cost={"total": 1.5},
    trace=Trace(KERNELS, 38e-6, 30 / 44, 2),
)


def shown(verdict: Verdict) -> list[str]:
    sink = io.StringIO()
    print_verdict(verdict, Console(file=sink, width=100))
    return [line.rstrip() for line in sink.getvalue().splitlines()]


def line_of(lines: list[str], label: str) -> str:
    return " ".join(next(line for line in lines if line.strip().startswith(label)).split())


def test_every_line_fits_into_100_columns_and_no_baseline_is_cut() -> None:
    lines = shown(VERDICT)
    assert max(map(len, lines)) <= 100
    assert any("over torch_compile_reduce_overhead" in line for line in lines)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("speed-up over eager", "4.000x [3.900, 4.100]"),
        ("over the best baseline", "1.250x torch_compile_reduce_overhead"),
        ("candidate, µs a call", "36.000 [35.000, 37.000]"),
        ("SM clock, MHz", "1755 to 1980 throttled by power (2 of 3), thermal (1 of 3)"),
        ("deterministic", "yes"),
        ("own kernels", "68% of kernel time; GPU busy 38.0 µs, 2 streams"),
        ("hint", "shapes fails at [rows] = 40"),
    ],
)
def test_a_verdict_shows_what_it_rests_on(label: str, expected: str) -> None:
    assert expected in line_of(shown(VERDICT), label)


def test_the_five_longest_kernels_are_shown_with_their_share_and_origin() -> None:
    lines = [line.split() for line in shown(VERDICT) if line.startswith(("  own ", "  library "))]
    assert [(words[0], words[1]) for words in lines] == [
        ("own", "68%"),
        ("library", "14%"),
        ("library", "5%"),
        ("library", "5%"),
        ("library", "5%"),
    ]
    assert lines[0][-1] == "x2"
    assert lines[2][-1] == "small_0[tail]"


def test_a_program_that_gives_other_bits_is_shown_as_not_deterministic() -> None:
    assert VERDICT.correctness is not None
    other = replace(VERDICT, correctness=replace(VERDICT.correctness, deterministic=False))
    assert line_of(shown(other), "deterministic") == "deterministic no"
    unknown = replace(VERDICT, correctness=replace(VERDICT.correctness, deterministic=None))
    assert not any("deterministic" in line for line in shown(unknown))


def test_a_verdict_without_timing_or_trace_shows_neither() -> None:
    failed = replace(VERDICT, outcome=Outcome.WRONG, message="[bold]no[/]", speedups={}, timing=None, trace=None)
    lines = shown(failed)
    assert lines[0].startswith("wrong")
    assert lines[1] == "[bold]no[/]"
    assert not any(word in line for line in lines for word in ("clock", "kernel", "best baseline"))
