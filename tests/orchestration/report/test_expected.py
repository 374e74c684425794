"""How long a run will still take follows from what its steps took."""

from __future__ import annotations

import pytest

from configs.schema import RunConfig
from orchestration.report.expected import remaining_of
from orchestration.run.state import RunState

Figures = dict[tuple[str, int], dict[str, float]]


def steps(key: str, *seconds: float) -> Figures:
    return {(key, step): {"step_seconds": each} for step, each in enumerate(seconds)}


@pytest.fixture
def config() -> RunConfig:
    made = RunConfig(name="any")
    made.sft.epochs, made.self_supervised.max_rounds, made.contrastive_rl.steps = 3, 2, 10
    return made


def test_before_the_second_step_of_sft_nothing_is_known(config: RunConfig) -> None:
    left = remaining_of(config, RunState(), steps("1-sft", 300.0))
    assert (left.phase, left.run) == (None, None)
    assert left.unknown == ("1-self_supervised", "1-contrastive_rl")


def test_the_first_step_of_sft_does_not_count_since_it_judges_the_teachers(config: RunConfig) -> None:
    left = remaining_of(config, RunState(), steps("1-sft", 300.0, 10.0, 12.0))
    assert left.phase == pytest.approx(11.0)


def test_the_end_of_the_last_phase_is_that_of_the_run_with_its_assessment(config: RunConfig) -> None:
    state = RunState(extra={"completed": ["1-sft", "1-self_supervised"]})
    figures = steps("1-contrastive_rl", *[30.0] * 4)
    left = remaining_of(config, state, {**figures, ("assess/base", 0): {"pipeline_seconds": 60.0}})
    assert (left.phase, left.run, left.unknown) == (180.0, 240.0, ())


def test_a_limit_in_minutes_ends_the_phase_sooner(config: RunConfig) -> None:
    config.contrastive_rl.minutes = 3.0
    state = RunState(extra={"completed": ["1-sft", "1-self_supervised"]})
    assert remaining_of(config, state, steps("1-contrastive_rl", *[30.0] * 4)).phase == 60.0


def test_phases_of_a_later_cycle_last_as_long_as_before(config: RunConfig) -> None:
    config.schedule.cycles, config.schedule.phases = 2, ["self_supervised", "contrastive_rl"]
    figures = {**steps("1-self_supervised", 50.0, 50.0), **steps("1-contrastive_rl", *[30.0] * 10)}
    state = RunState(extra={"completed": ["1-self_supervised", "1-contrastive_rl"]})
    left = remaining_of(config, state, {**figures, **steps("2-self_supervised", 40.0)})
    assert (left.phase, left.run) == (40.0, 340.0)


def test_of_a_finished_run_nothing_is_left(config: RunConfig) -> None:
    assert remaining_of(config, RunState(finished=True), {}).run == 0.0
