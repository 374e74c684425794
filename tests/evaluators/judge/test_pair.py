"""Sets of tensors in one region neither overlap nor leave gaps in what is compared and poisoned."""

from __future__ import annotations

import pytest
import torch

from evaluators.failures import InfraError, RunnerFailure
from evaluators.judge.pair import Costs, Slots, of_reference
from evaluators.records import Outcome
from evaluators.shared import nesting

EXAMPLE = [torch.randn(3, 5), torch.arange(7), torch.randn(4, 6).t(), torch.tensor(1.5), torch.empty(0)]


def slots(count: int) -> Slots:
    specs = nesting.tensor_specs(nesting.flatten(EXAMPLE)[0])
    return Slots(specs, torch.zeros(count * nesting.layout(specs)[1], dtype=torch.uint8), count)


def test_a_set_has_the_form_of_its_example() -> None:
    for view, one in zip(slots(3).views[2], EXAMPLE, strict=True):
        assert (view.shape, view.stride(), view.dtype) == (one.shape, one.stride(), one.dtype)


def test_writing_one_tensor_changes_no_other() -> None:
    made = slots(3)
    for number, views in enumerate(made.views):
        for place, view in enumerate(views):
            view.fill_(10 * number + place)
    for number, views in enumerate(made.views):
        for place, view in enumerate(views):
            assert bool((view == 10 * number + place).all())


@pytest.mark.parametrize("slot", range(3))
def test_the_bytes_of_some_sets_hold_every_change_to_these_and_none_to_others(slot) -> None:
    made = slots(3)
    for view in made.views[slot][:4]:
        for count in (1, 2, 3):
            before = made.bytes_of(count).clone()
            view[(-1,) * view.dim()] += 1
            assert torch.equal(before, made.bytes_of(count)) == (slot >= count)


def test_a_reference_that_fails_is_our_failure_and_anything_else_is_passed_on() -> None:
    def fails() -> None:
        raise RunnerFailure(Outcome.TIMEOUT, "too slow")

    with pytest.raises(InfraError, match=r"level1/a.*too slow"):
        of_reference("level1/a", fails)
    assert of_reference("level1/a", lambda: 3) == 3


def test_costs_of_one_name_add_up_even_where_the_work_fails() -> None:
    costs = Costs()
    with costs("calls"):
        pass
    first = costs.seconds["calls"]
    with pytest.raises(ValueError, match="stop"), costs("calls"):
        raise ValueError("stop")
    assert costs.seconds["calls"] > first > 0
