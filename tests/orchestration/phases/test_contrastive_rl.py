"""What contrastive RL asks for, rewards and learns from."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from actors.log_fields import log_fields
from configs.schema import RunConfig
from evaluators.records import Outcome
from learners.records import Rollout, Sample
from orchestration.phases import ContrastiveRl
from orchestration.step.gathering import Gathering
from orchestration.step.records import Prompt, StepResult
from prompts.buffer import ExemplarBuffer
from tests.orchestration.phases.phase_context import Context, judged, step_result


def contrastive(tasks: int, tasks_per_step: int) -> ContrastiveRl:
    config = RunConfig(name="test", seed=3)
    config.contrastive_rl.tasks_per_step = tasks_per_step
    return ContrastiveRl(Context(config, tasks), 1)  # type: ignore[arg-type]


def tasks_of(phase: ContrastiveRl, step: int) -> list[str]:
    return [prompt.task_id for prompt in phase.prompts(step)]


def test_every_round_shows_every_task_once_in_another_order() -> None:
    phase = contrastive(tasks=6, tasks_per_step=2)
    rounds = [[task for step in range(start, start + 3) for task in tasks_of(phase, step)] for start in (0, 3, 6)]
    everything = sorted(task.id for task in phase.context.tasks)
    assert all(sorted(shown) == everything for shown in rounds)
    assert len({tuple(shown) for shown in rounds}) > 1


def test_a_step_across_two_rounds_shows_no_task_twice_and_no_task_is_missed() -> None:
    phase = contrastive(tasks=5, tasks_per_step=3)
    steps = [tasks_of(phase, step) for step in range(5)]  # three rounds
    assert all(len(set(step)) == len(step) for step in steps)
    counts = Counter(task for step in steps for task in step)
    assert set(counts) == {task.id for task in phase.context.tasks}
    assert all(2 <= count <= 3 for count in counts.values())
    assert len(tasks_of(contrastive(tasks=2, tasks_per_step=9), 0)) == 2


def test_a_step_that_is_done_again_after_a_restart_has_the_same_prompts() -> None:
    phase = contrastive(tasks=6, tasks_per_step=4)
    context: Any = phase.context
    phase.prompts(0)
    committed = context.prompts.buffer.to_table()
    lost = phase.prompts(1)
    context.prompts.buffer = ExemplarBuffer.from_table(committed, context.config.buffer, seed=99)
    assert ContrastiveRl(context, 1).prompts(1) == lost
    assert phase.prompts(1) != lost, "exemplars are drawn anew for every step"


def test_tasks_may_be_drawn_by_the_signal_that_their_groups_carried() -> None:
    phase = contrastive(tasks=6, tasks_per_step=2)
    phase.context.config.contrastive_rl.draw = "signal"
    first = Counter(task for step in range(60) for task in tasks_of(phase, step))
    assert len(first) == 6, "none is left out"
    assert min(first.values()) > 8
    ok, wrong = Outcome.OK, Outcome.WRONG
    for _ in range(10):
        phase.credit(step_result(*([[(ok, 1.0), (ok, 2.0)]] * 2), *([[(wrong, 0.0), (wrong, 0.0)]] * 4)))
    later = Counter(task for step in range(60) for task in tasks_of(phase, step))
    assert sum(later.values()) == 120
    assert later["level1/0"] + later["level1/1"] > 80
    assert tasks_of(phase, 3) == tasks_of(phase, 3)


def test_a_share_of_the_prompts_shows_exemplars_and_a_redone_step_repeats_which() -> None:
    phase = contrastive(tasks=6, tasks_per_step=6)
    phase.context.config.contrastive_rl.contrastive_share = 0.5
    texts = [[prompt.text == "one shot" for prompt in phase.prompts(step)] for step in range(40)]
    assert 80 <= sum(map(sum, texts)) <= 160
    assert [prompt.text == "one shot" for prompt in phase.prompts(7)] == texts[7]


def shown_by(phase: ContrastiveRl) -> set[float]:
    """The speed-ups of all exemplars in many steps."""
    return {float(one) for step in range(40) for prompt in phase.prompts(step) for one in prompt.text.split()}


def test_the_best_program_may_be_hidden_so_that_what_is_shown_can_be_beaten() -> None:
    phase = contrastive(tasks=3, tasks_per_step=3)
    assert shown_by(phase) == {0.8, 1.2, 1.9, 2.4}, "the reference has no place beside four"
    phase.context.config.reward.worth = "beat_shown"
    assert shown_by(phase) == {0.8, 1.2, 1.9}
    phase.context.config.reward.resolution = 0.3
    assert shown_by(phase) == {0.8, 1.2}, "1.9 is not slower by a step"


def test_where_nothing_is_faster_than_the_reference_it_is_shown() -> None:
    phase = contrastive(tasks=1, tasks_per_step=1)
    phase.context.config.reward.worth = "beat_shown"
    phase.context.prompts.buffer = ExemplarBuffer(phase.context.config.buffer, "cpu", 0)
    assert shown_by(phase) == {1.0}
    phase.context.prompts.buffer.add(*judged("level1/0", "x = 1", Outcome.OK, 0.9), 0)
    assert shown_by(phase) == {0.9, 1.0}


def test_a_copy_of_what_its_prompt_shows_keeps_a_share_of_its_reward() -> None:
    phase = contrastive(tasks=1, tasks_per_step=1)
    phase.context.config.reward.worth = "gain"
    result = step_result([(Outcome.OK, 2.0), (Outcome.OK, 1.0), (Outcome.OK, 1.5), (Outcome.SUSPECT, 0.0)])
    copies = ("exemplar", "reference", "", "exemplar")
    rollouts = [replace(rollout, copy_of=of) for rollout, of in zip(result.rollouts, copies, strict=True)]
    assert phase.rewards(rollouts, result.verdicts) == [pytest.approx(0.22), pytest.approx(0.02), 0.6, None]
    phase.context.config.reward.worth = "speedup"
    assert phase.rewards(rollouts, result.verdicts) == [2.0, 1.0, 1.5, None]


def test_speedups_may_be_over_the_fastest_program_that_the_prompt_shows() -> None:
    phase = contrastive(tasks=1, tasks_per_step=1)
    result = step_result([(Outcome.OK, 2.0), (Outcome.OK, 3.0), (Outcome.OK, 1.5), (Outcome.WRONG, 0.0)])
    shown = (2.0, 2.0, 1.0, None)
    rollouts = [replace(rollout, fastest_shown=one) for rollout, one in zip(result.rollouts, shown, strict=True)]
    phase.context.config.reward.worth = "beat_shown"
    assert phase.rewards(rollouts, result.verdicts) == [0.0, 0.5, 0.5, 0.0]
    phase.context.config.reward.worth = "speedup"
    assert phase.rewards(rollouts, result.verdicts) == [2.0, 3.0, 1.5, 0.0]


@pytest.mark.parametrize("normaliser", ["all", "signal"])
def test_a_group_of_equal_rewards_has_no_advantage_and_a_suspect_is_neutral(normaliser: str) -> None:
    ok, wrong, suspect = Outcome.OK, Outcome.WRONG, Outcome.SUSPECT
    phase = contrastive(tasks=3, tasks_per_step=3)
    result = step_result(
        [(ok, 2.0), (ok, 2.0), (ok, 2.0)], [(wrong, 0.0), (ok, 3.0), (suspect, 0.0)], [(wrong, 0.0), (suspect, 0.0)]
    )
    rollouts = phase.credit(result)
    assert [rollout.advantage for rollout in rollouts[:3]] == [0.0, 0.0, 0.0]
    slow, fast, doubtful = (rollout.advantage for rollout in rollouts[3:6])
    assert slow is not None
    assert fast is not None
    assert slow < 0 < fast
    assert doubtful == 0.0
    assert rollouts[5].reward is None
    assert [rollout.advantage for rollout in rollouts[6:]] == [0.0, 0.0]
    assert result.metrics["groups_with_signal"] == pytest.approx(1 / 3)
    assert result.metrics["reward"] == pytest.approx((3 * 2.0 + 0.0 + 3.0 + 0.0) / 6)
    phase.context.config.contrastive_rl.normaliser = normaliser
    phase.training(0, rollouts)()
    samples: list[Sample] = phase.context.learner.steps[0][1]  # type: ignore[attr-defined]
    carried = [(slow, True), (fast, True), (doubtful, True)]
    expected = carried if normaliser == "signal" else [*[(0.0, False)] * 3, *carried, *[(0.0, False)] * 2]
    assert [(sample.advantage, sample.has_signal) for sample in samples] == expected


def test_two_groups_of_one_task_have_advantages_of_their_own() -> None:
    """Each group is centred by itself; the running statistics are the task's."""
    ok, wrong = Outcome.OK, Outcome.WRONG
    result = step_result([(ok, 2.0), (ok, 3.0), (wrong, 0.0), (wrong, 0.0), (ok, 1.0)])
    groups = ["level1/0", "level1/0", "level1/0:2", "level1/0:2", "level1/0:2"]
    result.rollouts = [replace(one, group=group) for one, group in zip(result.rollouts, groups, strict=True)]
    phase = contrastive(tasks=1, tasks_per_step=1)
    slow, fast, *others = (rollout.advantage or 0.0 for rollout in phase.credit(result))
    assert (slow, fast) == (pytest.approx(-1.0), pytest.approx(1.0))
    assert others == pytest.approx([-(0.5**0.5), -(0.5**0.5), 2**0.5])
    assert phase.memory["signals"]["level1/0"][1] == 2


