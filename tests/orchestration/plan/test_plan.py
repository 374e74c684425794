"""Plans of runs: they predict a run that has been, keep their target, and never prefer what costs more."""

from __future__ import annotations

import datetime
from collections import defaultdict
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cluster.cost.prices import Price, Prices
from cluster.cost.rates import Rate
from configs.load import ConfigError, load_config, parse_config
from orchestration.plan.earlier import EarlierRun, read_earlier
from orchestration.plan.plan import Plan, Wanted, make_plan
from orchestration.setup.stages import Stage

RESULTS = Path(__file__).parents[3] / "docs" / "results"
STAGES = [Stage("1-sft", "sft", 5, 0), Stage("1-contrastive_rl", "contrastive_rl", 30, 256)]
RATES = {
    "H200": Rate(1800.0, "fast", "a test"),
    "L40S": Rate(900.0, "fast", "a test"),
    "A100": Rate(1300.0, "fast", "a test"),
}


def prices(**of_types: float) -> Prices:
    today = datetime.date(2026, 11, 1)
    return Prices("EUR", {name: Price(price, "a test", today) for name, price in of_types.items()}, "prices.yaml")


@cache
def earlier(name: str, *, builders_look: bool = False) -> EarlierRun:
    return read_earlier(str(RESULTS / name), builders_look=builders_look)


def planned(
    *overrides: str, types: tuple[str, ...] = ("H200",), seconds: float = 0.0, costs: Prices | None = None,
    runs: tuple[str, ...] = ("coder",), training: str = "H200",
) -> Plan:  # fmt: skip
    config = load_config("local", ["evaluator.arch=H200", *overrides])
    found = [earlier(name) for name in runs]
    return make_plan(config, STAGES, 64, found, costs or prices(), RATES, Wanted(types, training, seconds))


def step_of(plan: Plan, option: int = 0) -> float:
    return plan.options[option].step_seconds


@pytest.mark.parametrize("name", ["hour", "rehearsed"])
def test_the_plan_of_a_run_that_has_been_is_near_to_what_it_took(name: str) -> None:
    """These two ran with `placement.share: all`, with evaluators that waited for their turn."""
    config = parse_config((RESULTS / name / "config.yaml").read_text(), name).config
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for row in pq.read_table(RESULTS / name / "metrics.parquet").to_pylist():
        if row["phase"] == "1-contrastive_rl":
            steps[row["step"]][row["name"]] = row["value"]
    took = sum(step["step_seconds"] for step in steps.values()) / len(steps)
    responses = round(sum(step["rollouts"] for step in steps.values()) / len(steps))
    stages = [Stage("1-contrastive_rl", "contrastive_rl", len(steps), responses)]
    run = earlier(name, builders_look=True)
    plan = make_plan(config, stages, 10, [run], prices(), RATES, Wanted(("H200",), "H200"))
    assert step_of(plan) == pytest.approx(took, rel=0.3)


def test_a_run_as_it_is_configured() -> None:
    plan = planned("evaluator.workers=4", "rollout.engines=2", costs=prices(H200=3.0))
    (option,) = plan.options
    assert option.evaluators == {"H200": 4}
    assert option.nodes == {"H200x1": 4 + 2 + 1}
    assert option.hour == pytest.approx(21.0)
    assert option.cost == pytest.approx(option.hours * 21.0)
    assert option.hours == pytest.approx(sum(stage.hours for stage in option.stages))
    assert plan.unit == "EUR"
    assert [stage.key for stage in option.stages] == ["1-contrastive_rl", "assessments"]
    assert option.step_seconds == option.stages[0].step.total


def test_more_evaluators_make_steps_shorter_down_to_what_generation_takes() -> None:
    steps = [step_of(planned(f"evaluator.workers={count}", "rollout.engines=4")) for count in (1, 2, 4, 64)]
    assert steps[0] > steps[1] > steps[2] > steps[3]
    stage = planned("evaluator.workers=64", "rollout.engines=4").options[0].stages[0]
    assert stage.step.judging >= stage.step.generation


@pytest.mark.parametrize("seconds", [60.0, 90.0, 150.0])
def test_a_target_is_kept_and_a_stricter_one_costs_no_less(seconds: float) -> None:
    def of(target: float) -> Plan:
        return planned("rollout.engines=16", seconds=target, costs=prices(H200=3.0))

    plan, stricter = of(seconds), of(seconds * 0.8)
    assert step_of(plan) <= seconds
    assert plan.options[0].hour <= stricter.options[0].hour
    assert sum(plan.options[0].evaluators.values()) + 16 + 1 == plan.options[0].gpus


