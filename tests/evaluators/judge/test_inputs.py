"""Inputs with other values keep their form."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from evaluators.judge.inputs import distributions, leaning, rounding_alike
from evaluators.shared import nesting
from evaluators.tasks import TaskProgram, load_tasks

BUNDLED = {task.id: task for task in load_tasks("bundled", "cpu")}


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def named(values: list[Any], seed: int = 5) -> list[tuple[str, list[Any]]]:
    """All alternatives of all kinds."""
    return [one for alternatives in distributions(values, generator(seed)) for one in alternatives]


def test_positive_inputs_become_normal_and_then_larger() -> None:
    given = [torch.rand(200, 50) / 20]
    names, values = zip(*named(given), strict=True)
    assert names == (
        "normally distributed",
        "4 times larger",
        "as large as 100 at few places",
        "64 times larger at few places",
        "as large as 100",
        "64 times larger",
    )
    [normal], [wide], [few_largest], [few], [largest], [far] = values
    assert float(normal.mean()) == pytest.approx(0.0, abs=0.05)
    assert float(normal.std()) == pytest.approx(1.0, abs=0.05)
    is_far = few != given[0]
    assert 1 <= int(is_far.sum()) < 40
    assert torch.equal(few[is_far], 64 * given[0][is_far])
    assert torch.equal(few_largest[~is_far], given[0][~is_far])
    assert float(largest.amax()) == pytest.approx(100.0)
    assert few_largest[is_far].tolist() == pytest.approx([100.0] * int(is_far.sum())), "each, not the largest alone"
    assert torch.equal(wide, 4 * given[0])
    assert torch.equal(far, 64 * given[0])
    assert float(given[0].amin()) >= 0  # the task's own inputs are unchanged


def test_values_that_64_times_their_size_reach_have_no_alternatives() -> None:
    given = torch.rand(200) + 2.0
    assert [name for name, _ in named([given])] == [
        "normally distributed", "4 times larger", "64 times larger at few places", "64 times larger"
    ]  # fmt: skip


def test_the_largest_factor_has_a_bound() -> None:
    [tiny], *_ = [values for name, values in named([torch.full((9,), 1e-9)]) if name == "as large as 100"]
    assert float(tiny[0]) == pytest.approx(4096e-9)


def test_inputs_that_are_negative_somewhere_only_become_larger() -> None:
    given = [torch.randn(200, generator=generator())]
    (name, [wide]), (_, [farther]), (_, [few]), _ = named(given)
    far = few != given[0]
    assert torch.equal(farther[far], given[0][far].sign() * (64 * given[0][far].abs()).clamp(min=100.0))
    assert int((few != given[0]).sum()) >= 1, "even of few numbers one is larger"
    assert name == "4 times larger"
    assert torch.equal(wide, 4 * given[0])


@pytest.mark.parametrize("coarser", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_errors_that_would_cancel_add_up(dtype, coarser) -> None:
    given = torch.randn(400, 300, dtype=dtype, generator=generator()).t()
    changed, indices = rounding_alike([given, torch.arange(40)])
    assert torch.equal(indices, torch.arange(40))
    assert changed.dtype is dtype
    assert changed.stride() == given.stride()
    assert float(((changed - given) / given).abs().max()) < 1 / 16
    normal = given.abs() > 1e-3
    lost = ((changed.to(coarser).double() - changed) / changed)[normal]
    assert bool((lost.sign() == lost[0].sign()).all())
    before = ((given.to(coarser).double() - given) / given)[normal]
    assert abs(float(lost.mean())) > 20 * abs(float(before.mean()))


@pytest.mark.parametrize("coarser", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_most_numbers_of_timed_calls_lean_to_one_side_and_the_others_hide_the_digits(dtype, coarser) -> None:
    given = torch.randn(400, 300, dtype=dtype, generator=generator()).t()
    for _ in range(8):
        changed, indices = leaning([given, torch.arange(40)])
        assert torch.equal(indices, torch.arange(40))
        assert changed.dtype is dtype
        assert changed.stride() == given.stride()
        assert float(((changed - given) / given).abs().max()) < 1e-3
        assert 0.6 < float((changed != given).double().mean()) < 0.98
        errors = [(values.to(coarser).double() - values) / values for values in (changed, given)]
        lost, before = (float(error[given.abs() > 1e-3].mean()) for error in errors)
        assert abs(lost) > 5e-5
        assert abs(lost) > 4 * abs(before)


def test_numbers_that_lose_nothing_at_half_precision_do_not_lean() -> None:
    given = [torch.randn(500).half().float(), torch.randint(0, 2, (500,)).float(), torch.tensor([torch.inf, torch.nan])]
    for changed, same in zip(leaning(given), given, strict=True):
        assert torch.equal(changed.view(torch.int32), same.view(torch.int32))


def test_zeros_and_what_is_not_finite_stay() -> None:
    given = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-44])
    [changed] = rounding_alike([given])
    assert torch.equal(changed.view(torch.int32), given.view(torch.int32))


def test_nothing_rounds_alike_without_digits_to_spare() -> None:
    assert rounding_alike([torch.randn(20).half(), torch.arange(9)]) is None


def test_integers_stay_in_every_distribution() -> None:
    indices, mask = torch.arange(12), torch.tensor([True, False])
    found = named([indices, torch.rand(3), mask])
    assert len(found) == 6
    for _, (same, changed, same_mask) in found:
        assert torch.equal(same, indices)
        assert torch.equal(same_mask, mask)
        assert changed.dtype is torch.float32
    assert named([indices, mask, 3, "word"]) == []


def test_only_what_is_positive_is_drawn_anew() -> None:
    signed, positive = torch.randn(50), torch.rand(50)
    _, (kept, drawn) = named([signed, positive])[0]
    assert torch.equal(kept, signed)
    assert float(drawn.amin()) < 0.0


@pytest.mark.parametrize(
    "given",
    [torch.rand(4, 6).t(), torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.rand(3).bfloat16()],
    ids=["transposed", "channels last", "bfloat16"],
)
def test_strides_and_dtype_are_kept(given) -> None:
    for _, [values] in named([given]):
        assert values.stride() == given.stride()
        assert values.shape == given.shape
        assert values.dtype is given.dtype


def test_nested_inputs_keep_their_form() -> None:
    given = [torch.rand(4), 3, None, "constant", [torch.rand(2), (torch.rand(2), 1.5)], {"k": torch.rand(3)}]
    for _, values in named(given):
        assert nesting.difference(nesting.flatten(given)[0], nesting.flatten(values)[0]) is None
        pairs = zip(nesting.flatten(given)[1], nesting.flatten(values)[1], strict=True)
        assert not any(torch.equal(one, other) for one, other in pairs)


def test_values_depend_on_the_generator() -> None:
    given = [torch.rand(20)]
    drawn = [named(given, seed)[0][1][0] for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_no_elements_make_no_distribution_of_their_own() -> None:
    assert [name for name, _ in named([torch.empty(0)])] == [
        "4 times larger",
        "64 times larger at few places",
        "64 times larger",
    ]


@pytest.mark.parametrize("identity", BUNDLED)
def test_a_bundled_reference_takes_other_values(identity) -> None:
    program = TaskProgram(BUNDLED[identity])
    model = program.model(1, program.init_inputs(1))
    kinds = list(islice(distributions(program.inputs(1), generator()), 3))
    assert kinds[1]
    for name, values in (alternatives[-1] for alternatives in kinds if alternatives):
        with torch.no_grad(), program.seeded(1):
            outputs = nesting.flatten(model(*values))[1]
        assert all(bool(one.isfinite().all()) for one in outputs), name
