"""Phases that learn nothing: what they ask for round by round, what they spend, and what they keep."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Outcome, Task, Verdict
from learners.records import Rollout
from orchestration.phases import Evolve, Vanilla
from orchestration.step.gathering import Gathering
from orchestration.step.records import Prompt, StepResult
from prompts.buffer import ExemplarBuffer
from prompts.render import LastProgram
from tests.orchestration.phases.phase_context import Context, Prompts

Judge = Callable[[Prompt, int], tuple[Outcome, float]]


class Told(Prompts):
    """Prompts that also tell which program they speak of."""

    def one_shot(self, task_id: str, last: LastProgram | None = None) -> Prompt:
        return Prompt(task_id, task_id, f"one shot{_told(last)}", (1,))

    def contrastive(self, task_id: str, below: float = math.inf, *, scores: bool = True, last: Any = None) -> Prompt:
        return Prompt(task_id, task_id, f"contrastive{_told(last)}", (1, 2))


def _told(last: LastProgram | None) -> str:
    return f", {last.outcome}: {last.source}, {last.message}{'; '.join(last.profile)}" if last else ""


class Pipeline:
    """Answers each prompt with programs that nobody wrote before, judged as a test says."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.asked: list[Gathering] = []
        self.prompts: list[list[Prompt]] = []
        self.programs = 0

    def run(self, wanted: Gathering) -> StepResult:
        result = StepResult(metrics={"measured": 0.0})
        self.asked.append(wanted)
        self.prompts.append(list(wanted.waiting))
        for prompt in wanted.waiting:
            for _ in range(wanted.samples):
                self.programs += 1
                outcome, speedup = self.judge(prompt, self.programs)
                made = Candidate.propose(prompt.task_id, f"x = {self.programs}", "test")
                speedups = {"eager": Estimate(speedup, speedup, speedup, 1)} if outcome is Outcome.OK else {}
                message = "" if outcome is Outcome.OK else f"error {self.programs}"
                result.candidates[made.digest] = made
                result.verdicts.put(Verdict(made.digest, made.task_id, "cpu", outcome, message, speedups=speedups))
                result.rollouts.append(
                    Rollout(
                        made.task_id, prompt.group, prompt.text, "", prompt.ids, (5, 6, 7), (), 0,
                        candidate_digest=made.digest, outcome=str(outcome),
                    )
                )  # fmt: skip
        result.metrics["measured"] = float(len(result.candidates))
        return result


def context_of(judge: Judge, **evolve: Any) -> Any:
    """A context with an empty buffer and two tasks of which one is held out."""
    config = RunConfig(name="test")
    for name, value in evolve.items():
        section = config.evolve if hasattr(config.evolve, name) else config.evolve.budget
        setattr(section, name, value)
    context: Any = Context(config, tasks=1)
    context.prompts = Told(ExemplarBuffer(config.buffer, "cpu", config.seed))
    context.held_out, context.endpoint = [Task("level2/held", 2, "held", "")], None
    context.pipeline = Pipeline(judge)
    return context


def take(phase: Any, steps: int = 99) -> list[StepResult]:
    """Takes the phase's steps as the driver does, to the last one."""
    results = []
    for step in phase.remaining(0):
        if step == steps:
            break
        result = phase.gather(step)
        for digest, verdict in result.verdicts.items():
            phase.context.prompts.buffer.add(result.candidates[digest], verdict, step)
        assert phase.training(step, result.rollouts)() == {}
        result.metrics |= phase.examine(step)
        results.append(result)
    return results


def right(prompt: Prompt, number: int) -> tuple[Outcome, float]:
    return Outcome.OK, 1.0 + number / 10


def texts(context: Any) -> list[list[str]]:
    return [[prompt.text for prompt in prompts] for prompts in context.pipeline.prompts]