class Pipeline:
    """Judges every group as the script says, and samples what is asked for in its place."""

    def __init__(self, rewards: dict[str, list[float]]) -> None:
        self.rewards = rewards
        self.begun: list[list[str]] = []
        self.sampled: list[str] = []

    def begin(self, gathering: Gathering) -> Gathering:
        self.begun.append([prompt.task_id for prompt in gathering.waiting])
        return gathering

    def begin_again(self, gathering: Gathering, rollouts: Sequence[Rollout]) -> Gathering:
        assert not list(gathering.record_earlier(rollouts))
        return gathering

    def forget(self) -> None:
        self.begun.clear()

    def finish(self, gathering: Gathering) -> StepResult:
        waiting, on_group = list(gathering.waiting), gathering.on_group or (lambda *_: ())
        while waiting:
            task_id = waiting.pop(0).task_id
            self.sampled.append(task_id)
            ok = [(Outcome.OK, speedup) for speedup in self.rewards[task_id]]
            group = step_result(*([[]] * int(task_id[-1])), ok)
            waiting += on_group(group.rollouts, group.verdicts)
        return StepResult()


@pytest.mark.parametrize(
    ("draw", "tasks_per_step", "sampled"),
    [("rounds", 2, 2), ("signal", 8, 8), ("replace", 2, 3), ("replace", 7, 8), ("replace", 8, 10), ("replace", 11, 12)],
)
def test_groups_without_signal_are_replaced_by_groups_of_other_tasks(
    draw: str, tasks_per_step: int, sampled: int
) -> None:
    """At most a quarter of a step's groups, but at least one, as long as there are other tasks."""
    phase = contrastive(tasks=12, tasks_per_step=tasks_per_step)
    phase.context.config.contrastive_rl.draw = draw
    phase.context.pipeline = Pipeline({task.id: [1.0, 1.0] for task in phase.context.tasks})  # type: ignore[assignment]
    result = phase.gather(0)
    asked = phase.context.pipeline.sampled  # type: ignore[attr-defined]
    assert (len(asked), len(set(asked))) == (sampled, sampled)
    assert result.metrics["groups_refilled"] == sampled - tasks_per_step


