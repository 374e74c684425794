"""The phases' own decisions. A whole session would need every actor of a run, so a small one stands in: its buffer and
its config are real, its learner writes down what it is asked."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Outcome, Task, Verdict
from learners.records import Rollout, Sample
from orchestration import driver
from orchestration.gathering import Gathering, Prompt, StepResult
from orchestration.phases import ContrastiveRl, SelfSupervised, Sft
from orchestration.phases.base import train_in_batches
from orchestration.progress import Progress
from orchestration.run_directory import RunState
from orchestration.session import extended, noted
from prompts.buffer import ExemplarBuffer


class Learner:
    """Writes down the learning rates and samples of its steps."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, list[Sample]]] = []

    def train_cross_entropy(self, samples: list[Sample], learning_rate: float) -> dict[str, float]:
        self.steps.append((learning_rate, list(samples)))
        fits = any(sample.response_ids for sample in samples)
        return {"loss": 1.0, "seconds": 0.5} if fits else {"seconds": 0.5}

    def train_grpo(self, samples: list[Sample], learning_rate: float, *_: Any) -> dict[str, float]:
        self.steps.append((learning_rate, list(samples)))
        return {}


class Renderer:
    def response(self, source: str, analysis: str, design: str) -> str:
        return source


class Session:
    def __init__(self, config: RunConfig, tasks: int = 3) -> None:
        self.config = config
        self.tasks = [Task(f"level1/{index}", 1, str(index), "") for index in range(tasks)]
        self.assessed, self.held_out = self.tasks, []
        self.learner = Learner()
        self.renderer = Renderer()
        self.buffer = ExemplarBuffer(config.buffer, "cpu", config.seed)
        for task in self.tasks:
            for speedup in (0.8, 1.2, 1.9, 2.4):
                self.buffer.add(*judged(task.id, f"x = {speedup}", Outcome.OK, speedup), 0)

    def one_shot(self, task_id: str) -> Prompt:
        return Prompt(task_id, task_id, "one shot", (1,))

    def contrastive(self, task_id: str, below: float = math.inf) -> Prompt:
        exemplars = self.buffer.exemplars(task_id, "reference", below=below)
        return Prompt(task_id, task_id, " ".join(str(one.speedup) for one in exemplars), (1, 2))

    def encode_response(self, text: str) -> list[int]:
        return list(text.encode())


def judged(task_id: str, source: str, outcome: Outcome, speedup: float = 0.0) -> tuple[Candidate, Verdict]:
    candidate = Candidate.propose(task_id, source, "test")
    speedups = {"eager": Estimate(speedup, speedup, speedup, 1)} if outcome is Outcome.OK else {}
    return candidate, Verdict(candidate.digest, task_id, "cpu", outcome, speedups=speedups)


def step_result(*groups: list[tuple[Outcome, float]]) -> StepResult:
    """A step whose groups, one a task, have candidates of these outcomes and speed-ups."""
    result = StepResult()
    for task, group in enumerate(groups):
        for index, (outcome, speedup) in enumerate(group):
            candidate, verdict = judged(f"level1/{task}", f"x = {index}", outcome, speedup)
            result.candidates[candidate.digest], result.verdicts[candidate.digest] = candidate, verdict
            result.rollouts.append(
                Rollout(
                    f"level1/{task}", f"level1/{task}", "", "", (1,), (2,), (0.0,), 0,
                    candidate_digest=candidate.digest, outcome=str(outcome),
                )
            )  # fmt: skip
    return result


# Self-supervised learning


def rounds_taken(rates: list[float], phase: SelfSupervised) -> int:
    """How many rounds a phase takes whose success rates are these."""
    taken = 0
    for step in phase.remaining(len(list(phase.memory.get("success_rates", ())))):  # type: ignore[call-overload]
        right = round(rates[step] * 100)
        result = step_result([(Outcome.OK, 1.0)] * right + [(Outcome.WRONG, 0.0)] * (100 - right))
        phase.learn(step, phase.credit(result))
        taken += 1
    return taken


