"""Honest programs are judged `ok`, and other functions `wrong`, whatever the form of their inputs and outputs."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configs.schema import RewardConfig
from evaluators.evaluator import Evaluator
from evaluators.judge.pair import Round, RunnerPair
from evaluators.records import Outcome, Verdict, verdict_table
from evaluators.reward import reward_of
from evaluators.timing.bursts import Burst
from evaluators.timing.presets import PRESETS
from tests.evaluators.outcomes import assert_ok, is_busy, speedup_of
from tests.evaluators.sources import HIDDEN_STATE, TWICE, WEIGHT, model, reference_of, task_of

pytestmark = pytest.mark.measures


def assert_equally_fast(verdict: Verdict) -> None:
    """A program that is the reference; the interval knows of other load on the machine."""
    assert speedup_of(verdict).low < 1.25
    assert speedup_of(verdict).high > 0.8


def test_the_reference_is_as_fast_as_itself(evaluator) -> None:
    verdict = evaluator.evaluate(TWICE, reference_of(TWICE))
    assert_ok(verdict)
    assert_equally_fast(verdict)
    assert verdict.correctness.error <= verdict.correctness.tolerance
    assert verdict.correctness.trials >= 10  # every timed output was compared
    assert set(verdict.speedups or verdict.doubted) == {"eager"}
    assert reward_of(verdict, RewardConfig()) == (verdict.speedup or 0.0)


@pytest.mark.parametrize("form", ["torch.fft.fft(x[0]).conj()", "torch._neg_view(torch.tanh(x[0]))"])
def test_an_output_whose_memory_holds_conjugates_or_negatives_is_right(evaluator, form) -> None:
    task = task_of(model(f"return torch.resolve_neg(torch.resolve_conj({form}))"))
    verdict = evaluator.evaluate(task, model(f"return {form}", name="ModelNew"))
    assert_ok(verdict)


def test_the_copy_of_an_output_that_lies_elsewhere_is_in_the_time_of_its_call(evaluator) -> None:
    if evaluator.device.arch != "cpu":
        pytest.skip("on a GPU every output is copied, after the call's time")
    task = task_of(model("return -x[0]"), top="n = 600")
    verdict = evaluator.evaluate(task, model("return torch._neg_view(x[0])", name="ModelNew"))
    assert_ok(verdict)
    assert verdict.timing.clock_disagreement < 0.25 or is_busy()


def half_and_double(evaluator: Evaluator, more: str = "") -> tuple[Verdict, Verdict]:
    """The verdicts on a program that does half of the reference's work, and on one that does twice as much."""
    half, double = "2 * torch.tanh(x[0] @ self.w)", "sum(torch.tanh(x[0] @ self.w) for _ in range(4)) / 2"
    sources = [model(f"return {value}", WEIGHT, "ModelNew") + more for value in (half, double)]
    return evaluator.evaluate(TWICE, sources[0]), evaluator.evaluate(TWICE, sources[1])


def assert_far_apart(half: Verdict, double: Verdict) -> None:
    """Other load on the machine makes intervals wide, and their middles far from the true ratios: 2 and 0.5."""
    faster, slower = speedup_of(half), speedup_of(double)
    assert faster.high > 1.2
    assert slower.low < 0.85
    assert faster.high > 1.5 * slower.low
    assert faster.value > 1.5 * slower.value or is_busy()


def test_half_the_work_is_faster_and_double_the_work_slower(evaluator) -> None:
    half, double = half_and_double(evaluator)
    assert_ok(half)
    assert_ok(double)
    assert_far_apart(half, double)


