"""Everything one run holds: its directory, tasks, actors, buffer, tracker and state. The driver and the phases use it.

Opening a session resumes what the run directory holds; committing makes everything up to here survive a kill.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from configs.load import ConfigError, changed_keys, may_change
from configs.schema import RunConfig
from evaluators.guard.cases import HackCases
from evaluators.guard.copies import is_copy
from evaluators.records import Candidate, Outcome, Verdict
from evaluators.reward import FASTER
from evaluators.tasks import program_source
from learners.policy import encode_prompt, encode_response, load_tokenizer
from learners.records import Rollout
from orchestration.fleet.placement import LEARNER
from orchestration.fleet.roles import Roles
from orchestration.run.directory import RunDirectory, RunDirectoryError
from orchestration.run.interrupt import EarlyEnd
from orchestration.run.state import RunState, extended, noted
from orchestration.run.tracking import Tracker
from orchestration.setup.earlier_verdicts import check_verdicts_of
from orchestration.setup.policy import check_policy, prepare_policy
from orchestration.setup.tasks import (
    draw_held_out,
    marks_of_tasks,
    said_of_held_out,
    said_of_marked,
    select_tasks,
    without_marked,
)
from orchestration.step.checker import POLICY, Background, EndpointChecker, PolicyChecker
from orchestration.step.pipeline import Pipeline
from orchestration.step.quarantine import quarantine
from orchestration.step.records import Prompt, StepResult
from orchestration.step.review import Checker, Reviewer
from orchestration.step.teachers import make_teachers
from prompts.buffer import ExemplarBuffer
from prompts.render import PromptRenderer

if TYPE_CHECKING:
    from orchestration.phases.base import Phase
    from orchestration.report.progress import Progress

_log = logging.getLogger(__name__)


class Session:
    """An open run. Use as a context manager: leaving it ends every actor.

    `tasks` are those that the phases train on, `held_out` those that only assessments see, `assessed` all of them.
    `early_end` says whether the run is to end with the step under way and its assessment.
    """

    def __init__(self, config: RunConfig, progress: Progress) -> None:
        """Checks what can be checked before anything is written. Raises ConfigError, TaskError or PolicyError."""
        self.config = config
        self.progress = progress
        self.early_end = EarlyEnd()
        named = select_tasks(config.tasks)
        check_policy(config.policy.model)
        check_verdicts_of(config)
        if "sft" in config.schedule.phases:
            make_teachers(config.sft, config.seed)
        self.renderer = PromptRenderer()
        try:
            self.run = RunDirectory(config.root, config.name)
            self.state = self._resumable()
            # A run goes on with the tasks that it began with, whatever is marked since, or drawn otherwise.
            begun = self.run.exists()
            self.marks = self.run.read_marks() if begun else marks_of_tasks(named, config.tasks)
            self.assessed = without_marked(named, self.marks, config.tasks)
            held_out = self.run.read_held_out() if begun else self._drawn()
        except (OSError, pa.ArrowInvalid) as error:
            raise RunDirectoryError(f"root: {config.root} cannot be used ({error}); give another root=...") from error
        self.held_out = [task for task in self.assessed if task.id in held_out]
        self.tasks = [task for task in self.assessed if task.id not in held_out]
        self._references = {task.id: program_source(task) for task in self.assessed}

    def _drawn(self) -> list[str]:
        """The tasks that a new run holds out: of those that its figures are of."""
        known = [task for task in self.assessed if task.id not in self.marks]
        return draw_held_out(known, self.config.tasks.held_out, self.config.seed)

    def _resumable(self) -> RunState:
        """The state that the run directory holds, or the first. Raises ConfigError where the config differs from it."""
        if not self.run.exists():
            return RunState()
        before = self.run.read_config()
        fixed = [key for key in changed_keys(before, self.config) if not may_change(key)]
        if fixed:
            raise ConfigError(
                f"{self.run}: the run was started with another {fixed[0]}; "
                f"choose another name=... or remove the folder to start anew"
            )
        state = self.run.read_state() or RunState()
        return noted(extended(state, before, self.config), before, self.config)

    def __enter__(self) -> Session:
        with ExitStack() as stack:
            stack.enter_context(self.run.lock())
            self.state = self._resumable()  # again: another process may have gone on until now
            if not self.run.exists():
                self.run.write_marks(self.marks)
                self.run.write_held_out([task.id for task in self.held_out])
                self.run.write_config(self.config)
            if said := said_of_marked(self.marks, self.config.tasks):
                _log.warning("%s", said)
            if said := said_of_held_out([task.id for task in self.held_out]):
                self.progress.note(said)
            self.tracker = stack.enter_context(Tracker(self.config, self.state.tracking))
            self._commit(self.state)  # before the config, which a longer schedule is noticed by
            self.run.write_config(self.config)
            folder = (self.run.local_path or Path("runs") / self.config.name) / "policy"
            policy = prepare_policy(self.config, self.tasks, folder.absolute())
            self.tokenizer = load_tokenizer(policy)
            for task in self.assessed:
                self.one_shot(task.id)  # one that leaves no room for a response is known before anything is started
            self.roles = Roles(self.config, policy, self.run)
            self.cases = HackCases(Path(self.roles.store) / "hacks.parquet")
            stack.callback(self.roles.stop)
            self.roles.start()
            self.pipeline = Pipeline(
                self.assessed,
                self.roles.engines,
                self.roles.builders,
                self.roles.evaluators,
                self.config.rollout,
                Reviewer(self.config.guard, self.cases, self._references, self._checker(stack)),
                self.config.evaluator.max_backlog,
                self.progress.rates,
                self.roles.turns,
            )
            self.restore()
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def _checker(self, stack: ExitStack) -> Checker | None:
        """The reward checker that the config names, None without one."""
        guard = self.config.guard
        if not guard.enabled or not guard.checker:
            return None
        if guard.checker == POLICY:
            return PolicyChecker(
                lambda request: self.roles.engines.submit(request, "generate"),
                lambda text: encode_prompt(self.tokenizer, text, self.config.policy.chat_template),
                self.config.policy.max_length,
            )
        background = Background(EndpointChecker(guard), guard.checker_timeout)
        stack.callback(background.close)
        return background

    @property
    def learner(self) -> Any:
        """The learner's ranks, driven together."""
        return self.roles.learner

    def restore(self) -> None:
        """Puts learner, engines, buffer and verdicts where the committed state says."""
        config = self.config
        self.state = self.run.read_state() or RunState()
        if self.state.checkpoint:
            self.learner.load(str(self.run.fetch_checkpoint(self.state.checkpoint)))
        if self.state.buffer:
            table = self.run.read_buffer(self.state.buffer)
            self.buffer = ExemplarBuffer.from_table(table, config.buffer, config.seed)
        else:
            self.buffer = ExemplarBuffer(config.buffer, config.evaluator.arch, config.seed, config.reward.baseline)
        known = {task.id: task.digest for task in self.assessed}
        for row in self.run.read_verdicts().to_pylist():
            verdict = Verdict.from_row(row)
            is_current = verdict.evaluator.get("task_digest") == known.get(verdict.task)
            if is_current and verdict.outcome is not Outcome.INFRA:
                spoken = self.pipeline.reviewer.known(verdict)
                self.pipeline.verdicts[verdict.candidate, verdict.evaluator["preset"]] = spoken
        self.roles.push_weights(self.state.policy_version, self.pipeline)

    def recover(self) -> None:
        """Goes on after a `LearnerLost`: a new learner, and everything back to the last commit."""
        self.pipeline.forget()
        self.roles.restart_learner()
        self.restore()

    # Prompts

    def one_shot(self, task_id: str) -> Prompt:
        """The prompt without exemplars. Raises ConfigError where it leaves no room for a response."""
        prompt = self._prompt(task_id, self.renderer.one_shot(self._references[task_id], self.config.evaluator.arch))
        if not self._fits(prompt):
            response = self.config.rollout.max_tokens
            raise ConfigError(
                f"policy.max_length: the prompt of {task_id} has {len(prompt.ids)} tokens and leaves no room for "
                f"rollout.max_tokens={response}; raise policy.max_length to {len(prompt.ids) + response}"
            )
        return prompt

    def contrastive(self, task_id: str, below: float = math.inf) -> Prompt:
        """The prompt with exemplars drawn from the buffer, all slower than the speed-up `below`; the longest are left
        out where there is no room for all. Without any it is the one-shot prompt."""
        reference = self._references[task_id]
        exemplars = self.buffer.exemplars(task_id, reference, below=below)
        while exemplars:
            text = self.renderer.contrastive(reference, exemplars, self.config.evaluator.arch)
            prompt = self._prompt(task_id, text)
            if self._fits(prompt):
                shown = frozenset(Candidate.propose(task_id, one.source, "").digest for one in exemplars)
                return replace(prompt, shown=shown, fastest=max(1.0, *(one.speedup for one in exemplars)))
            # The reference is not printed twice, so leaving it out would win nothing.
            exemplars.remove(max(exemplars, key=lambda one: (one.source != reference, len(one.source))))
        return self.one_shot(task_id)

    def _prompt(self, task_id: str, text: str) -> Prompt:
        ids = encode_prompt(self.tokenizer, text, self.config.policy.chat_template)
        return Prompt(task_id, task_id, text, tuple(ids), self._references[task_id])

    def _fits(self, prompt: Prompt) -> bool:
        return len(prompt.ids) + self.config.rollout.max_tokens <= self.config.policy.max_length

    def encode_response(self, text: str) -> list[int]:
        """A response's token ids, with the token that ends it."""
        return encode_response(self.tokenizer, text)

    # Committing

    def store(self, key: str, step: int, result: StepResult) -> None:
        """Writes what a step brought to the run directory: samples, verdicts, candidates, better programs."""
        self.run.write_samples(key, step, result.rollouts)
        self.run.write_candidates(key, step, result.candidates.values())
        self.run.write_verdicts(key, step, result.verdicts.values())
        quarantine(self.cases, result.candidates, result.verdicts, f"{self.config.name}/{key}", self._references)
        judged = (
            (one, result.verdicts[digest]) for digest, one in result.candidates.items() if digest in result.verdicts
        )
        self.run.save_kernels(self.config.evaluator.arch, judged)

    @contextmanager
    def storing(self, key: str, step: int, result: StepResult) -> Iterator[None]:
        """Stores beside what the block does, which waits for it at its end."""
        with ThreadPoolExecutor(1, "store") as background:
            stored = background.submit(self.store, key, step, result)
            yield
            stored.result()

    def remember(self, result: StepResult, step: int) -> None:
        """New verdicts flow back into the buffer that exemplars are drawn from; what is a hack by now leaves it.

        Copies of the reference stay out: every prompt shows it, and its speed-up is known to be 1. `improved_tasks` of
        the metrics counts the tasks of which a program is faster than all before it, and than the reference.
        """
        known = {task.id: self.buffer.best(task.id) for task in self.tasks}
        for digest, verdict in result.verdicts.items():
            candidate = result.candidates[digest]
            if not is_copy(candidate.source, self._references[candidate.task_id]):
                self.buffer.add(candidate, verdict, step)
            if verdict.outcome is Outcome.HACK:
                self.buffer.discard(candidate)
                self.run.discard_kernel(candidate, verdict.arch)
        if result.verdicts:
            result.metrics["improved_tasks"] = float(
                sum(
                    best.speedup > FASTER * max(1.0, before.speedup if before else 1.0)
                    for task_id, before in known.items()
                    if (best := self.buffer.best(task_id)) is not None
                )
            )

    def learn(self, phase: Phase, step: int, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """What the learner says of training on a step, while the steps after it are under way; how many policy versions
        ago its rollouts were sampled; and each role's share of the time since the step before."""
        stale = [self.roles.version - rollout.policy_version for rollout in rollouts]
        self.pipeline.give_turn(LEARNER)
        with self.roles.learner_alone():
            metrics = self.pipeline.meanwhile(phase.learn, step, rollouts)
        learned = {f"train/{name}": value for name, value in metrics.items()}
        if stale:
            learned |= {"staleness": sum(stale) / len(stale), "staleness_max": float(max(stale))}
        return learned | self.roles.utilisation()

    def has_completed(self, phase: Phase) -> bool:
        """Whether the phase is behind the committed state."""
        return phase.key in self.state.extra.get("completed", ())

    def steps_done(self, phase: Phase) -> int:
        """Committed steps of a phase."""
        state = self.state
        return state.step if (state.cycle, state.phase) == (phase.cycle, phase.name) else 0

    def commit(self, phase: Phase, step: int, metrics: dict[str, float]) -> None:
        """Makes everything up to and including `step` survive a kill, where a commit is due."""
        self.run.write_metrics(phase.key, step, metrics)
        self.tracker.log_metrics(phase.key, metrics, step)
        self.progress.step(phase.key, step, phase.steps, metrics)
        if (step + 1) % phase.commit_every == 0:
            self._commit(self._here(phase, step + 1))

    def complete(self, phase: Phase, steps: int) -> None:
        """Closes a phase after `steps` steps: its policy is also exported, as a Hugging Face folder."""
        state = self._here(phase, steps, export=True)
        completed = [*state.extra.get("completed", ()), phase.key]
        self._commit(replace(state, extra={**state.extra, "completed": completed}))
        self.tracker.end_phase(phase.key)

    def _here(self, phase: Phase, steps: int, *, export: bool = False) -> RunState:
        """Saves the learner and the buffer; returns the state that points to them."""
        version = self.roles.version
        name = f"step-{version:06d}" + (f"-{phase.name}" if export else "")
        local = self.run.checkpoint_folder(name)
        with self.roles.learner_alone():
            self.pipeline.meanwhile(self.learner.save, str(local))
        if export:
            self.learner.export(str(local / "policy"))
        return replace(
            self.state,
            cycle=phase.cycle,
            phase=phase.name,
            step=steps,
            policy_version=version,
            checkpoint=self.run.publish_checkpoint(local, name),
            buffer=self.run.write_buffer(self.buffer.to_table(), version),
            extra={**self.state.extra, phase.key: phase.to_commit()},
        )

    def commit_assessment(self, stage: str) -> None:
        """Records that a stage was measured."""
        assessed = [*self.state.extra.get("assessed", ()), stage]
        self._commit(replace(self.state, extra={**self.state.extra, "assessed": assessed}))

    def finish(self) -> None:
        """Marks the run as done."""
        self._commit(replace(self.state, finished=True))

    def _commit(self, state: RunState) -> None:
        self.state = replace(state, tracking=self.tracker.ids)
        self.run.commit(self.state)
        self.run.prune_checkpoints(self.config.keep_checkpoints, protect=[self.state.checkpoint])
        self.run.prune_buffers(self.config.keep_checkpoints, protect=[self.state.buffer])