@pytest.fixture
def self_supervised() -> SelfSupervised:
    config = RunConfig(name="test")
    config.self_supervised.max_rounds, config.self_supervised.min_gain, config.self_supervised.patience = 6, 0.05, 1
    return SelfSupervised(Session(config), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rates", "rounds"),
    [
        ([0.1, 0.3, 0.5, 0.7, 0.8, 0.9], 6),  # rises to the end
        ([0.1, 0.3, 0.3, 0.9, 0.9, 0.9], 3),  # stands still
        ([0.1, 0.3, 0.34, 0.9, 0.9, 0.9], 3),  # rises by less than min_gain
        ([0.5, 0.1, 0.9, 0.9, 0.9, 0.9], 2),  # falls
    ],
)
def test_self_supervised_learning_stops_when_the_success_rate_stops_rising(
    self_supervised: SelfSupervised, rates: list[float], rounds: int
) -> None:
    assert rounds_taken(rates, self_supervised) == rounds


def test_patience_waits_for_a_better_round(self_supervised: SelfSupervised) -> None:
    self_supervised.session.config.self_supervised.patience = 2
    assert rounds_taken([0.1, 0.3, 0.3, 0.5, 0.5, 0.5], self_supervised) == 6
    assert self_supervised.memory["success_rates"] == [0.1, 0.3, 0.3, 0.5, 0.5, 0.5]


def test_a_resumed_phase_that_had_stopped_rising_takes_no_more_rounds(self_supervised: SelfSupervised) -> None:
    rounds_taken([0.5, 0.1], self_supervised)
    resumed = SelfSupervised(self_supervised.session, 1)
    resumed.restore(json.loads(json.dumps(self_supervised.memory)))
    assert list(resumed.remaining(2)) == []


def test_what_we_failed_to_judge_is_no_failure_of_the_policy(self_supervised: SelfSupervised) -> None:
    result = step_result([(Outcome.OK, 1.0), (Outcome.WRONG, 0.0), (Outcome.INFRA, 0.0), (Outcome.INFRA, 0.0)])
    self_supervised.learn(0, self_supervised.credit(result))
    assert self_supervised.memory["success_rates"] == [0.5]


def test_a_right_program_that_is_too_slow_is_no_success(self_supervised: SelfSupervised) -> None:
    self_supervised.session.config.self_supervised.min_speedup = 1.05
    result = step_result([(Outcome.OK, 1.0), (Outcome.OK, 1.3), (Outcome.WRONG, 0.0), (Outcome.INFRA, 0.0)])
    credited = self_supervised.credit(result)
    assert [rollout.reward for rollout in credited] == [0.0, 1.0, 0.0, None]
    self_supervised.learn(0, credited)
    ((_, samples),) = self_supervised.session.learner.steps
    assert len(samples) == 1
    assert self_supervised.memory["success_rates"] == [pytest.approx(1 / 3)]


def test_only_successes_are_learnt_from(self_supervised: SelfSupervised) -> None:
    result = step_result([(Outcome.OK, 0.2), (Outcome.WRONG, 0.0), (Outcome.SUSPECT, 0.0), (Outcome.BUILD_ERROR, 0.0)])
    self_supervised.learn(0, self_supervised.credit(result))
    ((_, samples),) = self_supervised.session.learner.steps
    assert len(samples) == 1


# Contrastive RL


def contrastive(tasks: int, tasks_per_step: int) -> ContrastiveRl:
    config = RunConfig(name="test", seed=3)
    config.contrastive_rl.tasks_per_step = tasks_per_step
    return ContrastiveRl(Session(config, tasks), 1)  # type: ignore[arg-type]


def tasks_of(phase: ContrastiveRl, step: int) -> list[str]:
    return [prompt.task_id for prompt in phase.prompts(step)]


def test_every_round_shows_every_task_once_in_another_order() -> None:
    phase = contrastive(tasks=6, tasks_per_step=2)
    rounds = [[task for step in range(start, start + 3) for task in tasks_of(phase, step)] for start in (0, 3, 6)]
    everything = sorted(task.id for task in phase.session.tasks)
    assert all(sorted(shown) == everything for shown in rounds)
    assert len({tuple(shown) for shown in rounds}) > 1


def test_a_step_across_two_rounds_shows_no_task_twice_and_no_task_is_missed() -> None:
    phase = contrastive(tasks=5, tasks_per_step=3)
    steps = [tasks_of(phase, step) for step in range(5)]  # three rounds
    assert all(len(set(step)) == len(step) for step in steps)
    counts = Counter(task for step in steps for task in step)
    assert set(counts) == {task.id for task in phase.session.tasks}
    assert all(2 <= count <= 3 for count in counts.values())
    assert len(tasks_of(contrastive(tasks=2, tasks_per_step=9), 0)) == 2