def test_a_group_with_signal_is_not_replaced() -> None:
    phase = contrastive(tasks=12, tasks_per_step=8)
    phase.context.config.contrastive_rl.draw = "replace"
    first, second, *_ = tasks_of(phase, 0)
    rewards = {task.id: [1.0, 2.0] for task in phase.context.tasks} | {second: [1.0, 1.0]}
    phase.context.pipeline = Pipeline(rewards)  # type: ignore[assignment]
    assert phase.gather(0).metrics["groups_refilled"] == 1
    assert phase.context.pipeline.sampled[:2] == [first, second]  # type: ignore[attr-defined]


def test_tasks_whose_groups_carried_a_signal_come_first_and_a_resume_knows_them() -> None:
    phase = contrastive(tasks=3, tasks_per_step=3)
    phase.context.config.contrastive_rl.draw = "signal"
    ok, wrong = Outcome.OK, Outcome.WRONG
    for _ in range(30):
        phase.credit(step_result([(ok, 1.0), (ok, 2.0)], [(wrong, 0.0), (wrong, 0.0)]))
    again = ContrastiveRl(phase.context, 1)
    again.restore(json.loads(json.dumps(phase.memory)))
    tasks = [task.id for task in phase.context.tasks]
    drawn = [again._draw.of_step(0, np.random.default_rng(seed)) for seed in range(200)]
    assert drawn == [phase._draw.of_step(0, np.random.default_rng(seed)) for seed in range(200)]
    assert all(sorted(order) == tasks for order in drawn)
    first = Counter(order[0] for order in drawn)
    assert first[tasks[0]] > first[tasks[2]] > first[tasks[1]], "with a signal, unknown, without"
    assert Counter(order[2] for order in drawn)[tasks[1]] > 180