def of_candidate(change: Callable[[Round], Burst], monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a defect: the candidate's bursts are other ones."""
    run_round = RunnerPair.run_round

    def planted(self: RunnerPair, *arguments: Any, **options: Any) -> Round:
        done = run_round(self, *arguments, **options)
        return replace(done, candidate=change(done))

    monkeypatch.setattr(RunnerPair, "run_round", planted)


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_clock_that_flatters_or_slows_candidates_would_be_noticed(evaluator, monkeypatch, factor: float) -> None:
    if evaluator.device.arch != "cpu":
        pytest.skip("on a GPU, calls behind gates are not planted")

    def scaled(done: Round) -> Burst:  # of the same round's reference, so that other load on the machine plays no part
        own = tuple(factor * seconds for seconds in done.reference.own)
        return replace(done.reference, judged=factor * done.reference.judged, own=own)

    of_candidate(scaled, monkeypatch)
    verdict = evaluator.evaluate(TWICE, reference_of(TWICE) + f"\nanother = {factor}  # verdicts are remembered\n")
    with pytest.raises((AssertionError, KeyError)):
        assert_equally_fast(verdict)


def test_times_of_the_wrong_side_would_be_noticed(evaluator, monkeypatch) -> None:
    if evaluator.device.arch != "cpu":
        pytest.skip("on a GPU, calls behind gates are not planted")
    of_candidate(lambda done: done.reference, monkeypatch)
    verdicts = half_and_double(evaluator, "\nanother = True  # verdicts are remembered\n")
    with pytest.raises((AssertionError, TypeError)):
        assert_far_apart(*verdicts)


HONEST = {
    "a tuple": task_of(model("return torch.tanh(x[0]), x[0].sum(1)")),
    "a dict of lists": task_of(model("return {'a': [torch.tanh(x[0])], 'b': (x[0] * 2, x[0].sum())}")),
    "integers": task_of(model("return torch.tanh(x[0]).argmax(dim=1)")),
    "booleans": task_of(model("return torch.tanh(x[0]) > 0.5")),
    "rounded integers": task_of(model("return (x[0] @ x[0]).round().to(torch.int32)")),
    "complex numbers": task_of(model("return torch.fft.rfft(x[0])")),
    "no elements": task_of(model("return torch.tanh(x[0])[:0]")),
    "an expanded output": task_of(model("return x[0].mean(dim=0, keepdim=True).expand(160, 160)")),
    "infinities": task_of(model("return torch.exp(x[0] * 1000)")),
    "NaN": task_of(model("return torch.sqrt(x[0])")),
    "several inputs": task_of(model("return x[0] @ x[1] + x[2]"), "[torch.randn(n, n) for _ in range(3)]"),
    "other inputs": task_of(
        model("return F.pad(x[0] * x[1], (1, 1), mode=x[2]) + sum(x[4]).sum() + x[5]['k'].sum()"),
        "[torch.randn(n, n), 3, 'constant', None, [torch.randn(4), torch.randn(4)], {'k': torch.randn(3)}]",
    ),
    "integer inputs": task_of(
        model("return self.e(x[0])", "self.e = nn.Embedding(50, 64)"), "[torch.randint(0, 50, (64, 64))]"
    ),
    "strided inputs": task_of(model("return x[0] * 2 + x[0].stride(0)"), "[torch.randn(n, n).t()]"),
    "expanded inputs": task_of(model("return x[0] * 2"), "[torch.randn(n, 1).expand(n, n)]"),
    "batch norm in training": task_of(
        model("return self.b(x[0])", "self.b = nn.BatchNorm2d(8)"), "[torch.randn(8, 8, 12, 12)]"
    ),
    "dropout": task_of(model("return F.dropout(x[0], 0.5) * 2")),
    "a hidden state": HIDDEN_STATE,
    "an asserted dtype": task_of(model("assert x[0].dtype is torch.float32; return torch.tanh(x[0] @ x[0])")),
    "bfloat16": task_of(model("return torch.tanh(x[0])"), "[torch.randn(n, n).bfloat16()]"),
}


@pytest.mark.parametrize("name", HONEST)
def test_the_reference_is_ok_as_a_candidate(evaluator, name) -> None:
    verdict = evaluator.evaluate(HONEST[name], reference_of(HONEST[name]))
    assert_ok(verdict)


@pytest.mark.parametrize(
    ("name", "forward"),
    [
        ("dropout", "return x[0] * 2"),
        ("dropout", "return torch.zeros_like(x[0])"),
        ("a tuple", "return torch.tanh(x[0]), x[0].sum(0)"),
        ("a dict of lists", "return {'b': [torch.tanh(x[0])], 'a': (x[0] * 2, x[0].sum())}"),
        ("integers", "return torch.tanh(x[0]).argmax(dim=1).int()"),
        ("integers", "return torch.tanh(x[0]).argmin(dim=1)"),
        ("booleans", "return torch.tanh(x[0]) > 0.6"),
        ("an expanded output", "return x[0].mean(dim=0, keepdim=True).expand(160, 160).contiguous()"),
        ("NaN", "return torch.sqrt(x[0].abs())"),
        ("infinities", "return torch.exp(x[0] * 1000).clamp(max=1e38)"),
        ("bfloat16", "return x[0] * 0.5"),
    ],
)
def test_another_function_is_wrong(evaluator, name, forward) -> None:
    verdict = evaluator.evaluate(HONEST[name], model(forward, name="ModelNew"))
    assert verdict.outcome is Outcome.WRONG, verdict.message
    assert verdict.message
    assert reward_of(verdict, RewardConfig()) == 0.0


def test_sizes_change_what_both_sides_get(evaluator) -> None:
    task = task_of(model("return torch.tanh(x[0]) * x[0].shape[0]"))
    fixed = model("return torch.tanh(x[0]) * 160", name="ModelNew")
    assert_ok(evaluator.evaluate(task, fixed))
    assert evaluator.evaluate(task.with_sizes(n=96), fixed).outcome is Outcome.WRONG


def test_an_identical_candidate_is_measured_once_a_preset(evaluator, monkeypatch) -> None:
    for presets in PRESETS.values():
        monkeypatch.setitem(presets, "thorough", replace(presets["fast"], name="thorough", trials=7))  # in less time
    source = model("return 2 * torch.tanh(x[0] @ self.w) * 1", WEIGHT, "ModelNew")
    first = evaluator.evaluate(TWICE, source)
    again = evaluator.evaluate(TWICE, "# the same\n" + source)
    assert again == first, "with its timing and its cost"
    repeated = evaluator.evaluate(TWICE, source, again=True)
    assert_ok(repeated)
    assert repeated.timing != first.timing
    thorough = evaluator.evaluate(TWICE, source, preset="thorough")
    assert thorough.timing not in (first.timing, repeated.timing)
    assert thorough.evaluator["preset"] == "thorough"


def test_a_verdict_survives_json_and_parquet(evaluator) -> None:
    verdict = evaluator.evaluate(TWICE, reference_of(TWICE))
    assert Verdict.from_row(json.loads(json.dumps(verdict.to_row()))) == verdict
    assert Verdict.from_row(verdict_table([verdict]).to_pylist()[0]) == verdict


@pytest.mark.parametrize(
    "task",
    [
        task_of("raise ValueError('broken')"),
        task_of("x = 1"),
        task_of(model("raise ValueError('broken')")),
        task_of(model("return x[0]"), inputs="1 / 0"),
        task_of(model("return x[0]"), arguments="1 / 0"),
        task_of(model("return x[0]")).with_sizes(unknown=3),
    ],
    ids=["import", "no Model", "forward", "get_inputs", "get_init_inputs", "sizes"],
)
@pytest.mark.parametrize(
    "extra", ["", pytest.param("# torch.compile(", marks=pytest.mark.slow)], ids=["plain", "to build"]
)
def test_a_broken_task_is_our_failure(evaluator, task, extra) -> None:
    verdict = evaluator.evaluate(task, model("return x[0]", name="ModelNew") + extra)
    assert verdict.outcome is Outcome.INFRA
    assert "test/honest" in verdict.message
    assert reward_of(verdict, RewardConfig()) is None


def _zygotes() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"evaluators.sandbox.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_an_evaluator_outlives_its_zygote(evaluator) -> None:
    for zygote in _zygotes():
        os.kill(zygote, signal.SIGKILL)
    verdict = evaluator.evaluate(TWICE, model("return 2 * torch.tanh(x[0] @ self.w) + 0", WEIGHT, "ModelNew"))
    assert_ok(verdict)


def test_an_evaluation_outlives_its_zygote(evaluator) -> None:
    evaluator.evaluate(TWICE, reference_of(TWICE))  # so that there is a zygote
    slow = "import time\ntime.sleep(1.5)\n" + model("return 2 * torch.tanh(x[0] @ self.w) - 0", WEIGHT, "ModelNew")
    killer = threading.Timer(0.8, lambda: [os.kill(zygote, signal.SIGKILL) for zygote in _zygotes()])
    killer.start()
    verdict = evaluator.evaluate(TWICE, slow)
    killer.join()
    assert_ok(verdict)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"arch": "Z80"}, "Z80"), ({"preset": "slow"}, "slow"), ({"baselines": ("cuda_graph",)}, "cuda_graph")],
)
def test_an_option_that_does_not_exist_is_refused_by_name(options, words) -> None:
    with pytest.raises(ValueError, match=words):
        Evaluator(**{"arch": "cpu", **options})