def test_a_step_that_is_done_again_after_a_restart_has_the_same_prompts() -> None:
    phase = contrastive(tasks=6, tasks_per_step=4)
    session: Any = phase.session
    phase.prompts(0)
    committed = session.buffer.to_table()
    lost = phase.prompts(1)
    session.buffer = ExemplarBuffer.from_table(committed, session.config.buffer, seed=99)
    assert ContrastiveRl(session, 1).prompts(1) == lost
    assert phase.prompts(1) != lost, "exemplars are drawn anew for every step"


def test_tasks_may_be_drawn_by_the_signal_that_their_groups_carried() -> None:
    phase = contrastive(tasks=6, tasks_per_step=2)
    phase.session.config.contrastive_rl.draw = "signal"
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
    phase.session.config.contrastive_rl.contrastive_share = 0.5
    texts = [[prompt.text == "one shot" for prompt in phase.prompts(step)] for step in range(40)]
    assert 80 <= sum(map(sum, texts)) <= 160
    assert [prompt.text == "one shot" for prompt in phase.prompts(7)] == texts[7]


def test_a_copy_of_what_its_prompt_shows_keeps_a_share_of_its_reward() -> None:
    phase = contrastive(tasks=1, tasks_per_step=1)
    phase.session.config.reward.copies = 0.25
    result = step_result([(Outcome.OK, 2.0), (Outcome.OK, 1.0), (Outcome.OK, 1.5), (Outcome.SUSPECT, 0.0)])
    copies = ("exemplar", "reference", "", "exemplar")
    rollouts = [replace(rollout, copy_of=of) for rollout, of in zip(result.rollouts, copies, strict=True)]
    assert phase.rewards(rollouts, result.verdicts) == [0.5, 0.25, 1.5, None]
    phase.session.config.reward.copies = 1.0
    assert phase.rewards(rollouts, result.verdicts) == [2.0, 1.0, 1.5, None]


def test_speedups_may_be_over_the_fastest_program_that_the_prompt_shows() -> None:
    phase = contrastive(tasks=1, tasks_per_step=1)
    result = step_result([(Outcome.OK, 2.0), (Outcome.OK, 3.0), (Outcome.OK, 1.5), (Outcome.WRONG, 0.0)])
    shown = (2.0, 2.0, 1.0, None)
    rollouts = [replace(rollout, fastest_shown=one) for rollout, one in zip(result.rollouts, shown, strict=True)]
    phase.session.config.reward.beat_exemplars = True
    assert phase.rewards(rollouts, result.verdicts) == [1.0, 1.5, 1.5, 0.0]
    phase.session.config.reward.beat_exemplars = False
    assert phase.rewards(rollouts, result.verdicts) == [2.0, 3.0, 1.5, 0.0]


def test_a_group_of_equal_rewards_has_no_advantage_and_a_suspect_is_neutral() -> None:
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
    phase.learn(0, rollouts)
    assert [sample.advantage for sample in phase.session.learner.steps[0][1]] == [slow, fast, doubtful]  # type: ignore[attr-defined]


class Pipeline:
    """Judges every group as the script says, and samples what is asked for in its place."""

    def __init__(self, rewards: dict[str, list[float]]) -> None:
        self.rewards = rewards
        self.begun: list[list[str]] = []
        self.sampled: list[str] = []

    def begin(self, gathering: Gathering) -> Gathering:
        self.begun.append([prompt.task_id for prompt in gathering.waiting])
        return gathering

    def forget(self) -> None:
        self.begun.clear()

    def finish(self, gathering: Gathering) -> StepResult:
        waiting, on_group = list(gathering.waiting), gathering.on_group
        assert on_group is not None
        while waiting:
            task_id = waiting.pop(0).task_id
            self.sampled.append(task_id)
            ok = [(Outcome.OK, speedup) for speedup in self.rewards[task_id]]
            group = step_result(*([[]] * int(task_id[-1])), ok)
            waiting += filter(None, [on_group(group.rollouts, group.verdicts)])
        return StepResult()


@pytest.mark.parametrize(("refill", "sampled"), [(0, 2), (1, 3), (2, 4), (9, 6)])
def test_groups_without_signal_are_replaced_by_groups_of_other_tasks(refill: int, sampled: int) -> None:
    phase = contrastive(tasks=6, tasks_per_step=2)
    phase.session.config.contrastive_rl.refill = refill
    phase.session.pipeline = Pipeline({task.id: [1.0, 1.0] for task in phase.session.tasks})  # type: ignore[assignment]
    result = phase.gather(0)
    asked = phase.session.pipeline.sampled  # type: ignore[attr-defined]
    assert (len(asked), len(set(asked))) == (sampled, sampled)
    assert result.metrics["groups_refilled"] == sampled - 2


