"""The phases' own decisions. A whole session would need every actor of a run, so a small one stands in: its buffer and
its config are real, its learner writes down what it is asked."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from configs.schema import RunConfig
from evaluators.records import Candidate, Outcome, Task, Verdict
from learners.records import Rollout, Sample
from orchestration import driver
from orchestration.phases import SelfSupervised, Sft
from orchestration.phases.base import train_in_batches
from orchestration.report.progress import Progress
from orchestration.run.commits import Commits
from orchestration.run.interrupt import Drain, EarlyEnd
from orchestration.run.retention import Retention
from orchestration.run.state import RunState, extend_schedule, record_changes, record_code
from orchestration.setup.tasks import RunTasks
from orchestration.step.constants import NEAREST_LESSONS, REFERENCES
from orchestration.step.records import Prompt, StepResult
from tests.orchestration.phases.phase_context import Context, Judge, Learner, judged, step_result

# Self-supervised learning


def rounds_taken(rates: list[float], phase: SelfSupervised) -> int:
    """How many rounds a phase takes whose success rates are these."""
    taken = 0
    for step in phase.remaining(len(list(phase.memory.get("success_rates", ())))):  # type: ignore[call-overload]
        right = round(rates[step] * 100)
        result = step_result([(Outcome.OK, 1.0)] * right + [(Outcome.WRONG, 0.0)] * (100 - right))
        phase.training(step, phase.credit(result))()
        taken += 1
    return taken


@pytest.fixture
def self_supervised() -> SelfSupervised:
    config = RunConfig(name="test")
    config.self_supervised.max_rounds, config.self_supervised.min_gain, config.self_supervised.patience = 6, 0.05, 1
    return SelfSupervised(Context(config), 1)  # type: ignore[arg-type]


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
    self_supervised.context.config.self_supervised.patience = 2
    assert rounds_taken([0.1, 0.3, 0.3, 0.5, 0.5, 0.5], self_supervised) == 6
    assert self_supervised.memory["success_rates"] == [0.1, 0.3, 0.3, 0.5, 0.5, 0.5]


def test_a_resumed_phase_that_had_stopped_rising_takes_no_more_rounds(self_supervised: SelfSupervised) -> None:
    rounds_taken([0.5, 0.1], self_supervised)
    resumed = SelfSupervised(self_supervised.context, 1)
    resumed.restore(json.loads(json.dumps(self_supervised.memory)))
    assert list(resumed.remaining(2)) == []


def test_what_we_failed_to_judge_is_no_failure_of_the_policy(self_supervised: SelfSupervised) -> None:
    result = step_result([(Outcome.OK, 1.0), (Outcome.WRONG, 0.0), (Outcome.INFRA, 0.0), (Outcome.INFRA, 0.0)])
    self_supervised.training(0, self_supervised.credit(result))()
    assert self_supervised.memory["success_rates"] == [0.5]


def test_a_right_program_that_is_too_slow_is_no_success(self_supervised: SelfSupervised) -> None:
    self_supervised.context.config.self_supervised.min_speedup = 1.05
    result = step_result([(Outcome.OK, 1.0), (Outcome.OK, 1.3), (Outcome.WRONG, 0.0), (Outcome.INFRA, 0.0)])
    credited = self_supervised.credit(result)
    assert [rollout.reward for rollout in credited] == [0.0, 1.0, 0.0, None]
    self_supervised.training(0, credited)()
    ((_, samples),) = self_supervised.context.learner.steps
    assert len(samples) == 1
    assert self_supervised.memory["success_rates"] == [pytest.approx(1 / 3)]


def test_only_successes_are_learnt_from(self_supervised: SelfSupervised) -> None:
    result = step_result([(Outcome.OK, 0.2), (Outcome.WRONG, 0.0), (Outcome.SUSPECT, 0.0), (Outcome.BUILD_ERROR, 0.0)])
    self_supervised.training(0, self_supervised.credit(result))()
    ((_, samples),) = self_supervised.context.learner.steps
    assert len(samples) == 1


# SFT


def sft(context: Context) -> Sft:
    phase = Sft(context, 1)  # type: ignore[arg-type]
    phase.restore(
        {"lessons": [{"task_id": f"level1/{i % 3}", "source": "x" * i, "analysis": "", "design": ""} for i in range(9)]}
    )
    return phase


def test_an_epoch_after_a_restart_is_the_epoch_that_would_have_come() -> None:
    config = RunConfig(name="test")
    config.sft.batch_size, config.sft.warmup_steps, config.sft.contrastive_share = 2, 7, 0.5
    straight, interrupted = Context(config), Context(config)
    phase = sft(straight)
    for step in (1, 2, 3):
        phase.training(step, [])()
    phase = sft(interrupted)
    for step in (1, 2, 3):
        phase.training(step, [])()
        memory = json.loads(json.dumps(phase.memory))
        phase = Sft(interrupted, 1)  # type: ignore[arg-type]
        phase.restore(memory)
    assert interrupted.learner.steps == straight.learner.steps
    rates = [rate for rate, _ in straight.learner.steps]
    assert rates[0] < max(rates)


class Sampler:
    """Stands in for the pipeline: samples responses whose tokens have the entropies given, one after the other."""

    def __init__(self, *entropies: float) -> None:
        self._entropies = iter(entropies)
        self.asked: list[tuple[list[str], int, float]] = []

    def sample(self, prompts: list[Prompt], samples: int, temperature: float, seed: Sequence[int]) -> list[Rollout]:
        self.asked.append(([prompt.task_id for prompt in prompts], samples, temperature))
        entropy = next(self._entropies)
        return [
            Rollout(prompt.task_id, prompt.group, "", "", (1,), (2, 3), (-entropy / 2, -1.5 * entropy), 0)
            for prompt in prompts
            for _ in range(samples)
        ]


def watched(entropies: list[float], held_out: int = 3, **settings: Any) -> Sft:
    config = RunConfig(name="test")
    config.sft.epochs = 4
    for name, value in settings.items():
        setattr(config.sft, name, value)
    context = Context(config)
    context.pipeline = Sampler(*entropies)  # type: ignore[attr-defined]
    context.held_out = [Task(f"level2/{index}", 2, str(index), "") for index in range(held_out)]  # type: ignore[attr-defined]
    return Sft(context, 1)  # type: ignore[arg-type]


def epochs_taken(phase: Sft) -> list[int]:
    taken = []
    for step in phase.remaining(0):
        taken.append(step)
        phase.examine(step)
    return taken


@pytest.mark.parametrize(
    ("bound", "steps"),
    [
        (0.0, [0, 1, 2, 3, 4]),
        (0.2, [0, 1, 2]),  # the second epoch leaves 0.15
        (0.9, [0, 1]),  # also a policy that begins below the bound learns for one epoch
    ],
)
def test_sft_ends_with_the_epoch_that_leaves_too_little_entropy(bound: float, steps: list[int]) -> None:
    phase = watched([0.8, 0.4, 0.15, 0.1, 0.05], min_entropy=bound)
    assert epochs_taken(phase) == steps
    resumed = Sft(phase.context, 1)
    resumed.restore(json.loads(json.dumps(phase.memory)))
    assert list(resumed.remaining(steps[-1] + 1)) == [], "a resume does not take it up again"


def test_entropy_is_that_of_responses_to_the_same_held_out_prompts_after_each_epoch() -> None:
    phase = watched([0.8, 0.4], entropy_samples=5)
    assert phase.examine(0) == {"held_out/token_entropy": pytest.approx(0.8)}
    assert phase.examine(1) == {"held_out/token_entropy": pytest.approx(0.4)}
    (tasks, samples, temperature), again = phase.context.pipeline.asked  # type: ignore[attr-defined]
    assert (sorted(tasks), samples, temperature) == (["level2/0", "level2/1", "level2/2"], 2, 1.0)
    assert again == (tasks, samples, temperature)
    few = watched([0.8], entropy_samples=2)
    few.examine(0)
    assert few.context.pipeline.asked[0][1] == 1  # type: ignore[attr-defined]
    for nothing in (watched([], held_out=0), watched([], entropy_samples=0)):
        assert nothing.examine(1) == {}


@pytest.mark.parametrize("worth", ["speedup", "gain", "beat_shown"])
def test_a_contrastive_lesson_stands_under_slower_programs_alone(worth: str) -> None:
    config = RunConfig(name="test")
    config.sft.contrastive_share, config.reward.worth = 1.0, worth
    context = Context(config, tasks=1)
    phase = Sft(context, 1)  # type: ignore[arg-type]
    fields = {"task_id": "level1/0", "analysis": "", "design": ""}
    phase.restore({"lessons": [{**fields, "source": source, "speedup": float(source)} for source in ("1.2", "2.4")]})
    seen: dict[str, set[float]] = {}
    contrastive = context.prompts.contrastive

    def watched(task_id: str, below: float = math.inf, *, scores: bool = True) -> Prompt:
        prompt = contrastive(task_id, below)
        seen.setdefault(str(below), set()).update(map(float, prompt.text.split()))
        return prompt

    context.prompts.contrastive = watched  # type: ignore[method-assign]
    for step in range(1, 20):
        phase.training(step, [])()
    assert seen == {"1.2": {0.8, 1.0}, "2.4": {0.8, 1.2, 1.9}}


def test_what_was_judged_of_teachers_programs_is_kept_before_all_are(tmp_path: Path) -> None:
    """A kill or an interrupt in the middle of many programs."""
    rows = [{"task_id": f"level1/{task}", "source": f"x = {index}"} for task in range(3) for index in range(30)]
    (tmp_path / "programs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = RunConfig(name="test")
    config.sft.teachers, config.sft.tries, config.sft.successes = [str(tmp_path / "programs.jsonl")], 30, 30
    context: Any = Context(config)
    kept: list[int] = []
    last: list[int] = []
    context.archive = SimpleNamespace(
        store=lambda key, step, result: kept.append(len(result.verdicts)),
        store_interrupted=lambda key, step, result: last.append(len(result.verdicts)),
    )
    judged_since = iter(range(5))

    def judge(candidate: Candidate) -> Verdict:
        if kept and next(judged_since, None) is None:
            raise KeyboardInterrupt
        return Verdict(candidate.digest, candidate.task_id, "cpu", Outcome.WRONG)

    context.pipeline = Judge(judge)
    with pytest.raises(KeyboardInterrupt):
        Sft(context, 1).gather(0)
    assert 0 < kept[0] < 90
    assert last == [kept[0] + 5], "with those since then"


def test_teachers_are_asked_until_enough_of_their_programs_are_fast_and_only_those_are_lessons(tmp_path: Path) -> None:
    rows = [{"task_id": "level1/0", "source": f"speedup = {speedup}"} for speedup in (0.4, 1.0, 1.3, 0.9, 1.6, 2.0)]
    (tmp_path / "programs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = RunConfig(name="test")
    config.sft.teachers, config.sft.tries, config.sft.successes = [str(tmp_path / "programs.jsonl")], 10, 2
    config.sft.min_speedup = 1.05
    context: Any = Context(config, tasks=1)
    context.archive = SimpleNamespace(store=lambda *_: None)

    context.pipeline = Judge(lambda one: judged(one.task_id, one.source, Outcome.OK, float(one.source.split()[-1]))[1])
    phase = Sft(context, 1)
    result = phase.gather(0)
    learnt = [lesson["source"] for lesson in phase.memory["lessons"]]  # type: ignore[attr-defined]
    assert learnt == ["speedup = 1.3", "speedup = 1.6"], "the sixth is asked for no more"
    assert len(result.verdicts) == 5, "the slow ones are judged, too"
    assert result.metrics["lessons"] == 2.0


def test_a_batch_that_was_too_long_leaves_the_mean_loss_of_the_others() -> None:
    groups = [[Sample((1,), (2,))], [Sample((1,), ())]]
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 1, "learning_rate": lambda _: 0.1}
    metrics = train_in_batches(Learner(), groups, **settings, rng=np.random.default_rng(0))
    assert metrics == {"loss": 1.0, "seconds": 2.0, "optimiser_steps": 4.0}


def test_skipped_optimiser_steps_are_summed_and_leave_the_mean_of_the_others() -> None:
    class Skipping(Learner):
        def train_cross_entropy(self, samples: list[Sample], learning_rate: float) -> dict[str, float]:
            made = super().train_cross_entropy(samples, learning_rate)
            return made | {"skipped_steps": 0.0} if len(self.steps) % 2 else {"seconds": 0.5, "skipped_steps": 1.0}

    groups = [[Sample((1,), (2, 3))] for _ in range(4)]
    rng = np.random.default_rng(0)
    metrics = train_in_batches(Skipping(), groups, epochs=1, batch_size=1, learning_rate=lambda _: 0.1, rng=rng)
    assert metrics == {"loss": 1.0, "seconds": 2.0, "skipped_steps": 2.0, "optimiser_steps": 4.0}


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
    assert extend_schedule(DONE, config_of(), config_of()) == DONE
    assert extend_schedule(DONE, config_of(), config_of(rl=3)) == DONE
    longer = extend_schedule(DONE, config_of(), config_of(rl=9))
    assert not longer.finished
    assert longer.step == 5
    assert longer.extra == {"completed": ["1-sft"], "assessed": ["base", "1-sft"]}
    for more, before in ((30.0, 20.0), (0.0, 20.0)):  # none is no limit
        assert extend_schedule(DONE, config_of(minutes=before), config_of(minutes=more)).extra == longer.extra
        assert extend_schedule(DONE, config_of(minutes=more), config_of(minutes=before)) == DONE
    again = extend_schedule(DONE, config_of(), config_of(cycles=2))
    assert not again.finished
    assert again.extra == DONE.extra


def test_a_longer_schedule_judges_constant_policies_again_since_its_later_lessons_change_them() -> None:
    assessed = DONE.extra["assessed"]
    judged = replace(DONE, extra={**DONE.extra, "assessed": [*assessed, NEAREST_LESSONS, REFERENCES]})
    assert extend_schedule(judged, config_of(), config_of(rl=3)) == judged
    assert extend_schedule(judged, config_of(), config_of(cycles=2)).extra["assessed"] == assessed
    assert extend_schedule(judged, config_of(), config_of(rl=9)).extra["assessed"] == ["base", "1-sft"]


def test_what_a_resumed_run_is_configured_otherwise_is_kept_once() -> None:
    state = RunState(phase="contrastive_rl", step=10, extra={"completed": ["1-sft"]})
    before, now = config_of(rl=24), config_of(rl=40)
    now.contrastive_rl.learning_rate = 3e-4
    assert record_changes(state, before, before) == state
    changed = record_changes(state, before, now)
    assert changed.extra["completed"] == ["1-sft"]
    at = {"phase": "1-contrastive_rl", "step": 10}
    assert changed.extra["changed"] == [
        {**at, "key": "contrastive_rl.steps", "before": "24", "after": "40"},
        {**at, "key": "contrastive_rl.learning_rate", "before": "1e-06", "after": "0.0003"},
    ]
    assert record_changes(changed, before, now) == changed, "killed before the new configuration was written"


def test_the_versions_of_the_code_are_kept_each_from_its_first_step_on() -> None:
    begun = record_code(RunState(), "one")
    assert record_code(begun, "one") == begun
    assert record_code(begun, "") == begun
    later = record_code(replace(begun, phase="contrastive_rl", step=10), "two")
    assert later.extra["code"] == [
        {"version": "one", "phase": "", "step": 0},
        {"version": "two", "phase": "1-contrastive_rl", "step": 10},
    ]


def test_a_phase_that_was_completed_but_not_assessed_is_assessed_and_not_repeated() -> None:
    """A kill may come between the two commits."""
    config = RunConfig(name="test")
    config.schedule.phases = ["sft"]
    context: Any = Context(config)
    state = RunState(phase="sft", step=5, extra={"completed": ["1-sft"], "assessed": ["base"]})
    measured: list[str] = []

    class Recorder:
        version = 7

        def __getattr__(self, _: str) -> Any:
            return lambda *_args, **_keywords: StepResult()

    recorder = Recorder()
    commits: Any = Commits(recorder, state, Retention())  # type: ignore[arg-type]
    session: Any = SimpleNamespace(
        config=config,
        context=lambda: context,
        progress=Progress(),
        pipeline=recorder,
        archive=recorder,
        roles=recorder,
        prompts=context.prompts,
        tasks=RunTasks(context.tasks, [], {}, context.tasks),
        commits=commits,
        commit_assessment=lambda stage, _: measured.append(stage),
        early_end=EarlyEnd(),
        drain=Drain(60.0),
        taught=lambda: [],
        mark=lambda *_: None,
    )
    commits.finish = lambda: measured.append("finished")
    driver.train(session)
    assert measured == ["1-sft", "finished"]
    assert context.learner.steps == []