@pytest.mark.parametrize(("share", "kinds"), [(0.0, {"one shot"}), (0.5, {"one shot", "shown"}), (1.0, {"shown"})])
def test_groups_in_place_of_others_show_exemplars_as_often(share: float, kinds: set[str]) -> None:
    phase = contrastive(tasks=100, tasks_per_step=80)
    config = phase.context.config.contrastive_rl
    config.draw, config.contrastive_share = "replace", share
    given: list[Prompt] = []

    class Remembering(Pipeline):
        def finish(self, gathering: Gathering) -> StepResult:
            ask = gathering.on_group
            assert ask is not None
            while prompts := ask((), {}):
                given.extend(prompts)
            return StepResult()

    phase.context.pipeline = Remembering({})  # type: ignore[assignment]
    phase.gather(0)
    assert len(given) == 20
    assert {"one shot" if prompt.text == "one shot" else "shown" for prompt in given} == kinds


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_so_many_steps_are_begun_ahead_of_the_learner(staleness: int) -> None:
    phase = contrastive(tasks=6, tasks_per_step=2)
    config = phase.context.config.contrastive_rl
    config.max_staleness, config.steps = staleness, 5
    phase.context.pipeline = Pipeline({task.id: [1.0, 2.0] for task in phase.context.tasks})  # type: ignore[assignment]
    begun: Any = phase.context.pipeline.begun  # type: ignore[attr-defined]
    seen = []
    for step in range(5):
        phase.gather(step)
        seen.append(len(begun))
    assert seen == [min(step + 1 + staleness, 5) for step in range(5)]
    assert begun == [tasks_of(phase, step) for step in range(5)]


def test_what_is_asked_ahead_is_logged_under_its_own_step() -> None:
    phase = contrastive(tasks=6, tasks_per_step=2)
    config = phase.context.config.contrastive_rl
    config.max_staleness, config.steps = 2, 4
    phase.context.pipeline = Pipeline({task.id: [1.0] for task in phase.context.tasks})  # type: ignore[assignment]
    with log_fields(phase="1-contrastive_rl", step=0):
        phase.gather(0)
    fields = {step: gathering.log_fields for step, (gathering, _) in phase._under_way.items()}
    assert fields == {step: {"phase": "1-contrastive_rl", "step": step} for step in (1, 2)}