def test_vanilla_asks_one_shot_about_every_task_in_every_round() -> None:
    context = context_of(right)
    context.config.vanilla.rounds, context.config.vanilla.samples = 3, 5
    take(Vanilla(context, 1))
    assert texts(context) == [["one shot"] * 2] * 3
    assert [asked.samples for asked in context.pipeline.asked] == [5] * 3
    assert {prompt.task_id for prompt in context.pipeline.prompts[0]} == {"level1/0", "level2/held"}
    seeds = [asked.seed_of("level1/0", index) for asked in context.pipeline.asked for index in range(5)]
    assert len(set(seeds)) == 15


def test_evolve_shows_exemplars_from_the_second_round_on() -> None:
    context = context_of(right, rounds=3)
    results = take(Evolve(context, 1))
    assert texts(context) == [["one shot"] * 2, ["contrastive"] * 2, ["contrastive"] * 2]
    best = [result.metrics["best_speedup"] for result in results]
    assert best == sorted(best)
    assert best[0] > 1.0
    assert results[-1].metrics["tasks_faster"] == 1.0


def test_a_task_without_a_right_program_keeps_its_one_shot_prompt() -> None:
    def judge(prompt: Prompt, number: int) -> tuple[Outcome, float]:
        return (Outcome.OK, 2.0) if prompt.task_id == "level1/0" else (Outcome.WRONG, 0.0)

    context = context_of(judge, rounds=2)
    results = take(Evolve(context, 1))
    kinds = {prompt.task_id: prompt.text for prompt in context.pipeline.prompts[1]}
    assert kinds == {"level1/0": "contrastive", "level2/held": "one shot"}
    assert results[-1].metrics["best_speedup"] == pytest.approx(math.sqrt(2.0))


def test_a_share_of_the_prompts_keeps_looking_elsewhere() -> None:
    context = context_of(right, rounds=30, samples=1, contrastive_share=0.5)
    take(Evolve(context, 1))
    shown = [text for of_round in texts(context)[1:] for text in of_round]
    assert 0.25 < shown.count("one shot") / len(shown) < 0.75


@pytest.mark.parametrize("evaluations", [1, 5, 8, 19])
def test_no_more_is_judged_than_the_budget_allows_and_no_less(evaluations: int) -> None:
    context = context_of(right, evaluations=evaluations, samples=4, rounds=50)
    phase = Evolve(context, 1)
    take(phase)
    assert context.pipeline.programs == evaluations == phase.spent.evaluations


def test_tokens_of_own_engines_count_after_each_round() -> None:
    context = context_of(right, tokens=50, samples=2, rounds=50)
    phase = Evolve(context, 1)
    results = take(phase)
    assert len(results) == 3, "four responses a round, of four tokens each, then of five"
    assert phase.spent.tokens == 4 * 4 + 2 * 4 * 5
    assert results[-1].metrics["spent/tokens"] == phase.spent.tokens


def test_a_resume_goes_on_with_what_was_spent() -> None:
    context = context_of(right, evaluations=12, samples=2, rounds=50)
    first = Evolve(context, 1)
    take(first, steps=2)
    again = Evolve(context, 1)
    again.restore(first.to_commit())
    for step in again.remaining(2):
        again.gather(step)
    assert context.pipeline.programs == 12


def test_a_message_of_a_failure_is_shown_until_a_right_program_has_a_profile() -> None:
    def judge(prompt: Prompt, number: int) -> tuple[Outcome, float]:
        return (Outcome.BUILD_ERROR, 0.0) if number <= 2 else (Outcome.OK, 2.0)

    context = context_of(judge, rounds=3, samples=1, feedback=["messages", "profile"])
    take(Evolve(context, 1))
    first, second, third = texts(context)
    assert first == ["one shot"] * 2
    assert sorted(second) == ["one shot, build error: x = 1, error 1", "one shot, build error: x = 2, error 2"]
    assert all(text.startswith("contrastive, ok: x = ") for text in third)


def test_without_feedback_prompts_speak_of_no_program() -> None:
    context = context_of(lambda *_: (Outcome.WRONG, 0.0), rounds=3)
    take(Evolve(context, 1))
    assert texts(context) == [["one shot"] * 2] * 3
