"""Weights are found by their values under two seeds, and only if there is no doubt about any number."""

from __future__ import annotations

import pytest
import torch

from evaluators.judge.weight_map import WeightMap, is_comparable

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.complex64]


def draw(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    values = {"a.weight": torch.randn(24, 16), "b.weight": torch.randn(24, 16), "bias": torch.randn(24)}
    return {name: (20 * one).to(dtype) for name, one in values.items()} | {"scale": torch.ones(24, dtype=dtype)}


def joined(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The state of an honest program that holds the reference's weights in another layout."""
    both = torch.stack([state["a.weight"], state["b.weight"]], dim=1)
    return {
        "rows": both.reshape(48, 16).t().contiguous(),
        "reversed": state["bias"].flip(0)[None],
        "again": state["a.weight"][:7],
        "ones": state["scale"].view(2, 12).clone(),
        "workspace": torch.zeros(3),
    }


def weight_map(make=joined, dtype: torch.dtype = torch.float32) -> WeightMap:
    first, second = draw(1, dtype), draw(2, dtype)
    return WeightMap((first, second), (make(first), make(second)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_new_weights_are_the_same_function_of_the_old_on_both_sides(dtype) -> None:
    found, state = weight_map(dtype=dtype), draw(3, dtype)
    assert found.missing == ()
    given = found.translate(state, joined(draw(2, dtype)))
    expected = joined(state)  # `translate` has changed the state
    assert set(given) >= {"rows", "reversed", "again"}
    assert all(torch.equal(one, expected[name]) for name, one in given.items())
    assert not torch.equal(state["a.weight"], draw(2, dtype)["a.weight"])


def test_weights_without_equal_numbers_stay_as_drawn() -> None:
    state = draw(3)
    weight_map().translate(state, joined(draw(2)))
    assert all(torch.equal(one, draw(3)[name]) for name, one in state.items())


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda one: {**one, "rows": one["rows"] * 2}, {"a.weight", "b.weight"}),
        (lambda one: {**one, "rows": one["rows"][:, :-1]}, {"b.weight"}),  # the last column is a row of b
        (lambda one: {**one, "reversed": torch.zeros(24)}, {"bias"}),
        (lambda one: {**one, "reversed": one["reversed"].double()}, {"bias"}),
        (lambda one: {**one, "ones": torch.ones(1)}, {"scale"}),
        (lambda one: {}, {"a.weight", "b.weight", "bias", "scale"}),
    ],
)
def test_a_tensor_is_missing_unless_all_its_numbers_are_found(change, missing) -> None:
    assert set(weight_map(lambda state: change(joined(state))).missing) == missing


def test_numbers_that_are_right_under_only_one_seed_are_missing() -> None:
    first, second = draw(1), draw(2)
    assert set(WeightMap((first, second), (first, first)).missing) == {"a.weight", "b.weight", "bias"}


def test_a_tensor_derived_from_weights_is_left_alone() -> None:
    found = weight_map(lambda state: {**joined(state), "sums": state["a.weight"].sum(dim=0)})
    assert found.missing == ()
    assert "sums" not in found.translate(draw(3), joined(draw(2)))


def test_equal_initial_values_get_equal_new_ones() -> None:
    def twice(seed: int) -> dict[str, torch.Tensor]:
        return {"one": draw(seed)["bias"], "copy": draw(seed)["bias"]}

    found = WeightMap((twice(1), twice(2)), ({"both": twice(1)["one"]}, {"both": twice(2)["one"]}))
    state = {"one": torch.randn(24), "copy": torch.randn(24)}
    given = found.translate(state, {"both": twice(2)["one"]})
    assert torch.equal(given["both"], state["one"])
    assert torch.equal(given["both"], state["copy"])


def test_numbers_of_sixteen_bytes_cannot_be_compared() -> None:
    assert is_comparable(draw(1))
    assert not is_comparable({"a": torch.zeros(2, dtype=torch.complex128)})


def ordered(seed: int) -> dict[str, torch.Tensor]:
    """A state with structure: a permutation, and rows each of which is one-hot."""
    order = torch.randperm(64, generator=torch.Generator().manual_seed(seed))
    return {"order": order, "chosen": torch.nn.functional.one_hot(order, 64).float(), "bias": draw(seed)["bias"]}


def test_a_tensor_with_structure_is_handed_over_as_a_whole() -> None:
    first, second = (
        {"p": one["order"], "q": one["chosen"].t(), "b": one["bias"].flip(0)} for one in map(ordered, (1, 2))
    )
    found = WeightMap((ordered(1), ordered(2)), (first, {name: one.contiguous() for name, one in second.items()}))
    assert found.missing == ()
    state = ordered(3)
    given = found.translate(state, second)
    assert all(torch.equal(one, ordered(3)[name]) for name, one in state.items())
    assert torch.equal(given["p"], state["order"])
    assert torch.equal(given["q"], state["chosen"].t())
    assert torch.equal(given["b"], state["bias"].flip(0))


def test_a_tensor_with_structure_in_another_layout_stays_as_it_is() -> None:
    def backwards(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"p": state["order"].flip(0), "q": state["chosen"].flip(0), "b": state["bias"].flip(0)}

    found = WeightMap((ordered(1), ordered(2)), (backwards(ordered(1)), backwards(ordered(2))))
    assert found.missing == ()
    state = ordered(3)
    given = found.translate(state, backwards(ordered(2)))
    for name in ("order", "chosen"):
        assert torch.equal(state[name], ordered(2)[name])
    assert torch.equal(given["p"], state["order"].flip(0))
    assert torch.equal(given["q"], state["chosen"].flip(0))
    assert not torch.equal(state["bias"], ordered(2)["bias"])


def test_without_a_search_by_number_only_whole_tensors_are_found() -> None:
    def made(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"x": state["a.weight"].t().contiguous(), "y": state["b.weight"].view(8, 48), "scale": state["scale"]}

    first, second = draw(1), draw(2)
    assert WeightMap((first, second), (made(first), made(second)), by_number=False).missing == ("bias",)
    assert set(WeightMap((first, second), (joined(first), joined(second)), by_number=False).missing) == {
        "a.weight", "b.weight", "bias",
    }  # fmt: skip


def test_a_dtype_without_numbers_in_the_reference_is_no_source() -> None:
    first, second = ({**draw(seed), "none": torch.empty(0, dtype=torch.int64)} for seed in (1, 2))
    candidate = ({**draw(seed), "count": torch.tensor([seed])} for seed in (1, 2))
    assert WeightMap((first, second), tuple(candidate)).missing == ()
