"""Trials show errors that the task's own inputs hide, and honest programs pass them."""

from __future__ import annotations

import pytest

from evaluators.records import Outcome
from tests.evaluators.outcomes import assert_ok
from tests.evaluators.sources import HIDDEN_STATE, model, reference_of, task_of

# Inputs that the task does not show


RELU = task_of(model("return torch.relu(x[0]) * 3"), "[torch.rand(n, n)]")


def test_a_program_that_does_only_what_the_tasks_own_inputs_need_is_wrong(evaluator) -> None:
    assert_ok(evaluator.evaluate(RELU, reference_of(RELU)))
    verdict = evaluator.evaluate(RELU, model("return x[0] * 3", name="ModelNew"))
    assert verdict.outcome is Outcome.WRONG
    assert verdict.message.endswith(" on inputs that are normally distributed")
    assert verdict.correctness.trials >= 3  # at least two on the task's own inputs passed before
    assert verdict.speedups == {}


def test_a_program_that_leaves_out_a_bound_is_wrong_even_if_only_larger_values_reach_it(evaluator) -> None:
    task = task_of(model("return x[0].clamp(-9, 9)"))  # none of 25600 normal numbers is beyond
    verdict = evaluator.evaluate(task, model("return x[0] * 1", name="ModelNew"))
    assert verdict.outcome is Outcome.WRONG
    assert verdict.message.endswith((" times larger", " times larger at few places", " as large as 100 at few places"))


LOGITS = task_of(model("return torch.softmax(x[0], dim=1)"), "[torch.rand(n, n)]")


def test_a_program_that_overflows_is_wrong_even_if_the_tasks_own_inputs_lie_between_0_and_1(evaluator) -> None:
    assert_ok(evaluator.evaluate(LOGITS, reference_of(LOGITS)))
    source = model("e = torch.exp(x[0]); return e / e.sum(dim=1, keepdim=True)", name="ModelNew")
    verdict = evaluator.evaluate(LOGITS, source)
    assert verdict.outcome is Outcome.WRONG
    assert verdict.message.endswith(" on inputs that are as large as 100 at few places")


@pytest.mark.parametrize("forward", ["return torch.exp(x[0])", "return torch.log(torch.exp(x[0]) + 1)"])
def test_where_the_reference_overflows_values_that_are_less_far_tell(evaluator, forward) -> None:
    task = task_of(model(forward), "[torch.rand(n, n)]")
    assert_ok(evaluator.evaluate(task, reference_of(task)))
    verdict = evaluator.evaluate(task, model(forward.replace("x[0]", "x[0].clamp(max=20)"), name="ModelNew"))
    assert verdict.outcome is Outcome.WRONG
    assert verdict.message.endswith(" on inputs that are 64 times larger at few places")


@pytest.mark.parametrize("forward", ["return torch.sqrt(x[0])", "return torch.log(x[0] + 1e-3)", "return x[0] ** 0.3"])
def test_inputs_that_the_reference_does_not_take_are_required_of_no_candidate(evaluator, forward) -> None:
    task = task_of(model(forward), "[torch.rand(n, n) + 0.1]")
    verdict = evaluator.evaluate(task, reference_of(task))
    assert_ok(verdict)


# Precision


ROUNDED = "y = {exact}; m, e = torch.frexp(y); return torch.ldexp(torch.round(m * 2**{bits}) / 2**{bits}, e)"


@pytest.mark.parametrize(("bits", "outcome"), [(17, Outcome.WRONG), (20, Outcome.OK)])
def test_no_digits_may_be_missing_if_nothing_is_summed(evaluator, bits, outcome) -> None:
    task = task_of(model("return torch.tanh(x[0])"))
    source = model(ROUNDED.format(exact="torch.tanh(x[0])", bits=bits), name="ModelNew")
    verdict = evaluator.evaluate(task, source)
    assert verdict.outcome is outcome, verdict.message


AFTER = (
    "self.calls = getattr(self, 'calls', 0) + 1; y = torch.tanh(x[0]); m, e = torch.frexp(y); "
    "return y if self.calls <= 8 else torch.ldexp(torch.round(m * 2**{bits}) / 2**{bits}, e)"
)


@pytest.mark.parametrize(("bits", "outcome"), [(17, Outcome.WRONG), (20, Outcome.OK)])
def test_no_digits_may_be_missing_after_the_trials_either(evaluator, bits, outcome) -> None:
    task = task_of(model("return torch.tanh(x[0])"))
    verdict = evaluator.evaluate(task, model(AFTER.format(bits=bits), name="ModelNew"))
    assert verdict.outcome is outcome, verdict.message


TERMS = """
def split(x):
    found = []
    for _ in range({terms}):
        found.append(x.bfloat16().float())
        x = x - found[-1]
    return found
"""


@pytest.mark.parametrize(("terms", "outcome"), [(2, Outcome.WRONG), (3, Outcome.OK)])
def test_a_product_of_shortened_numbers_is_wrong(evaluator, terms, outcome) -> None:
    task = task_of(model("return x[0] @ x[1]"), "[torch.randn(n, n), torch.randn(n, n)]")
    source = model("return sum(a @ b for a in split(x[0]) for b in split(x[1]))", name="ModelNew")
    verdict = evaluator.evaluate(task, source + TERMS.format(terms=terms))
    assert verdict.outcome is outcome, verdict.message


def test_a_sum_may_have_the_error_that_its_order_explains(evaluator) -> None:
    task = task_of(model("return x[0].cumsum(1)"))
    source = model(ROUNDED.format(exact="x[0].cumsum(1)", bits=17), name="ModelNew")
    verdict = evaluator.evaluate(task, source)
    assert_ok(verdict)


# Determinism


NOISY = (
    "own = torch.Generator(x[0].device); own.seed(); "
    "return torch.tanh(x[0]) * (1 + {size} * torch.rand(x[0].shape, generator=own, device=x[0].device))"
)


def test_noise_within_the_tolerance_is_recorded(evaluator) -> None:
    task = task_of(model("return torch.tanh(x[0])"))
    noisy = evaluator.evaluate(task, model(NOISY.format(size=1e-6), name="ModelNew"))
    assert_ok(noisy)
    assert noisy.correctness.deterministic is False
    steady = evaluator.evaluate(task, reference_of(task))
    assert_ok(steady)
    assert steady.correctness.deterministic is True
    loud = evaluator.evaluate(task, model(NOISY.format(size=1e-3), name="ModelNew"))
    assert loud.outcome is Outcome.WRONG


def test_random_numbers_under_the_tasks_seed_are_deterministic(evaluator) -> None:
    task = task_of(model("return x[0] + torch.rand_like(x[0])"))
    verdict = evaluator.evaluate(task, model("return torch.rand_like(x[0]) + x[0]", name="ModelNew"))
    assert_ok(verdict)
    assert verdict.correctness.deterministic is True


def test_determinism_is_unknown_if_the_reference_keeps_a_state(evaluator) -> None:
    verdict = evaluator.evaluate(HIDDEN_STATE, reference_of(HIDDEN_STATE) + "# once more\nk = 1\n")
    assert_ok(verdict)
    assert verdict.correctness.deterministic is None
