"""What contrastive RL learns again beside its own steps, so that it is not forgotten."""

import json
from dataclasses import replace
from typing import Any

from configs.schema import RunConfig
from evaluators.records import Outcome
from orchestration.phases import ContrastiveRl
from orchestration.step.records import StepResult, Verdicts
from tests.orchestration.phases.phase_context import Context, step_result

OK = Outcome.OK


def lesson(task: int, source: str, speedup: float | None) -> dict[str, Any]:
    return {"task_id": f"level1/{task}", "source": source, "analysis": "", "design": "", "speedup": speedup}


def rehearsing(tasks: int = 3, of: int = 9, lessons: list[dict[str, Any]] | None = None) -> ContrastiveRl:
    """The phase as it begins: no KL term, one-shot prompts alone, these lessons of SFT."""
    config = RunConfig(name="test")
    config.contrastive_rl.rehearsal, config.contrastive_rl.kl, config.contrastive_rl.contrastive_share = of, 0.0, 0.0
    config.contrastive_rl.learning_rate, config.reward.resolution = 0.5, 0.05
    context: Any = Context(config, tasks)
    context.memory = {"1-sft": {"lessons": lessons or []}}
    phase = ContrastiveRl(context, 1)
    phase.begin()
    return phase


def rehearsed(phase: ContrastiveRl, step: int = 0) -> list[str]:
    """The responses of the optimiser step that a step of the phase ends with; none where there is no such step."""
    learner: Any = phase.context.learner
    learner.steps.clear()
    phase.training(step, [])()
    assert all(rate == 0.5 for rate, _ in learner.steps)
    return [bytes(sample.response_ids).decode() for _, samples in learner.steps[1:] for sample in samples]


def answered(*responses: tuple[str, Outcome, float]) -> StepResult:
    """A step on the first task, with these responses, outcomes and speed-ups."""
    result = step_result([(outcome, speedup) for _, outcome, speedup in responses])
    texts = [text for text, _, _ in responses]
    result.rollouts = [replace(one, response=text) for one, text in zip(result.rollouts, texts, strict=True)]
    return result


def test_nothing_is_rehearsed_unless_asked_for() -> None:
    phase = rehearsing(of=0, lessons=[lesson(0, "fast", 2.0)])
    phase.credit(answered(("found", OK, 2.0)))
    assert rehearsed(phase) == []
    assert "rehearsal" not in phase.memory


def test_the_fastest_lesson_of_a_task_is_rehearsed_and_none_that_is_not_clearly_faster_than_the_reference() -> None:
    lessons = [lesson(0, "fast", 2.0), lesson(0, "fastest", 3.0), lesson(1, "slow", 1.02), lesson(2, "unknown", None)]
    assert rehearsed(rehearsing(lessons=lessons)) == ["fastest"]


def test_so_many_tasks_are_drawn_others_in_other_steps_and_a_redone_step_repeats_them() -> None:
    phase = rehearsing(tasks=6, of=2, lessons=[lesson(task, f"of {task}", 2.0) for task in range(6)])
    steps = [rehearsed(phase, step) for step in range(12)]
    assert all(len(set(step)) == 2 for step in steps)
    assert len({one for step in steps for one in step}) == 6
    assert rehearsed(phase, 5) == steps[5]


def test_what_the_policy_finds_takes_the_place_of_what_is_clearly_slower() -> None:
    phase = rehearsing(lessons=[lesson(0, "taught", 2.0)])
    phase.credit(answered(("as fast, by noise faster", OK, 2.08), ("wrong", Outcome.WRONG, 0.0)))
    assert rehearsed(phase) == ["taught"]
    phase.credit(answered(("found", OK, 2.2), ("better", OK, 2.6)))
    assert rehearsed(phase) == ["better"]


def test_it_goes_on_after_a_restart() -> None:
    phase = rehearsing()
    phase.credit(answered(("found", OK, 2.0), ("wrong", Outcome.WRONG, 0.0)))
    resumed = rehearsing()
    resumed.restore(json.loads(json.dumps(phase.to_commit())))
    assert rehearsed(resumed) == ["found"]


def test_the_next_cycle_rehearses_what_was_found_in_this_one() -> None:
    phase = rehearsing()
    phase.credit(answered(("found", OK, 2.0), ("wrong", Outcome.WRONG, 0.0)))
    context: Any = phase.context
    lessons = [lesson(0, "slower", 1.5), lesson(1, "taught", 1.5)]
    context.memory = {"1-contrastive_rl": phase.to_commit(), "2-sft": {"lessons": lessons}}
    following = ContrastiveRl(context, 2)
    following.begin()
    assert sorted(rehearsed(following)) == ["found", "taught"]


def test_a_hack_is_forgotten() -> None:
    phase = rehearsing()
    found = answered(("found", OK, 9.0), ("slower", OK, 1.0))
    phase.credit(found)
    assert rehearsed(phase) == ["found"]
    (hack, verdict), *_ = found.verdicts.items()
    phase.credit(StepResult(verdicts=Verdicts({hack: replace(verdict, outcome=Outcome.HACK)})))
    assert rehearsed(phase) == []


def test_its_loss_stands_in_the_metrics() -> None:
    phase = rehearsing(lessons=[lesson(0, "fast", 2.0)])
    assert phase.training(0, [])()["rehearsal_loss"] == 1.0
