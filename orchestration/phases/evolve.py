"""Contrastive prompts with frozen weights (CUDA-L1 table 5): the buffer grows, and the policy sees what was found."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict

from evaluators.records import Task, Verdict
from orchestration.phases.context import PhaseContext
from orchestration.phases.frozen import Frozen
from orchestration.step.endpoint_engines import Paid
from orchestration.step.gathering import Gathering
from orchestration.step.lessons import REPAIRABLE
from orchestration.step.profile import Profiler
from orchestration.step.prompts import cut_message
from orchestration.step.records import Prompt, StepResult
from orchestration.step.spending import Spending
from prompts.render import LastProgram

_log = logging.getLogger(__name__)


class Evolve(Frozen):
    """Rounds over all tasks, until their number or the budget ends.

    A prompt shows exemplars of the task, drawn as in contrastive RL; without any it is one-shot. With
    `evolve.feedback` it also says what was measured of the task's latest program, or why that failed. The memory holds
    that program by task, and what was spent.
    """

    name = "evolve"

    def __init__(self, context: PhaseContext, cycle: int) -> None:
        super().__init__(context, cycle)
        self._profiler = Profiler(context.config.evaluator.arch)

    @property
    def steps(self) -> int:
        return self.context.config.evolve.rounds

    @property
    def samples(self) -> int:
        return self.context.config.evolve.samples

    @property
    def spent(self) -> Spending:
        """What the phase has spent so far."""
        return Spending(**self.memory.get("spent", {}))

    def remaining(self, done: int) -> Iterator[int]:
        """Ends once the budget is spent."""
        for step in range(done, self.steps):
            if spent := self.spent.exceeds(self.context.config.evolve.budget):
                _log.info("%s: ends after round %d: %s", self.key, step, spent)
                return
            yield step

    def gather(self, step: int) -> StepResult:
        """A round, of which no more is asked for than the budget allows."""
        config, before = self.context.config, self.spent
        tasks, samples = before.affordable(config.evolve.budget, self._order(step), self.samples)
        paid = self._allow(before)
        wanted = Gathering(
            self._prompts(step, tasks),
            samples=samples,
            temperature=config.rollout.temperature,
            preset=config.evaluator.preset,
            seed=self.seed(step, "samples"),
        )
        result = self.context.pipeline.run(wanted)
        spent = before + Spending(int(result.metrics["measured"]), *self._paid(result, paid))
        self.memory["spent"] = asdict(spent)
        result.metrics |= {f"spent/{name}": float(value) for name, value in asdict(spent).items()}
        self._remember(result)
        return result

    def prompts(self, step: int) -> list[Prompt]:
        return self._prompts(step, self.tasks)

    def _order(self, step: int) -> list[Task]:
        """The tasks, in an order of the round's own: a budget that ends in it leaves out others each time."""
        tasks = self.tasks
        return [tasks[index] for index in self.rng(step, "order").permutation(len(tasks))]

    def _prompts(self, step: int, tasks: list[Task]) -> list[Prompt]:
        share, rng = self.context.config.evolve.contrastive_share, self.rng(step, "kinds")
        contrasts = {task.id: bool(rng.random() < share) for task in self.tasks}
        return [self._prompt(task.id, shows_exemplars=contrasts[task.id]) for task in tasks]

    def _prompt(self, task_id: str, *, shows_exemplars: bool) -> Prompt:
        writer, known = self.context.prompts, self.memory.get("last", {}).get(task_id)
        last = LastProgram(**known) if known else None
        if shows_exemplars and writer.buffer.best(task_id) is not None:
            return writer.contrastive(task_id, last=last)
        return writer.one_shot(task_id, last if shows_exemplars else None)

    def _allow(self, spent: Spending) -> Paid:
        """Lets the endpoint, if there is one, spend what is left; returns what it was paid so far."""
        endpoint, budget = self.context.endpoint, self.context.config.evolve.budget
        if endpoint is None:
            return Paid()
        endpoint.allow(
            max(budget.tokens - spent.tokens, 1) if budget.tokens else 0,
            max(budget.money - spent.money, 1e-9) if budget.money else 0.0,
        )
        return endpoint.paid

    def _paid(self, result: StepResult, before: Paid) -> tuple[int, float]:
        """Tokens and money that a round took."""
        if self.context.endpoint is not None:
            paid = self.context.endpoint.paid.since(before)
            return paid.tokens, paid.money
        return sum(len(one.prompt_ids) + len(one.response_ids) for one in result.rollouts), 0.0

    def _remember(self, result: StepResult) -> None:
        """Keeps of each task the program that its next prompt speaks of (`evolve.feedback`)."""
        if not self.context.config.evolve.feedback:
            return
        tasks, last = {task.id: task for task in self.tasks}, dict(self.memory.get("last", {}))
        chosen: dict[str, Verdict] = {}
        for verdict in result.verdicts.values():
            if _rank(verdict) > _rank(chosen.get(verdict.task)):
                chosen[verdict.task] = verdict
        for task_id, verdict in chosen.items():
            source = result.candidates[verdict.candidate].source
            if (told := self._told(tasks[task_id], source, verdict)) is not None:
                last[task_id] = asdict(told)
        self.memory["last"] = last

    def _told(self, task: Task, source: str, verdict: Verdict) -> LastProgram | None:
        """What a prompt says of a program; None if `evolve.feedback` has nothing to say."""
        feedback, words = self.context.config.evolve.feedback, str(verdict.outcome).replace("_", " ")
        if verdict.succeeded and "profile" in feedback:
            return LastProgram(source, words, verdict.speedup, profile=self._profiler.lines(task, verdict))
        if verdict.outcome in REPAIRABLE and verdict.message and "messages" in feedback:
            return LastProgram(source, words, message=cut_message(verdict.message))
        return None


def _rank(verdict: Verdict | None) -> tuple[int, float]:
    """Which verdict of a round a prompt speaks of: the fastest right one, else a failure with a message."""
    if verdict is None:
        return 0, 0.0
    if verdict.succeeded:
        return 2, verdict.speedup or 0.0
    return int(verdict.outcome in REPAIRABLE and bool(verdict.message)), 0.0