def test_a_group_with_signal_is_not_replaced() -> None:
    phase = contrastive(tasks=6, tasks_per_step=2)
    phase.session.config.contrastive_rl.refill = 9
    first, second = tasks_of(phase, 0)
    rewards = {task.id: [1.0, 2.0] for task in phase.session.tasks} | {second: [1.0, 1.0]}
    phase.session.pipeline = Pipeline(rewards)  # type: ignore[assignment]
    assert phase.gather(0).metrics["groups_refilled"] == 1
    assert phase.session.pipeline.sampled[:2] == [first, second]  # type: ignore[attr-defined]


def test_tasks_whose_groups_carried_a_signal_come_first_and_a_resume_knows_them() -> None:
    phase = contrastive(tasks=3, tasks_per_step=1)
    ok, wrong = Outcome.OK, Outcome.WRONG
    for _ in range(30):
        phase.credit(step_result([(ok, 1.0), (ok, 2.0)], [(wrong, 0.0), (wrong, 0.0)]))
    again = ContrastiveRl(phase.session, 1)
    again.restore(json.loads(json.dumps(phase.memory)))
    tasks = [task.id for task in phase.session.tasks]
    drawn = [again._likely(tasks, np.random.default_rng(seed)) for seed in range(200)]
    assert drawn == [phase._likely(tasks, np.random.default_rng(seed)) for seed in range(200)]
    assert all(sorted(order) == tasks for order in drawn)
    first = Counter(order[0] for order in drawn)
    assert first[tasks[0]] > first[tasks[2]] > first[tasks[1]], "with a signal, unknown, without"
    assert Counter(order[2] for order in drawn)[tasks[1]] > 180


@pytest.mark.parametrize(("share", "kinds"), [(0.0, {"one shot"}), (0.5, {"one shot", "shown"}), (1.0, {"shown"})])
def test_groups_in_place_of_others_show_exemplars_as_often(share: float, kinds: set[str]) -> None:
    phase = contrastive(tasks=30, tasks_per_step=2)
    config = phase.session.config.contrastive_rl
    config.refill, config.contrastive_share = 20, share
    given: list[Prompt] = []

    class Remembering(Pipeline):
        def finish(self, gathering: Gathering) -> StepResult:
            ask = gathering.on_group
            assert ask is not None
            while (prompt := ask((), {})) is not None:
                given.append(prompt)
            return StepResult()

    phase.session.pipeline = Remembering({})  # type: ignore[assignment]
    phase.gather(0)
    assert len(given) == 20
    assert {"one shot" if prompt.text == "one shot" else "shown" for prompt in given} == kinds


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_so_many_steps_are_begun_ahead_of_the_learner(staleness: int) -> None:
    phase = contrastive(tasks=6, tasks_per_step=2)
    config = phase.session.config.contrastive_rl
    config.max_staleness, config.steps = staleness, 5
    phase.session.pipeline = Pipeline({task.id: [1.0, 2.0] for task in phase.session.tasks})  # type: ignore[assignment]
    begun: Any = phase.session.pipeline.begun  # type: ignore[attr-defined]
    seen = []
    for step in range(5):
        phase.gather(step)
        seen.append(len(begun))
    assert seen == [min(step + 1 + staleness, 5) for step in range(5)]
    assert begun == [tasks_of(phase, step) for step in range(5)]


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
            phase.learn(step, [])
            now[0] += 40.0  # a push of weights, a checkpoint
            committed.append(phase.to_commit())
            if len(steps) == most:
                break
        return steps

    phase = timed(2.5)
    assert taken(phase, 0) == [0, 1, 2]
    assert phase.session.pipeline.begun == []  # type: ignore[attr-defined]
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
    phase.session.config.contrastive_rl.steps, phase.session.config.contrastive_rl.minutes = 6, minutes
    phase.session.pipeline = Pipeline({})  # type: ignore[assignment]
    phase.session.pipeline.begun.append(["under way"])  # type: ignore[attr-defined]
    return phase


