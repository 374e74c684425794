"""Sets of tensors in one region do not overlap, and all their bytes are compared and poisoned."""

from __future__ import annotations

import pytest
import torch

from evaluators.failures import InfraError, RunnerFailure
from evaluators.host.outputs import TensorSets
from evaluators.judge.pair import reference_errors_as_infra
from evaluators.records import Outcome
from evaluators.shared import nesting

EXAMPLE = [torch.randn(3, 5), torch.arange(7), torch.randn(4, 6).t(), torch.tensor(1.5), torch.empty(0)]


def sets(count: int) -> TensorSets:
    specs = nesting.tensor_specs(nesting.flatten(EXAMPLE)[0])
    return TensorSets(specs, torch.zeros(count * nesting.layout(specs)[1], dtype=torch.uint8), count)


def test_a_set_has_the_form_of_its_example() -> None:
    for view, one in zip(sets(3).views[2], EXAMPLE, strict=True):
        assert (view.shape, view.stride(), view.dtype) == (one.shape, one.stride(), one.dtype)


def test_writing_one_tensor_changes_no_other() -> None:
    made = sets(3)
    for number, views in enumerate(made.views):
        for place, view in enumerate(views):
            view.fill_(10 * number + place)
    for number, views in enumerate(made.views):
        for place, view in enumerate(views):
            assert bool((view == 10 * number + place).all())


@pytest.mark.parametrize("call", range(3))
def test_the_bytes_of_some_sets_hold_every_change_to_these_and_none_to_others(call) -> None:
    made = sets(3)
    for view in made.views[call][:4]:
        for count in (1, 2, 3):
            before = made.bytes_of(count).clone()
            view[(-1,) * view.dim()] += 1
            assert torch.equal(before, made.bytes_of(count)) == (call >= count)


def test_a_reference_that_fails_is_our_failure_and_anything_else_is_passed_on() -> None:
    with pytest.raises(InfraError, match=r"level1/a.*too slow"), reference_errors_as_infra("level1/a"):
        raise RunnerFailure(Outcome.TIMEOUT, "too slow")
    with pytest.raises(KeyError), reference_errors_as_infra("level1/a"):
        raise KeyError("another")