def test_no_type_alone_is_cheaper_than_the_mix() -> None:
    costs = prices(H200=3.0, L40S=0.9, A100=1.6)
    plan = planned("rollout.engines=16", types=("H200", "L40S", "A100"), seconds=60.0, costs=costs)
    assert len(plan.options) >= 3
    assert plan.options[0].hour == min(option.hour for option in plan.options)
    for number, _ in enumerate(plan.options):
        assert step_of(plan, number) <= 60.0
    alone = {option.name for option in plan.options}
    assert {"H200", "L40S", "A100"} <= alone


def test_types_are_compared_by_price_alone() -> None:
    with pytest.raises(ConfigError, match="no price of H200, L40S"):
        planned("rollout.engines=16", types=("H200", "L40S"), seconds=60.0)
    plan = planned("rollout.engines=16", types=("H200", "L40S"), seconds=60.0, costs=prices(H200=3.0))
    assert [option.name for option in plan.options] == ["H200"]
    assert any("price of L40S" in gap for gap in plan.missing)


def test_without_prices_a_single_type_is_counted_in_hours_of_gpus() -> None:
    plan = planned("evaluator.workers=4")
    assert plan.unit == "GPU-hours"
    assert plan.options[0].hour == plan.options[0].gpus == 6
    assert any("prices of GPUs" in gap for gap in plan.missing)


def test_nodes_are_rented_whole_and_no_more_than_there_are() -> None:
    whole = planned("cluster.gpu_nodes=['H200x8:0-4']", "evaluator.workers=7", costs=prices(H200=3.0))
    assert whole.options[0].nodes == {"H200x8": 2}
    assert whole.options[0].hour == pytest.approx(48.0)
    with pytest.raises(ConfigError, match="1 x 8 H200"):
        planned("cluster.gpu_nodes=['H200x8:0-1']", "evaluator.workers=7")
    with pytest.raises(ConfigError, match="no node with H200"):
        planned("cluster.gpu_nodes=['L40Sx8:0-4']")


def test_gpus_that_are_paid_for_judge() -> None:
    plan = planned("rollout.engines=4", "cluster.gpu_nodes=['H200x8:0-4']", seconds=400.0, costs=prices(H200=3.0))
    assert plan.options[0].nodes == {"H200x8": 1}
    assert plan.options[0].evaluators == {"H200": 8 - 4 - 1}


def test_a_target_that_nothing_can_keep_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.engines or learner\.ranks"):
        planned(seconds=20.0)
    with pytest.raises(ConfigError, match="longest candidates take"):
        planned("rollout.engines=512", "learner.ranks=64", seconds=3.5)
    with pytest.raises(ConfigError, match="take turns"):
        planned("placement.share=all", seconds=100.0)


def test_roles_in_turns_share_their_gpus() -> None:
    plan = planned("placement.share=all", "evaluator.workers=2", "rollout.engines=4", "learner.ranks=3")
    assert plan.options[0].nodes == {"H200x1": 4}
    assert planned("placement.share=training", "rollout.engines=4").options[0].gpus == 5


def test_a_plan_says_what_it_assumes_and_what_it_lacks() -> None:
    measured, unknown = planned(), planned(runs=())
    assert any("as fast as Qwen/Qwen2.5-Coder-0.5B-Instruct" in one for one in measured.assumed)
    assert any("each response is a candidate" in one for one in unknown.assumed)
    assert any("generation, learning" in one for one in unknown.missing)
    assert not any("generation, learning" in one for one in measured.missing)
    assert any("hours of sft" in one for one in measured.missing)
    other = planned(training="L40S")
    assert any("engines and learner are as fast on L40S as on H200" in one for one in other.assumed)


def test_a_type_of_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="how long B200 takes"):
        planned("evaluator.arch=B200", types=("B200",), training="B200")


ELSEWHERE = "evaluation.archs={A100: {workers: 2}, L40S: {workers: 1}, cpu: {}}"


def test_the_gpus_of_further_architectures_are_rented_too() -> None:
    plan = planned("evaluator.workers=4", "rollout.engines=2", ELSEWHERE, costs=prices(H200=3.0, A100=2.0, L40S=1.0))
    (option,) = plan.options
    assert option.evaluators == {"H200": 4}
    assert option.nodes == {"H200x1": 4 + 2 + 1, "A100x1": 2, "L40Sx1": 1}
    assert option.hour == pytest.approx(7 * 3.0 + 2 * 2.0 + 1.0)
    assert any("verdicts on A100, L40S, cpu" in note for note in plan.missing)


def test_a_further_architecture_without_a_price_is_named_if_types_are_compared() -> None:
    costs = prices(H200=3.0, A100=2.0)
    with pytest.raises(ConfigError, match=r"has no price of L40S, and types are compared by price"):
        planned("evaluation.archs={L40S: {workers: 1}}", types=("H200", "A100"), seconds=60.0, costs=costs)
    assert planned("evaluation.archs={L40S: {workers: 1}}", costs=costs).unit == "GPU-hours"