def test_running_statistics_survive_a_restart() -> None:
    first, second = ([[(Outcome.OK, 1.0), (Outcome.OK, 3.0)]], [[(Outcome.OK, 2.0), (Outcome.OK, 2.5)]])
    phase = contrastive(tasks=1, tasks_per_step=1)
    phase.credit(step_result(*first))
    resumed = contrastive(tasks=1, tasks_per_step=1)
    resumed.restore(json.loads(json.dumps(phase.memory)))
    assert resumed.credit(step_result(*second)) == phase.credit(step_result(*second))
    assert resumed.memory == phase.memory


# SFT


def sft(session: Session) -> Sft:
    phase = Sft(session, 1)  # type: ignore[arg-type]
    phase.restore(
        {"lessons": [{"task_id": f"level1/{i % 3}", "source": "x" * i, "analysis": "", "design": ""} for i in range(9)]}
    )
    return phase


def test_an_epoch_after_a_restart_is_the_epoch_that_would_have_come() -> None:
    config = RunConfig(name="test")
    config.sft.batch_size, config.sft.warmup_steps, config.sft.contrastive_share = 2, 7, 0.5
    straight, interrupted = Session(config), Session(config)
    phase = sft(straight)
    for step in (1, 2, 3):
        phase.learn(step, [])
    phase = sft(interrupted)
    for step in (1, 2, 3):
        phase.learn(step, [])
        memory = json.loads(json.dumps(phase.memory))
        phase = Sft(interrupted, 1)  # type: ignore[arg-type]
        phase.restore(memory)
    assert interrupted.learner.steps == straight.learner.steps
    rates = [rate for rate, _ in straight.learner.steps]
    assert rates[0] < max(rates)


@pytest.mark.parametrize("beat", [True, False])
def test_a_lesson_that_is_to_beat_exemplars_stands_under_slower_ones_alone(beat: bool) -> None:
    config = RunConfig(name="test")
    config.sft.contrastive_share, config.sft.beat_exemplars = 1.0, beat
    session = Session(config, tasks=1)
    phase = Sft(session, 1)  # type: ignore[arg-type]
    fields = {"task_id": "level1/0", "analysis": "", "design": ""}
    phase.restore({"lessons": [{**fields, "source": source, "speedup": float(source)} for source in ("1.2", "2.4")]})
    seen: dict[str, set[float]] = {}
    contrastive = session.contrastive

    def watched(task_id: str, below: float = math.inf) -> Prompt:
        prompt = contrastive(task_id, below)
        seen.setdefault(str(below), set()).update(map(float, prompt.text.split()))
        return prompt

    session.contrastive = watched  # type: ignore[method-assign]
    for step in range(1, 20):
        phase.learn(step, [])
    assert seen == ({"1.2": {0.8, 1.0}, "2.4": {0.8, 1.2, 1.9}} if beat else {"inf": {0.8, 1.2, 1.9, 2.4}})