@pytest.mark.parametrize(("draw", "repairs", "kept"), [("rounds", 0, [1, 2]), ("replace", 0, []), ("rounds", 1, [])])
def test_a_resume_samples_nothing_again_that_was_sampled_ahead(draw: str, repairs: int, kept: list[int]) -> None:
    """Further prompts depend on verdicts to come, so steps that may have some are sampled again."""
    phase = contrastive(tasks=6, tasks_per_step=2)
    config = phase.context.config.contrastive_rl
    config.max_staleness, config.steps, config.draw, config.repair_turns = 2, 4, draw, repairs
    phase.context.pipeline = Pipeline({task.id: [1.0] for task in phase.context.tasks})  # type: ignore[assignment]
    phase.gather(0)
    assert phase.ahead() == {}, "their responses have not come"
    for step, (gathering, _) in phase._under_way.items():
        gathering.waiting.clear()
        rollouts = [Rollout("level1/0", f"of {step}", "", "text", (1,), (2,), (0.0,), 0, outcome="build_error")]
        assert not list(gathering.record_earlier(rollouts))
    ahead = phase.ahead()
    assert [(step, [one.group for one in rollouts]) for step, rollouts in ahead.items()] == [
        (step, [f"of {step}"]) for step in kept
    ]
    resumed = ContrastiveRl(phase.context, 1)
    resumed.restore(phase.to_commit(), ahead)
    resumed.context.pipeline.begun.clear()  # type: ignore[attr-defined]
    assert resumed.ahead() == ahead
    resumed.gather(1)
    assert len(resumed.context.pipeline.begun) == 3 - len(kept)  # type: ignore[attr-defined]


def test_contrastive_rl_ends_after_its_minutes_those_before_a_resume_included(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps of a minute each, on a clock of the test's own; what came after the last commit is not counted."""
    now = [0.0]
    committed: list[dict[str, object]] = []
    monkeypatch.setattr("orchestration.phases.contrastive_rl.time.monotonic", lambda: now[0])

    def taken(phase: ContrastiveRl, done: int, most: int = 9) -> list[int]:
        steps = []
        for step in phase.remaining(done):
            steps.append(step)
            now[0] += 20.0
            phase.training(step, [])()
            now[0] += 40.0  # a push of weights, a checkpoint
            committed.append(phase.to_commit())
            if len(steps) == most:
                break
        return steps

    phase = timed(2.5)
    assert taken(phase, 0) == [0, 1, 2]
    assert phase.context.pipeline.begun == []  # type: ignore[attr-defined]
    assert taken(timed(0.0), 0) == list(range(6))

    phase = timed(2.5)
    assert taken(phase, 0, most=1) == [0]
    now[0] += 1000.0
    resumed = timed(2.5)
    resumed.restore(json.loads(json.dumps(committed[-1])))
    assert taken(resumed, 1) == [1, 2]
    assert committed[-1]["seconds"] == 180.0


def timed(minutes: float) -> ContrastiveRl:
    phase = contrastive(tasks=6, tasks_per_step=2)
    phase.context.config.contrastive_rl.steps, phase.context.config.contrastive_rl.minutes = 6, minutes
    phase.context.pipeline = Pipeline({})  # type: ignore[assignment]
    phase.context.pipeline.begun.append(["under way"])  # type: ignore[attr-defined]
    return phase


def test_running_statistics_survive_a_restart() -> None:
    first, second = ([[(Outcome.OK, 1.0), (Outcome.OK, 3.0)]], [[(Outcome.OK, 2.0), (Outcome.OK, 2.5)]])
    phase = contrastive(tasks=1, tasks_per_step=1)
    phase.credit(step_result(*first))
    resumed = contrastive(tasks=1, tasks_per_step=1)
    resumed.restore(json.loads(json.dumps(phase.memory)))
    assert resumed.credit(step_result(*second)) == phase.credit(step_result(*second))
    assert resumed.memory == phase.memory
