"""A look finds programs that do not run, gives them the verdict of a whole judgement, and leaves all others to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from configs.schema import LimitsConfig
from evaluators.compile.builder import Builder
from evaluators.compile.run_settings import runner_limits
from evaluators.evaluator import Evaluator
from evaluators.failures import RunnerFailure
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.locks import HostLocks
from evaluators.host.look import Looks, outputs_of
from evaluators.host.runner_handle import RunnerHandle
from evaluators.records import Artifact, Candidate, Outcome
from evaluators.shared import nesting
from evaluators.tasks import find_task
from tests.evaluators.outcomes import assert_ok

TASK = find_task("level1/softmax")
RIGHT = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
"""
FORWARD = "return torch.softmax(x, dim=-1)"
SECOND = "self.calls = getattr(self, 'calls', 0) + 1\n        assert self.calls < 2"
STOPPED = {  # programs that the first look ends
    "imports what is not there": (Outcome.RUNTIME_ERROR, f"import nowhere\n{RIGHT}"),
    "defines nothing": (Outcome.BUILD_ERROR, "x = 1\n"),
    "wants an argument": (
        Outcome.RUNTIME_ERROR,
        f"{RIGHT}\n    def __init__(self, more):\n        super().__init__()\n",
    ),
    "an unknown name": (Outcome.RUNTIME_ERROR, RIGHT.replace(FORWARD, "return nothing(x)")),
    "shapes that do not fit": (Outcome.RUNTIME_ERROR, RIGHT.replace(FORWARD, "return x + x[:, :3]")),
    "exits": (Outcome.RUNTIME_ERROR, RIGHT.replace(FORWARD, "import os; os._exit(3)")),
    "loops": (Outcome.TIMEOUT, RIGHT.replace(FORWARD, "while True: pass")),
    "another shape": (Outcome.WRONG, RIGHT.replace(FORWARD, "return torch.softmax(x, dim=-1)[None]")),
}
QUICK = [name for name in STOPPED if name != "loops"]
JUDGED = {  # programs that run once, so that a look leaves them to the judge
    "right": (Outcome.OK, RIGHT),
    "wrong": (Outcome.WRONG, RIGHT.replace(FORWARD, "return torch.softmax(x, dim=-1) * 1.1")),
    "changes its input": (Outcome.WRONG, RIGHT.replace(FORWARD, "y = torch.softmax(x, dim=-1); x.zero_(); return y")),
    "fails when called again": (Outcome.RUNTIME_ERROR, RIGHT.replace(FORWARD, f"{SECOND}\n        {FORWARD}")),
}


@pytest.fixture(scope="module", params=["cpu", pytest.param("auto", marks=pytest.mark.cuda, id="cuda")])
def looking(request: pytest.FixtureRequest, limits: LimitsConfig) -> Iterator[Evaluator]:
    """Evaluators of both devices. The CPU's looks first, too, as if a measurement took as long to prepare there."""
    with Evaluator(arch=request.param, limits=limits) as made:
        made.device.looks_first = True
        yield made


@pytest.fixture
def always(looking: Evaluator, monkeypatch: pytest.MonkeyPatch) -> Evaluator:
    monkeypatch.setattr(Looks, "pay", True)
    return looking