def test_what_was_judged_of_teachers_programs_is_kept_before_all_are(tmp_path: Path) -> None:
    """A kill in the middle of many programs; the pipeline stands in, since only what is asked of it matters."""
    rows = [{"task_id": f"level1/{task}", "source": f"x = {index}"} for task in range(3) for index in range(30)]
    (tmp_path / "programs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = RunConfig(name="test")
    config.sft.teachers, config.sft.tries, config.sft.successes = [str(tmp_path / "programs.jsonl")], 30, 30
    session: Any = Session(config)
    kept: list[int] = []
    session.store = lambda key, step, result: kept.append(len(result.verdicts))

    class Killed:
        def evaluate(self, candidates: list[Candidate], preset: str) -> dict[str, Verdict]:
            if kept:
                raise KeyboardInterrupt
            return {one.digest: Verdict(one.digest, one.task_id, "cpu", Outcome.WRONG) for one in candidates}

    session.pipeline = Killed()
    with pytest.raises(KeyboardInterrupt):
        Sft(session, 1).gather(0)
    assert kept
    assert 0 < kept[0] < 90


def test_teachers_are_asked_until_enough_of_their_programs_are_fast_and_only_those_are_lessons(tmp_path: Path) -> None:
    rows = [{"task_id": "level1/0", "source": f"speedup = {speedup}"} for speedup in (0.4, 1.0, 1.3, 0.9, 1.6, 2.0)]
    (tmp_path / "programs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = RunConfig(name="test")
    config.sft.teachers, config.sft.tries, config.sft.successes = [str(tmp_path / "programs.jsonl")], 10, 2
    config.sft.min_speedup = 1.05
    session: Any = Session(config, tasks=1)
    session.store = lambda *_: None

    class Judge:
        def evaluate(self, candidates: list[Candidate], preset: str) -> dict[str, Verdict]:
            found = [(one, float(one.source.split()[-1])) for one in candidates]
            return {one.digest: judged(one.task_id, one.source, Outcome.OK, speedup)[1] for one, speedup in found}

    session.pipeline = Judge()
    phase = Sft(session, 1)
    result = phase.gather(0)
    learnt = [lesson["source"] for lesson in phase.memory["lessons"]]  # type: ignore[attr-defined]
    assert learnt == ["speedup = 1.3", "speedup = 1.6"], "the sixth is asked for no more"
    assert len(result.verdicts) == 5, "the slow ones are judged, too"
    assert result.metrics["lessons"] == 2.0


def test_a_batch_that_was_too_long_leaves_the_mean_loss_of_the_others() -> None:
    session = Session(RunConfig(name="test"))
    groups = [[Sample((1,), (2,))], [Sample((1,), ())]]
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 1, "learning_rate": lambda _: 0.1}
    metrics = train_in_batches(session, groups, **settings, rng=np.random.default_rng(0))  # type: ignore[arg-type]
    assert metrics == {"loss": 1.0, "seconds": 2.0, "optimiser_steps": 4.0}


# The schedule


def config_of(minutes: float = 0.0, **steps: int) -> RunConfig:
    config = RunConfig(name="test")
    config.contrastive_rl.minutes = minutes
    config.contrastive_rl.steps, config.schedule.cycles = steps.get("rl", 5), steps.get("cycles", 1)
    return config


DONE = RunState(
    phase="contrastive_rl",
    step=5,
    extra={"completed": ["1-sft", "1-contrastive_rl"], "assessed": ["base", "1-sft", "1-contrastive_rl"]},
    finished=True,
)


def test_a_longer_schedule_goes_on_where_a_finished_run_ended() -> None:
    assert extended(DONE, config_of(), config_of()) == DONE
    assert extended(DONE, config_of(), config_of(rl=3)) == DONE
    longer = extended(DONE, config_of(), config_of(rl=9))
    assert not longer.finished
    assert longer.step == 5
    assert longer.extra == {"completed": ["1-sft"], "assessed": ["base", "1-sft"]}
    for more, before in ((30.0, 20.0), (0.0, 20.0)):  # none is no limit
        assert extended(DONE, config_of(minutes=before), config_of(minutes=more)).extra == longer.extra
        assert extended(DONE, config_of(minutes=more), config_of(minutes=before)) == DONE
    again = extended(DONE, config_of(), config_of(cycles=2))
    assert not again.finished
    assert again.extra == DONE.extra


def test_what_a_resumed_run_is_configured_otherwise_is_kept_once() -> None:
    state = RunState(phase="contrastive_rl", step=10, extra={"completed": ["1-sft"]})
    before, now = config_of(rl=24), config_of(rl=40)
    now.contrastive_rl.learning_rate = 3e-4
    assert noted(state, before, before) == state
    changed = noted(state, before, now)
    assert changed.extra["completed"] == ["1-sft"]
    at = {"phase": "1-contrastive_rl", "step": 10}
    assert changed.extra["changed"] == [
        {**at, "key": "contrastive_rl.steps", "before": "24", "after": "40"},
        {**at, "key": "contrastive_rl.learning_rate", "before": "1e-06", "after": "0.0003"},
    ]
    assert noted(changed, before, now) == changed, "killed before the new configuration was written"


def test_a_phase_that_was_completed_but_not_assessed_is_assessed_and_not_repeated() -> None:
    """A kill may come between the two commits."""
    config = RunConfig(name="test")
    config.schedule.phases = ["sft"]
    session: Any = Session(config)
    session.state = RunState(phase="sft", step=5, extra={"completed": ["1-sft"], "assessed": ["base"]})
    session.progress = Progress()
    measured: list[str] = []

    class Recorder:
        version = 7

        def __getattr__(self, _: str) -> Any:
            return lambda *_args, **_keywords: StepResult()

    session.pipeline = session.run = session.tracker = session.roles = Recorder()
    session.store = lambda *_: None
    session.commit_assessment = measured.append
    driver.train(session)
    assert measured == ["1-sft"]
    assert session.learner.steps == []
