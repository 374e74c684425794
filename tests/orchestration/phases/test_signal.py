"""Options of contrastive RL for more signal: ablated exemplars, repair turns, shared advantages, a small reward."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.pool import ActorPool
from configs.schema import GuardConfig, RolloutConfig, RunConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Outcome
from learners.records import Rollout
from orchestration.phases import ContrastiveRl
from orchestration.phases.further import repair_of
from orchestration.step.pipeline import Pipeline
from orchestration.step.records import StepResult
from orchestration.step.review import Reviewer
from tests.orchestration.phases.phase_context import Context, step_result
from tests.orchestration.step.scripted import (
    SOFTMAX,
    Builder,
    Engine,
    Evaluator,
    digest_of_program,
    fenced,
    program,
)
from tests.orchestration.step.writing import make_writer

OK, WRONG = Outcome.OK, Outcome.WRONG


def contrastive(tasks: int = 3, **settings: Any) -> ContrastiveRl:
    config = RunConfig(name="test", seed=3)
    config.contrastive_rl.tasks_per_step = tasks
    for name, value in settings.items():
        setattr(config.contrastive_rl, name, value)
    return ContrastiveRl(Context(config, tasks), 1)  # type: ignore[arg-type]


def advantages(rollouts: list[Rollout]) -> list[float]:
    return [rollout.advantage or 0.0 for rollout in rollouts]


# The ablation of exemplars


def test_all_three_ablations_ask_for_the_same_tasks() -> None:
    tasks = []
    for exemplars, share in (("scores", 0.5), ("no_scores", 0.5), ("scores", 0.0)):
        phase = contrastive(6, exemplars=exemplars, contrastive_share=share)
        tasks.append([[prompt.task_id for prompt in phase.prompts(step)] for step in range(5)])
    assert tasks[0] == tasks[1] == tasks[2]


@pytest.mark.parametrize(("exemplars", "share"), [("scores", 1.0), ("no_scores", 1.0), ("scores", 0.0)])
def test_prompts_show_exemplars_with_scores_without_them_or_none(exemplars: str, share: float) -> None:
    config = RunConfig(name="test")
    config.contrastive_rl.exemplars, config.contrastive_rl.contrastive_share = exemplars, share
    context: Any = SimpleNamespace(config=config, tasks=[SOFTMAX], prompts=make_writer(config))
    (prompt,) = ContrastiveRl(context, 1).prompts(0)
    assert ("Implementation 1" in prompt.text) == bool(share)
    assert (", 1.62x:" in prompt.text or ", 2.18x:" in prompt.text or ", 2.94x:" in prompt.text) == (
        bool(share) and exemplars == "scores"
    )
    assert len(prompt.speedups) == (2 if share else 0)
    assert (None in prompt.speedups) == (exemplars == "no_scores")


# Duplicates


def repeated(result: StepResult, *indices: int) -> StepResult:
    """The step with rollouts by index, some of them several times."""
    result.rollouts = [result.rollouts[index] for index in indices]
    return result


def test_copies_of_a_program_share_its_advantage() -> None:
    step = [(OK, 2.0), (OK, 1.0), (WRONG, 0.0)]
    phase = contrastive(1, share_duplicates=True)
    result = repeated(step_result(step), 0, 0, 0, 1, 2)
    shared = advantages(phase.credit(result))
    once = advantages(contrastive(1).credit(step_result(step)))
    assert shared == pytest.approx([once[0] / 3] * 3 + once[1:])
    assert result.metrics["duplicate_rate"] == pytest.approx(2 / 5)
    plain = advantages(contrastive(1).credit(repeated(step_result(step), 0, 0, 0, 1, 2)))
    assert plain[0] != pytest.approx(shared[0])


def test_responses_without_a_program_are_duplicates_if_their_texts_are_equal() -> None:
    result = step_result([(OK, 2.0)])
    failed = replace(result.rollouts[0], candidate_digest=None, outcome="build_error")
    result.rollouts += [replace(failed, response=text) for text in ("no", "no", "none")]
    values = advantages(contrastive(1, share_duplicates=True).credit(result))
    assert values[1] == values[2] == pytest.approx(values[3] / 2)


# The small reward of right programs


def group_of(*kinds: tuple[Outcome, float, str]) -> StepResult:
    result = step_result([(outcome, speedup) for outcome, speedup, _ in kinds])
    pairs = zip(result.rollouts, kinds, strict=True)
    result.rollouts = [replace(rollout, copy_of=copy) for rollout, (_, _, copy) in pairs]
    return result


def test_right_programs_earn_a_little_where_none_is_faster_and_copies_never() -> None:
    result = group_of((OK, 0.9, ""), (OK, 1.0, "reference"), (OK, 0.8, "exemplar"), (WRONG, 0.0, ""))
    phase = contrastive(1, right_reward=0.1)
    phase.context.config.reward.worth = "beat_shown"
    credited = phase.credit(result)
    right, *others = advantages(credited)
    assert 0.0 < right < 0.2, "a tenth of what normalisation would give"
    assert all(value < 0.0 for value in others)
    assert [rollout.reward for rollout in credited] == [0.1, 0.0, 0.0, 0.0]
    watched = {name: value for name, value in result.metrics.items() if name.startswith("right_reward")}
    assert watched == {"right_reward/groups": 1.0, "right_reward/rate": 0.25, "right_reward/copies": 0.5}


@pytest.mark.parametrize("fast", ["", "exemplar"])
def test_nothing_is_earned_beside_a_faster_program(fast: str) -> None:
    kinds = ((OK, 0.9, ""), (OK, 1.6, fast), (WRONG, 0.0, ""))
    with_reward = contrastive(1, right_reward=0.1).credit(group_of(*kinds))
    without = contrastive(1).credit(group_of(*kinds))
    assert with_reward == without


def test_the_small_reward_is_off_by_default_and_needs_a_program_that_was_compared_with_its_prompt() -> None:
    kinds = ((OK, 0.9, ""), (WRONG, 0.0, ""))
    phase = contrastive(1)
    phase.context.config.reward.worth = "beat_shown"
    result = group_of(*kinds)
    assert advantages(phase.credit(result)) == [0.0, 0.0]
    assert not [name for name in result.metrics if name.startswith("right_reward")]
    phase = contrastive(1, right_reward=0.1)
    phase.context.config.reward.worth = "beat_shown"
    unknown = group_of(*kinds)
    unknown.rollouts = [replace(rollout, copy_of=None) for rollout in unknown.rollouts]
    assert advantages(phase.credit(unknown)) == [0.0, 0.0]


def test_a_suspect_stays_neutral_beside_the_small_reward() -> None:
    phase = contrastive(1, right_reward=0.1)
    phase.context.config.reward.worth = "beat_shown"
    credited = phase.credit(group_of((OK, 0.9, ""), (Outcome.SUSPECT, 0.0, ""), (WRONG, 0.0, "")))
    assert credited[1].advantage == 0.0
    assert credited[1].reward is None
    assert advantages(credited)[0] > 0 > advantages(credited)[2]


# Tasks by the variation of their groups


def first_drawn(phase: ContrastiveRl, draws: int = 300) -> Counter[str]:
    return Counter(phase.prompts(step)[0].task_id for step in range(draws))


def test_tasks_whose_rewards_vary_more_are_drawn_more_often() -> None:
    phase = contrastive(4, draw="variation")
    even, rare = [(OK, 1.0)] * 4 + [(WRONG, 0.0)] * 4, [(OK, 1.0)] + [(WRONG, 0.0)] * 7
    for _ in range(12):
        phase.credit(step_result(even, rare, [(WRONG, 0.0)] * 8))
    first = first_drawn(phase)
    assert first["level1/0"] > first["level1/1"] > first["level1/2"]
    assert first["level1/0"] > 1.5 * first["level1/3"], "more than a task of which nothing is known"
    drawn = {prompt.task_id for step in range(300) for prompt in phase.prompts(step)[:2]}
    assert len(drawn) == 4, "none is given up"
    resumed = contrastive(4, draw="variation")
    resumed.restore(json.loads(json.dumps(phase.memory)))
    assert first_drawn(resumed) == first


def test_what_a_task_was_like_is_forgotten_when_it_changes() -> None:
    phase = contrastive(2, draw="variation")
    even, solved = [(OK, 1.0)] * 4 + [(WRONG, 0.0)] * 4, [(OK, 1.0)] * 8
    for groups in [(even, solved)] * 12 + [(solved, even)] * 12:
        phase.credit(step_result(*groups))
    first = first_drawn(phase)
    assert first["level1/1"] > 3 * first["level1/0"]


def test_signals_of_an_older_commit_are_understood() -> None:
    phase = contrastive(2, draw="variation")
    phase.restore({"signals": {"level1/0": [9, 10], "level1/1": [0, 10]}})
    first = first_drawn(phase)
    assert first["level1/0"] > 5 * first["level1/1"]


# Repair turns


@pytest.fixture
def pools(local_ray: None) -> Iterator[Any]:
    made: list[ActorPool] = []

    def make(script: dict[str, list[str]], measured: dict[str, list[Any]]) -> list[ActorPool]:
        by_digest = {digest_of_program(name): entries for name, entries in measured.items()}
        made.extend(
            [
                ActorPool("rollout", lambda _: Engine.remote(script), 1, timeout=30.0),
                ActorPool("builder", lambda _: Builder.remote(), 1, timeout=30.0),
                ActorPool("evaluator", lambda _: Evaluator.remote(by_digest), 1, timeout=30.0, max_retries=0),
            ]
        )
        return made

    yield make
    for pool in made:
        pool.stop()


def repairing(pools: Any, folder: Path, repair_turns: int) -> tuple[ContrastiveRl, StepResult]:
    """A step of one group of two failing programs, a right one and none, and its repair turn."""
    config = RunConfig(name="test")
    rl = config.contrastive_rl
    rl.group_size, rl.repair_turns, rl.tasks_per_step, rl.contrastive_share = 4, repair_turns, 1, 0.0
    names = ("broken", "broken", "right", "mended")
    script = {
        SOFTMAX.id: [fenced(program(name)) for name in names[:3]] + ["Nothing."],
        f"{SOFTMAX.id}:repair": [fenced(program(name)) for name in ("mended", "broken", "mended", "worse")],
    }
    measured: dict[str, list[Any]] = {
        "broken": [(Outcome.RUNTIME_ERROR, "NameError: name 'F' is not defined")],
        "right": [(1.1, 0.01)],
        "mended": [(1.4, 0.01)],
        "worse": [Outcome.HACK],
    }
    reviewer = Reviewer(GuardConfig(), HackCases(folder / "hacks.parquet"), {SOFTMAX.id: SOFTMAX.source})
    pipeline = Pipeline([SOFTMAX], *pools(script, measured), RolloutConfig(), reviewer)
    context: Any = SimpleNamespace(
        config=config, tasks=[SOFTMAX], prompts=make_writer(config), pipeline=pipeline, memory_of=lambda _: {}
    )
    phase = ContrastiveRl(context, 1)
    return phase, phase.gather(0)


def test_a_failing_program_is_shown_again_with_its_message_and_the_answers_are_a_group(
    pools: Any, tmp_path: Path
) -> None:
    phase, result = repairing(pools, tmp_path, 1)
    first, repairs = result.rollouts[:4], result.rollouts[4:]
    assert [rollout.repairs for rollout in first] == [""] * 4
    assert {rollout.repairs for rollout in repairs} == {digest_of_program("broken")}
    assert Counter(rollout.outcome for rollout in repairs) == {"ok": 2, "runtime_error": 1, "hack": 1}
    assert all("> NameError: name 'F' is not defined" in rollout.prompt for rollout in repairs)
    assert all("NAME = 'broken'" in rollout.prompt for rollout in repairs)
    assert result.metrics["groups_repaired"] == 1.0
    assert (result.metrics["rollouts"], result.metrics["success_rate"]) == (4.0, 0.25), "of first answers alone"
    assert (result.metrics["repair/answers"], result.metrics["repair/success_rate"]) == (4.0, 0.5)
    credited = phase.credit(result)
    of_repairs = [rollout for rollout in credited if rollout.repairs]
    assert sum(advantages(of_repairs)) == pytest.approx(0.0, abs=1e-9)
    assert all((rollout.advantage or 0.0) > 0 for rollout in of_repairs if rollout.outcome == "ok")
    assert phase.memory["signals"][SOFTMAX.id][1] == 1, "a repair turn says nothing about how to draw the task"
    learner: Any = Context(RunConfig(name="test")).learner
    phase.context.learner = learner
    phase.training(0, credited)()
    assert len(learner.steps[0][1]) == 8, "trained like any other"


def test_without_repair_turns_a_failure_is_left_alone(pools: Any, tmp_path: Path) -> None:
    _, result = repairing(pools, tmp_path, 0)
    assert len(result.rollouts) == 4
    assert not [name for name in result.metrics if "repair" in name]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.HACK, Outcome.SUSPECT, Outcome.INFRA])
def test_what_the_guard_found_is_never_shown_for_repair(outcome: Outcome) -> None:
    result = step_result([(outcome, 1.0)])
    (digest,) = result.verdicts
    verdicts = {digest: replace(result.verdicts[digest], message="found out")}
    rollouts = [replace(result.rollouts[0], response=fenced("class ModelNew:\n    pass"))]
    prompts: Any = contrastive().context.prompts
    rng = contrastive().rng(0)
    assert repair_of(rollouts, verdicts, prompts, rng) is None
    failing = {digest: replace(verdicts[digest], outcome=WRONG)}
    prompt = repair_of(rollouts, failing, prompts, rng)
    assert prompt is not None
    assert prompt.text == "wrong: found out"
    second = repair_of([replace(rollouts[0], group="level1/0:2")], failing, prompts, rng)
    assert second is not None
    assert (prompt.group, second.group) == ("level1/0:repair", "level1/0:2:repair"), "each after its own group"
    assert repair_of(rollouts, {digest: replace(failing[digest], message="")}, prompts, rng) is None