@pytest.mark.parametrize("name", [*QUICK, pytest.param("loops", marks=pytest.mark.slow)])
def test_a_program_that_does_not_run_is_judged_by_a_look_alone(
    always: Evaluator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    outcome, source = STOPPED[name]
    verdict = always.evaluate(TASK, source)
    assert verdict.outcome is outcome, verdict.message
    assert verdict.cost["look"] > 0
    assert "load" not in verdict.cost
    assert "rlimits" in verdict.evaluator["containment"]
    monkeypatch.setattr(always.device, "looks_first", False)
    whole = always.evaluate(TASK, f"{source}\nanother = True\n")
    assert (whole.outcome, whole.message) == (verdict.outcome, verdict.message)
    assert whole.cost["load"] > 0


@pytest.mark.parametrize("name", JUDGED)
def test_a_program_that_runs_once_is_judged_as_ever(always: Evaluator, name: str) -> None:
    outcome, source = JUDGED[name]
    verdict = always.evaluate(TASK, source)
    assert verdict.outcome is outcome, verdict.message
    assert verdict.cost["look"] > 0
    assert verdict.cost["check"] > 0


def test_a_look_is_left_out_if_nearly_all_programs_run(looking: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Looks, "pay", False)
    verdict = looking.evaluate(TASK, RIGHT + "\nfirst = True\n")
    assert_ok(verdict)
    assert "look" not in verdict.cost


def test_looks_pay_while_programs_fail() -> None:
    looks = Looks()
    assert looks.pay, "nothing is known yet"
    for _ in range(40):
        looks.record(False)
    assert not looks.pay
    for _ in range(10):
        looks.record_skipped(Outcome.RUNTIME_ERROR)
    assert looks.pay
    for _ in range(40):
        looks.record_skipped(Outcome.WRONG)
    assert not looks.pay


@pytest.mark.slow
def test_a_program_that_compiles_gets_no_look(always: Evaluator) -> None:
    source = f"{RIGHT}\n\nModelNew.forward = torch.compile(ModelNew.forward, backend='eager')\n"
    verdict = always.evaluate(TASK, source)
    assert_ok(verdict)
    assert "look" not in verdict.cost


@pytest.mark.parametrize("name", [*QUICK, pytest.param("loops", marks=pytest.mark.slow), *JUDGED])
def test_a_look_beside_others_ends_only_programs_that_certainly_do_not_run(looking: Evaluator, name: str) -> None:
    outcome, source = (STOPPED | JUDGED)[name]
    verdict = looking.look(TASK, source, preset="fast")
    if name in JUDGED or outcome is Outcome.TIMEOUT:  # a time-out beside others is not certain
        assert verdict is None
        return
    assert verdict is not None
    whole = looking.evaluate(TASK, source)
    assert (verdict.outcome, verdict.message) == (whole.outcome, whole.message)
    assert verdict.candidate == whole.candidate
    assert verdict.evaluator == whole.evaluator
    assert verdict.cost["total"] >= verdict.cost["look"] > 0


def test_source_that_is_no_python_takes_no_process(looking: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking._slot, "look", None)
    verdict = looking.look(TASK, "def (", preset="fast")
    assert verdict is not None
    assert verdict.outcome is Outcome.BUILD_ERROR
    assert "does not parse" in verdict.message


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "std::bad_alloc",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "[Errno 11] Resource temporarily unavailable",
        "can't start new thread",
        "GET was unable to find an engine to execute this computation",
    ],
)
def test_a_lack_of_what_others_have_taken_is_no_verdict(
    looking: Evaluator, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    source = RIGHT.replace(FORWARD, f"raise RuntimeError({message!r})")
    assert looking.look(TASK, source, preset="fast") is None
    monkeypatch.setattr(looking.device, "looks_first", False)
    assert looking.evaluate(TASK, source).outcome is Outcome.RUNTIME_ERROR


def test_a_look_beside_others_is_short_whichever_step_takes_long(
    looking: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody measures until the look is over. Each of its steps may take as long as the whole look."""
    monkeypatch.setattr("evaluators.judge.fresh_processes._LOOK_SECONDS", 4.0)
    slow = f"import time\ntime.sleep(2.5)\n{RIGHT.replace(FORWARD, 'time.sleep(2.5); ' * 6 + FORWARD)}"
    start = time.monotonic()
    assert looking.look(TASK, slow, preset="fast") is None
    assert time.monotonic() - start < 15.0


def test_a_program_that_a_look_has_left_gets_no_second_look(always: Evaluator) -> None:
    verdict = always.evaluate(TASK, f"{RIGHT}\nlooked = True\n", passed_look=True)
    assert_ok(verdict)
    assert "look" not in verdict.cost


@pytest.mark.slow
def test_kernels_that_a_look_compiles_are_kept(looking: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look compiles into the caches of the candidate's artifact, which nothing else has filled."""
    monkeypatch.setattr("evaluators.compile.attempt.BuildAttempt._warm_up", lambda *_: None)
    source = f"{RIGHT}\n\nModelNew.forward = torch.compile(ModelNew.forward)\n"
    artifact = looking.builder.build(TASK, Candidate.propose(TASK.id, source, "test"))
    assert isinstance(artifact, Artifact)
    assert looking.look(TASK, source, preset="fast", artifact=artifact) is None
    compiled = {file for file in Path(artifact.path).rglob("*") if file.is_file() and file.suffix in (".so", ".cubin")}
    assert compiled
    verdict = looking.evaluate(TASK, source, artifact=artifact, passed_look=True)
    assert_ok(verdict)


@pytest.mark.parametrize("body", ["return x + 1", "return (x + 1).t().contiguous().t()", "x.add_(1); return x"])
def test_outputs_are_read_whatever_their_strides(tmp_path: Path, limits: LimitsConfig, body: str) -> None:
    builder = Builder(CpuDevice(), tmp_path, limits)
    place = builder.place
    runner = RunnerHandle(place.host_zygote, place.host, place.slot, 0, runner_limits(limits))
    x = torch.arange(12.0).view(3, 4)
    try:
        runner.begin_start()
        runner.end_start(60.0)
        runner.load(RIGHT.replace(FORWARD, body), "ModelNew", 60.0)
        runner.construct(1, [], 60.0)
        (output,) = outputs_of(runner, [x], nesting.flatten(x)[0], place.host, 1, 60.0)
        with pytest.raises(RunnerFailure, match="shape"):
            outputs_of(runner, [x], nesting.flatten(x[:, :2])[0], place.host, 1, 60.0)
    finally:
        runner.end()
        builder.close()
    assert torch.equal(output, torch.arange(12.0).view(3, 4) + 1)


def test_nobody_measures_while_others_look() -> None:
    """By the lock of a GPU, which need not exist."""
    looking: list[HostLocks[None]] = [HostLocks(), HostLocks()]
    measuring: HostLocks[str] = HostLocks()
    place = [("place", ["gpu-of-a-test"])]
    for one in looking:
        one.acquire([(None, place[0][1])], 1.0, shared=True)
    for one in looking:
        with pytest.raises(TimeoutError):
            measuring.acquire(place, 0.05)
        one.release()
    assert measuring.acquire(place, 1.0) == "place"
    with pytest.raises(TimeoutError):
        looking[0].acquire([(None, place[0][1])], 0.05, shared=True)
    measuring.release()
