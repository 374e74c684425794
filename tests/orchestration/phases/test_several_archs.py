"""What phases reward and learn from if rewards are over several architectures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from configs.schema import ArchConfig, EvaluationConfig, RunConfig
from evaluators.records import Outcome
from orchestration.phases import ContrastiveRl, SelfSupervised
from orchestration.step.records import StepResult
from tests.orchestration.phases.phase_context import Context, step_result

ON_CPU = [(Outcome.OK, 2.0), (Outcome.OK, 3.0), (Outcome.WRONG, 0.0), (Outcome.OK, 1.5), (Outcome.OK, 4.0)]
ON_A100 = [(Outcome.OK, 1.0), (Outcome.WRONG, 0.0), (Outcome.OK, 5.0), (Outcome.SUSPECT, 0.0), (Outcome.HACK, 0.0)]


def judged_twice() -> StepResult:
    """Five programs of one group, judged on `cpu` and on an A100. What an L40S says of them counts for no reward."""
    result, elsewhere = step_result(ON_CPU), step_result(ON_A100)
    result.verdicts.elsewhere = {
        "A100": {digest: replace(verdict, arch="A100") for digest, verdict in elsewhere.verdicts.items()},
        "L40S": {digest: replace(verdict, outcome=Outcome.HACK) for digest, verdict in elsewhere.verdicts.items()},
    }
    return result


def config_of(reward: str) -> RunConfig:
    archs = {"A100": ArchConfig(share=1.0), "L40S": ArchConfig(share=0.5)}
    return RunConfig(name="test", seed=3, evaluation=EvaluationConfig(archs, reward))


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("first", [2.0, 3.0, 0.0, 1.5, 4.0]),
        ("mean", [1.5, 1.5, 2.5, None, 0.0]),
        ("worst", [1.0, 0.0, 0.0, None, 0.0]),
    ],
)
def test_a_reward_is_that_of_the_first_architecture_their_mean_or_the_worst(
    reward: str, expected: list[float | None]
) -> None:
    phase, result = ContrastiveRl(Context(config_of(reward)), 1), judged_twice()  # type: ignore[arg-type]
    assert phase.rewards(result.rollouts, result.verdicts) == expected


def test_a_response_without_a_program_earns_nothing_anywhere() -> None:
    phase, result = ContrastiveRl(Context(config_of("worst")), 1), judged_twice()  # type: ignore[arg-type]
    assert phase.rewards([replace(result.rollouts[0], candidate_digest=None)], result.verdicts) == [0.0]


@pytest.mark.parametrize(
    ("reward", "expected"), [("first", [1.0, 1.0, 0.0, 1.0, 1.0]), ("worst", [1.0, 0.0, 0.0, 0.0, 0.0])]
)
def test_a_success_is_right_on_every_architecture_that_counts(reward: str, expected: list[float]) -> None:
    phase = SelfSupervised(Context(config_of(reward)), 1)  # type: ignore[arg-type]
    assert [rollout.reward for rollout in phase.credit(judged_twice())] == expected


def test_a_program_that_we_failed_to_judge_on_one_architecture_is_neutral() -> None:
    phase, result = SelfSupervised(Context(config_of("worst")), 1), judged_twice()  # type: ignore[arg-type]
    on_a100 = result.verdicts.elsewhere["A100"]
    digest = result.rollouts[0].candidate_digest or ""
    on_a100[digest] = replace(on_a100[digest], outcome=Outcome.INFRA)
    assert phase.credit(result)[0].reward is None
    rewards = ContrastiveRl(Context(config_of("worst")), 1).rewards(result.rollouts, result.verdicts)  # type: ignore[arg-type]
    assert rewards[0] is None


def test_what_is_rehearsed_is_right_on_every_architecture_that_counts() -> None:
    config = config_of("worst")
    config.contrastive_rl.rehearsal = 1
    phase, result = ContrastiveRl(Context(config), 1), judged_twice()  # type: ignore[arg-type]
    phase.credit(result)
    assert [known["speedup"] for known in phase.memory["rehearsal"].values()] == [2.0]
