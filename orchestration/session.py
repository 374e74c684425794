"""An open run: its tasks, actors, prompts and pipeline, put to the last commit.

Opening a session resumes what the run directory holds. Committing makes everything up to here survive a kill.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from actors.log_fields import put_log_fields
from configs.code_version import code_version
from configs.frozen import asks_endpoint, has_engines
from configs.schema import FROZEN, RunConfig
from configs.waits import store_seconds
from evaluators.guard.cases import HackCases
from evaluators.records import Task
from learners.patience import Patience, StorageDown
from learners.policy_files import fetch_policy
from learners.records import Rollout, table_of_steps
from learners.room import DiskFull
from learners.tokenizing import load_tokenizer
from orchestration.fleet.heart import Heart
from orchestration.fleet.ray_metrics import RayMetrics
from orchestration.fleet.roles import Roles
from orchestration.phases.context import PhaseContext
from orchestration.run.bundle_tables import Committed
from orchestration.run.commits import Commits, Snapshot
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import RunDirectoryError
from orchestration.run.interrupt import Drain, EarlyEnd
from orchestration.run.retention import Retention
from orchestration.run.snapshots import EXPORT
from orchestration.run.state import phase_key, record_code, split_phase_key
from orchestration.run.sweep import sweep
from orchestration.run.tracking import TaskSet, Tracker, has_rest, send_rest
from orchestration.run.watchdog import Watchdog
from orchestration.setup.inputs import check_inputs, resumable
from orchestration.setup.pipeline import open_pipeline
from orchestration.setup.policy import prepare_policy
from orchestration.setup.tasks import RunTasks, describe_held_out, describe_marked, refuse_broken, select_tasks
from orchestration.step.archive import Archive
from orchestration.step.endpoint_engines import EndpointEngines
from orchestration.step.known import RunVerdicts
from orchestration.step.prompts import PromptWriter
from prompts.buffer import ExemplarBuffer

if TYPE_CHECKING:
    from orchestration.report.progress import Progress

_log = logging.getLogger(__name__)


class Session:
    """An open run. Use it as a context manager, and `restore` it first; leaving it ends every actor.

    `early_end` says whether the run is to end with the step under way and its assessment, `drain` whether with the step
    under way alone.
    """

    def __init__(self, config: RunConfig, progress: Progress) -> None:
        """Checks what can be checked before anything is written. Raises ConfigError, TaskError or PolicyError."""
        self.config = config
        self.progress = progress
        self.early_end = EarlyEnd()
        self.drain = Drain(config.drain_seconds)
        named = select_tasks(config.tasks)
        check_inputs(config)
        try:
            self.run = RunDirectory(config.root, config.name, patience=Patience(config.storage.patience))
            keep = Retention(config.keep_last, config.keep_best)
            self.commits = Commits(self.run, resumable(self.run, config), keep)
            self.tasks = self._run_tasks(named)
        except (StorageDown, DiskFull):
            raise
        except (OSError, pa.ArrowInvalid) as error:
            raise RunDirectoryError(f"root: {config.root} cannot be used ({error}); give another root=...") from error

    def _run_tasks(self, named: list[Task]) -> RunTasks:
        """The tasks of a new run, or those that a run began with, whatever is marked or drawn differently since."""
        if not self.run.exists():
            tasks = RunTasks.draw(named, self.config)
            refuse_broken(tasks.assessed)
            return tasks
        return RunTasks.of_begun_run(named, self.config.tasks, self.run.read_marks(), self.run.read_held_out())

    def __enter__(self) -> Session:
        with ExitStack() as stack:
            stack.enter_context(self.run.lock(self.config.storage.lease))
            state = resumable(self.run, self.config)  # again: another process may have gone on until now
            state = record_code(state, code_version())
            sweep(self.run.storage, state.checkpoint)
            self._begin_directory()
            completed = state.extra.get("completed", ())
            self.tracker = stack.enter_context(Tracker(self.config, self.run, state.tracking, completed))
            self.tracker.log_tasks(self._task_sets())
            keep = Retention(self.config.keep_last, self.config.keep_best)
            self.commits = Commits(self.run, state, keep, lambda: self.tracker.ids)
            self.commits.write()  # before the config: a longer schedule is recognised by comparing with the old one
            self.run.write_config(self.config)
            policy, tokenizer = self._policy()
            self.prompts = PromptWriter(self.config, self.tasks.assessed, tokenizer, self._empty_buffer())
            for task in self.tasks.assessed:
                self.prompts.one_shot(task.id)  # raises before any actor starts if a prompt leaves no room
            self.roles = Roles(self.config, policy, self.run)
            if not self.roles.learns:
                self.roles.version = state.policy_version  # on which the seeds of its engines depend
            cases = HackCases(Path(self.roles.store) / "hacks.parquet")
            first, further = self.config.evaluator.arch, list(self.config.evaluation.archs)
            self.known = RunVerdicts(self.run.verdicts, arch=first if further else "")
            self.known_elsewhere = {arch: RunVerdicts(self.run.verdicts, arch=arch) for arch in further}
            limit, elsewhere = store_seconds(self.config), self.known_elsewhere
            self.archive = Archive(self.config, self.run, cases, self.prompts, self.known, limit, elsewhere)
            self.heart = stack.enter_context(self._heart())
            stack.enter_context(Watchdog(60.0 * self.config.stall_minutes, self._moves, self._waits))
            stack.callback(self.roles.stop)
            self.roles.start()
            stack.enter_context(self.drain)
            self.endpoint = self._open_endpoint(stack)
            parts = self.config, self.tasks.assessed, self.roles, self.prompts, cases, self.known, self.run.set_aside
            self.pipeline = open_pipeline(*parts, self.progress.rates, stack, elsewhere, self.endpoint)
            counts = {arch: judging.counts.copy for arch, judging in self.pipeline.elsewhere.judgings.items()}
            self.ray_metrics = RayMetrics(
                self.config.name, first, self.roles.figures, self.pipeline.judging.counts.copy, counts
            )
            stack.callback(self.ray_metrics.close)
            self.ray_metrics.start()
            self._opened = stack.pop_all()
        return self

    def _policy(self) -> tuple[str, Any]:
        """The folder of the policy, and its tokenizer; an endpoint has both itself, and collecting needs neither."""
        if not has_engines(self.config):
            return "", None
        folder, storage = self.run.local_folder / "policy", self.run.storage
        policy = prepare_policy(self.config, self.tasks.training, folder, storage)
        return policy, load_tokenizer(fetch_policy(policy, weights=False, patience=storage.patience))

    def _task_sets(self) -> list[TaskSet]:
        source, tasks = self.config.tasks.source, self.tasks
        named = {"training": tasks.training, "held_out": tasks.held_out}
        return [TaskSet.of(f"{context} tasks", context, source, of_it) for context, of_it in named.items()]

    def _open_endpoint(self, stack: ExitStack) -> EndpointEngines | None:
        if not asks_endpoint(self.config):
            return None
        endpoint = EndpointEngines(self.config, self.run.answers())
        stack.callback(endpoint.close)
        return endpoint

    def _begin_directory(self) -> None:
        """Writes what a new run keeps for good, and tells which tasks are marked or held out."""
        if not self.run.exists():
            self.run.write_marks(self.tasks.marks)
            self.run.write_held_out([task.id for task in self.tasks.held_out])
            self.run.identity()
            self.run.write_config(self.config)
        if marked := describe_marked(self.tasks.marks, self.config.tasks):
            _log.warning("%s", marked)
        if held_out := describe_held_out([task.id for task in self.tasks.held_out]):
            self.progress.note(held_out)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tracker.was_stopped = self.drain.requested and not self.commits.state.finished
        self._opened.__exit__(kind, error, trace)

    def _heart(self) -> Heart:
        """Tells those outside what the run does, from before its roles start to after they have ended."""
        return Heart(
            self.run.storage,
            lambda: self.roles.figures(),
            lambda: self.pipeline.judging.counts.copy(),
            self._moves,
            lambda: self.commits.state.finished,
        )

    def mark(self, phase: str, step: int) -> None:
        """From here on, log lines and the run's pulse say that this step is under way."""
        put_log_fields(phase=phase, step=step)
        self.heart.mark(phase, step)

    def _moves(self) -> tuple[object, ...]:
        """Something that differs from before whenever anything in the run has moved. For any thread."""
        pipeline = getattr(self, "pipeline", None)
        judged = (pipeline.judging.moves, pipeline.elsewhere.moves, pipeline.engines.moves) if pipeline else ()
        return (*self.roles.moves(), *self.run.moves(), *judged)

    def _waits(self) -> list[str]:
        """What each role waits for, in words. For any thread."""
        pipeline = getattr(self, "pipeline", None)
        return [*self.roles.describe(), *([f"pipeline: {pipeline.describe()}"] if pipeline else [])]

    def _empty_buffer(self) -> ExemplarBuffer:
        config = self.config
        return ExemplarBuffer(config.buffer, config.evaluator.arch, config.seed, config.reward.baseline)

    def restore(self) -> None:
        """Puts learner, engines, buffer and verdicts to the committed state."""
        self.commits.reload()
        state = self.commits.state
        if state.checkpoint:
            self.roles.learner.load(*self.run.checkpoints.locate(state.checkpoint))
        self.prompts.buffer = self._empty_buffer()
        if state.buffer:
            table = self.run.buffers.read(state.buffer)
            self.prompts.buffer = ExemplarBuffer.from_table(table, self.config.buffer, self.config.seed)
        digests = {task.id: task.digest for task in self.tasks.assessed}
        self.known.resume(digests, Committed(state).has, self.pipeline.judging.reviewer)
        for arch, judging in self.pipeline.elsewhere.judgings.items():
            self.known_elsewhere[arch].resume(digests, Committed(state).has, judging.reviewer)
        self.roles.push_weights(state.policy_version, self.pipeline)

    def recover(self) -> None:
        """Goes on after a `LearnerLost`: a new learner, and everything back to the last commit."""
        self.pipeline.forget()
        self.roles.restart_learner()
        self.restore()

    def context(self) -> PhaseContext:
        """What phases work with, until the learner is replaced."""
        return PhaseContext(
            self.config,
            self.tasks.training,
            self.prompts,
            self.pipeline,
            self.archive,
            self.roles.learner if self.roles.learns else None,
            self.commits.memory_of,
            self.run.answers(),
            self.tasks.held_out,
            self.endpoint,
        )

    def taught(self) -> list[Mapping[str, Any]]:
        """The lessons that the SFT of all cycles has taught so far."""
        cycles = range(1, self.config.schedule.cycles + 1)
        memories = (self.commits.memory_of(phase_key(cycle, "sft")) for cycle in cycles)
        return [lesson for memory in memories for lesson in memory.get("lessons", ())]

    # Committing

    def log_step(self, key: str, step: int, steps: int, metrics: dict[str, float]) -> None:
        """Writes and shows the metrics of a step, one of at most `steps` of its phase."""
        self.run.metrics.write(key, step, metrics)
        self.tracker.log_metrics(key, metrics, step)
        self.tracker.log_rollouts(key, step)
        self.progress.step(key, step, steps, metrics)
        self.ray_metrics.step(key, step + 1, metrics.get("step_seconds", 0.0))
        _log.info("the step took %.1f s", metrics.get("step_seconds", 0.0))

    def commit(self, key: str, steps: int, memory: Mapping[str, Any], ahead: Mapping[int, Sequence[Rollout]]) -> None:
        """Makes the first `steps` steps of a phase survive a kill, with the memory that the phase goes on with, and
        the responses of later steps."""
        snapshot = self._snapshot(key, f"step-{self.roles.version:06d}")
        if any(ahead.values()):
            path = self.run.ahead.write(table_of_steps(ahead), self.roles.version)
            snapshot = replace(snapshot, ahead=path)
        self.commits.advance(key, steps, memory, snapshot)

    def complete(self, key: str, steps: int, memory: Mapping[str, Any]) -> None:
        """Closes a phase after `steps` steps. The policy of one that learns is also exported, as a Hugging Face
        folder."""
        name = f"step-{self.roles.version:06d}-{split_phase_key(key)[1]}"
        snapshot = self._snapshot(key, name, export=True)
        self.commits.complete(key, steps, memory, snapshot)
        if split_phase_key(key)[1] not in FROZEN:
            self.tracker.log_policy(key, snapshot.policy_version, snapshot.checkpoint or "")
        self.tracker.end_phase(key)

    def commit_assessment(self, stage: str, metrics: dict[str, float]) -> None:
        """Writes and shows the metrics of a stage, and records that it was measured."""
        self.run.metrics.write(f"assess/{stage}", 0, metrics)
        self.tracker.log_assessment(stage, metrics, self.roles.version)
        self.commits.record_assessment(stage, metrics)
        self.progress.assessed(stage, metrics)

    def send_rest_of_tracking(self) -> None:
        """Sends MLflow what a finished run could not send at its end, unless another process is at it."""
        if self.config.tracking.enabled and has_rest(self.run):
            with suppress(RunDirectoryError), self.run.lock(self.config.storage.lease):
                send_rest(self.config, self.run)

    def _snapshot(self, key: str, name: str, *, export: bool = False) -> Snapshot:
        """Saves the learner and the buffer to the run directory. After a phase that learns nothing, the learner is
        that of the checkpoint before."""
        frozen = split_phase_key(key)[1] in FROZEN
        checkpoint = self.commits.state.checkpoint if frozen else self._checkpoint(name, export=export)
        version = self.roles.version
        return Snapshot(version, checkpoint, self.run.buffers.write(self.prompts.buffer.to_table(), version))

    def _checkpoint(self, name: str, *, export: bool) -> str:
        """Saves the learner; returns where."""
        draft = self.run.checkpoints.begin(name)
        try:
            with self.roles.learner_alone():
                files = self.pipeline.meanwhile(self.roles.learner.save, draft.place)
            if export:
                files = [*files, *self.roles.learner.export(draft.place, EXPORT)]
            return self.run.checkpoints.commit(draft, files)
        except Exception:
            self.run.checkpoints.discard(draft)
            raise
