"""The cheapest mix of GPU types: what must hold of every answer, and answers that can be checked by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cluster.cost.mix import NodeKind, NoMix, Slice, cheapest_mix

BIG, SMALL = NodeKind("H100", 1, 4.0), NodeKind("L40S", 1, 1.0)


def test_a_load_goes_to_the_type_that_judges_it_for_less() -> None:
    # A small program takes as long on both, so the cheap type wins; a large one takes ten times as long on it.
    small = Slice(1000.0, {"H100": 1000.0, "L40S": 1000.0})
    large = Slice(100.0, {"H100": 100.0, "L40S": 10.0})
    mix = cheapest_mix([small, large], [BIG, SMALL])
    assert mix.types == ("L40S", "H100")
    assert mix.nodes == {SMALL: 1, BIG: 1}
    assert mix.price == 5.0
    assert cheapest_mix([small, large], [BIG]).price == 8.0
    assert cheapest_mix([small, large], [SMALL]).price == 11.0


def test_a_node_that_is_paid_for_takes_what_would_cost_a_node_of_its_own() -> None:
    """The effect of whole numbers: half of a large GPU is idle, and judges what is cheaper elsewhere by the hour."""
    large = Slice(50.0, {"H100": 100.0, "L40S": 1.0})
    small = Slice(400.0, {"H100": 1000.0, "L40S": 800.0})
    mix = cheapest_mix([large, small], [BIG, SMALL])
    assert mix.nodes == {BIG: 1}
    assert mix.load == {"H100": pytest.approx(0.9), "L40S": 0.0}


def test_other_work_keeps_its_gpus() -> None:
    mix = cheapest_mix([Slice(10.0, {"H100": 10.0})], [NodeKind("H100", 8, 32.0)], {"H100": 8})
    assert sum(mix.nodes.values()) == 2
    assert cheapest_mix([], [NodeKind("H100", 8, 32.0)], {"H100": 7}).price == 32.0


def test_a_load_without_enough_nodes_is_refused() -> None:
    with pytest.raises(NoMix, match="1 x 2 L40S"):
        cheapest_mix([Slice(30.0, {"L40S": 10.0})], [NodeKind("L40S", 2, 2.0, most=1)])
    with pytest.raises(NoMix, match="can judge all"):
        cheapest_mix([Slice(30.0, {"A100": 10.0})], [SMALL])
    with pytest.raises(NoMix, match="no node with H100"):
        cheapest_mix([], [SMALL], {"H100": 1})


rates = st.floats(1.0, 50.0)


@given(st.lists(st.tuples(rates, rates, rates), min_size=1, max_size=4), st.floats(0.5, 5.0))
@example([(1.0, 2.0, 2.0), (3.0, 4.0, 5.0)], 0.99999)
def test_no_other_assignment_is_cheaper(drawn: list[tuple[float, float, float]], price: float) -> None:
    slices = [Slice(rate, {"H100": first, "L40S": second}) for rate, first, second in drawn]
    assume(not _is_near_a_whole(slices))  # there the solver's tolerance decides
    kinds = [NodeKind("H100", 1, price), SMALL]
    mix = cheapest_mix(slices, kinds)
    for kind in kinds:
        assert mix.load[kind.accelerator] <= mix.nodes.get(kind, 0) + 1e-5
    tried = []
    for types in itertools.product(("H100", "L40S"), repeat=len(slices)):
        loads = {"H100": 0.0, "L40S": 0.0}
        for one, name in zip(slices, types, strict=True):
            loads[name] += one.rate / one.maximum[name]
        whole = {name: math.ceil(load) for name, load in loads.items()}
        tried.append(price * whole["H100"] + whole["L40S"])
    assert mix.price == pytest.approx(min(tried))


def _is_near_a_whole(slices: list[Slice]) -> bool:
    for types in itertools.product(("H100", "L40S"), repeat=len(slices)):
        for name in ("H100", "L40S"):
            load = sum(one.rate / one.maximum[name] for one, on in zip(slices, types, strict=True) if on == name)
            if load and abs(load - round(load)) < 1e-3:
                return True
    return False
