"""A program that works at the task's shape alone keeps its verdict, and a hint says so."""

from __future__ import annotations

from dataclasses import replace

from tests.evaluators.outcomes import OF_TIMES, assert_ok, speedup_of
from tests.evaluators.sources import model, reference_of, task_of

SHAPED = task_of(model("return torch.tanh(x[0]) * x[0].shape[0] + 1"))


def specialised(extra: str = "") -> str:
    return model(f"return torch.tanh(x[0]) * 160 + 1{extra}", name="ModelNew")


def test_a_program_for_the_tasks_shape_alone_is_ok_and_says_so(evaluator) -> None:
    verdict = evaluator.evaluate(SHAPED, specialised())
    assert_ok(verdict)
    assert [(finding.kind, finding.severity) for finding in verdict.guard] == [("shapes", "hint")]
    assert verdict.guard[0].message.startswith("fails at n = 100: ")
    assert verdict.correctness.error <= verdict.correctness.tolerance  # of the task's own shape
    general = evaluator.evaluate(SHAPED, reference_of(SHAPED))
    assert_ok(general)
    assert {finding.kind for finding in general.guard} <= OF_TIMES


def test_a_program_that_raises_at_another_shape_keeps_its_verdict(evaluator) -> None:
    source = model("assert x[0].shape[0] == 160, 'not mine'; return torch.tanh(x[0]) * 160 + 1", name="ModelNew")
    verdict = evaluator.evaluate(SHAPED, source)
    assert_ok(verdict)
    assert "not mine" in verdict.guard[0].message
    assert speedup_of(verdict).value > 0


def test_a_shape_that_the_reference_refuses_is_required_of_no_candidate(evaluator) -> None:
    task = task_of(model("return torch.tanh(x[0].view(160, 160))"))
    verdict = evaluator.evaluate(task, model("return torch.tanh(x[0]).view(160, -1)", name="ModelNew"))
    assert_ok(verdict)
    assert verdict.guard == ()


def test_an_odd_shape_is_tried_if_the_preset_asks_for_two(evaluator, monkeypatch) -> None:
    forward = "y = torch.tanh(x[0]) * x[0].shape[0] + 1; return y if y.shape[1] % 2 == 0 else y * 2"
    source = model(forward, name="ModelNew")
    assert evaluator.evaluate(SHAPED, source).guard == ()
    monkeypatch.setattr(evaluator, "preset", replace(evaluator.preset, name="two shapes", shapes=2))
    verdict = evaluator.evaluate(SHAPED, source)
    assert_ok(verdict)
    assert verdict.guard[0].message.startswith("fails at n = 99: ")
