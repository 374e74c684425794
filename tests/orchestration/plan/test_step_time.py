"""The time of a step: what must hold of it, and steps that can be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from configs.load import load_config
from orchestration.plan.earlier import Pace
from orchestration.plan.sizes import Sizes
from orchestration.plan.step_time import Load, judging_seconds, step_time

ONE = Sizes(np.array([1.0]), {"H100": (np.array([2.0]),)}, {}, {})
PACE = Pace("scratch", "H100", engine_tokens=100.0, response_tokens=50.0, learn_seconds=0.25, push_seconds=1.0)


def judging(evaluators: int, candidates: int, arriving: float = 0.0) -> float:
    return judging_seconds(ONE, ["H100"], {"H100": evaluators}, candidates, arriving)


def test_candidates_share_the_evaluators() -> None:
    assert judging(1, 10) == pytest.approx(20.0)
    assert judging(5, 10) == pytest.approx(4.0)
    assert judging(4, 10) == pytest.approx(6.0)  # in the third round two evaluators wait
    assert judging(100, 10) == pytest.approx(2.0)


def test_a_candidate_is_not_judged_before_it_comes() -> None:
    assert judging(100, 10, arriving=50.0) == pytest.approx(50.0)  # the last but one tenth comes after 45 s
    assert judging(1, 10, arriving=1.0) == pytest.approx(20.0)


def test_each_slice_goes_to_its_own_type() -> None:
    sizes = Sizes(
        np.array([0.5, 0.5]),
        {"H100": (np.array([1.0]), np.array([1.0])), "L40S": (np.array([4.0]), np.array([4.0]))},
        {},
        {},
    )
    alone = judging_seconds(sizes, ["H100", "H100"], {"H100": 1}, 100)
    both = judging_seconds(sizes, ["H100", "L40S"], {"H100": 1, "L40S": 4}, 100)
    assert alone == pytest.approx(100.0)
    assert 50.0 <= both <= 65.0


def step(*overrides: str, overlaps: bool = False) -> float:
    config = load_config("local", ["evaluator.arch=H100", *overrides])
    load = Load(responses=80, candidates=40)
    return step_time(config, ONE, ["H100"], {"H100": 8}, load, PACE, overlaps=overlaps).total


def test_roles_with_gpus_of_their_own_work_side_by_side() -> None:
    """80 responses of 50 tokens take 40 s, 40 candidates 10 s of eight evaluators, learning 20 s."""
    side_by_side, in_turns = step(), step("placement.share=all")
    assert side_by_side == pytest.approx(41.0 + 20.0 + 1.0, abs=1.5)
    assert in_turns == pytest.approx(40.0 + 10.0 + 20.0 + 1.0)
    assert step("placement.share=training") == pytest.approx(side_by_side)


def test_overlapping_steps_take_as_long_as_the_busiest_role() -> None:
    assert step(overlaps=True) == pytest.approx(41.0)
    assert step("rollout.engines=8", overlaps=True) == pytest.approx(21.0)
    assert step("rollout.engines=8", "learner.ranks=8", overlaps=True) == pytest.approx(10.0)
    assert step("placement.share=training", overlaps=True) == pytest.approx(61.0)


def test_an_assessment_teaches_nothing() -> None:
    config = load_config("local", ["evaluator.arch=H100"])
    took = step_time(config, ONE, ["H100"], {"H100": 8}, Load(80, 40), PACE, learns=False)
    assert took.learning == took.push == 0.0
    assert took.total == took.judging
