"""The training run as CUDA-L1 describes it: phase by phase, step by step.

`train`, `take_steps` and `assess` are the algorithm. `train_and_recover` starts again from the last commit if the
learner is lost; opening, restoring and committing are the session's.
"""

from __future__ import annotations

import logging
import time

from actors.learner import LearnerLost
from configs.schema import RunConfig
from orchestration.phases import Phase, schedule
from orchestration.report import build_report, render_html
from orchestration.report.progress import Progress
from orchestration.run.interrupt import DrainOver
from orchestration.session import Session
from orchestration.step.constants import as_step, constant_policies
from orchestration.step.figures import separate_held_out
from orchestration.step.gathering import Gathering
from orchestration.step.learning import learn_beside
from orchestration.step.reading import Lessons

_log = logging.getLogger(__name__)
_MAX_RECOVERIES = 3
BASE, PORTABILITY = "base", "portability"
_STOPPED = "stopped by SIGTERM at its last commit; the same command goes on from there"


def run(config: RunConfig, progress: Progress) -> bool:
    """Trains to the end of the schedule, from the run directory's last commit. Raises what cannot be recovered from,
    and DrainOver if the run was asked to end and its step did not.

    Returns whether the run is finished: it may have been asked to end before that.
    """
    session = Session(config, progress)
    if session.commits.state.finished:
        progress.report(build_report(session.run))
        session.send_rest_of_tracking()
        return True
    with session.early_end, session:
        try:
            train_and_recover(session)
        except KeyboardInterrupt as interrupt:
            if not session.drain.requested:
                raise
            _log.warning("the step under way did not end in the %g s of drain_seconds", session.config.drain_seconds)
            session.progress.note(_STOPPED)
            raise DrainOver from interrupt
        if session.drain.requested and not session.commits.state.finished:
            session.progress.note(_STOPPED)
        else:
            report(session)
    return session.commits.state.finished


def train_and_recover(session: Session) -> None:
    """Trains from the last commit on, and begins there again whenever the learner is lost."""
    losses = 0
    while True:
        committed = session.commits.state
        try:
            if losses:
                session.recover()
            else:
                session.restore()
            return train(session)
        except LearnerLost as error:
            losses = losses + 1 if session.commits.state == committed else 1
            if losses > _MAX_RECOVERIES:
                raise
            _log.warning("%s; going back to the last commit", error)


def train(session: Session) -> None:
    """The schedule: SFT, self-supervised learning and contrastive RL, for as many cycles as configured.

    Asked to end early, it begins no further phase; the same command goes on with that phase. A phase that an earlier
    process has begun is no further one. Draining, it begins nothing at all.
    """
    phases = schedule(session.config.schedule, session.context())
    if any(phase.learns for phase in phases):
        assess(session, BASE)
    for phase in phases:
        may_begin = session.commits.steps_done(phase.key) > 0 or not session.early_end.requested
        if not session.commits.has_completed(phase.key) and may_begin and not session.drain.requested:
            take_steps(session, phase)
        if not session.commits.has_completed(phase.key):
            session.progress.note(f"ends early; the same command goes on with {phase.key}")
            return
        if phase.learns:
            assess(session, phase.key)
    if session.config.assessment.constant_policies:
        assess_constant_policies(session)
    if session.config.evaluation.archs:
        assess_portability(session)
    if not session.drain.requested:
        session.commits.finish()


def take_steps(session: Session, phase: Phase) -> None:
    """The steps of a phase that are not committed yet: gather, judge, learn, push the weights.

    Asked to end early, a phase that may be shorter is complete with the step under way; another stays open. Draining,
    every phase stays open.
    """
    done = session.commits.steps_done(phase.key)
    phase.restore(session.commits.memory_of(phase.key), session.commits.ahead_of(phase.key))
    if done == 0:
        phase.begin()
    for step in phase.remaining(done):
        session.mark(phase.key, step)
        started = time.monotonic()
        result = phase.gather(step)
        result.rollouts = phase.credit(result)
        result.metrics |= phase.describe(result)
        session.archive.remember(result, session.roles.version)
        with session.archive.storing(phase.key, step, result):
            training = phase.training(step, result.rollouts)
            learned = learn_beside(session.pipeline, session.roles, training, result.rollouts)
        learned["sync_seconds"] = session.roles.push_weights(session.roles.version + 1, session.pipeline)
        learned |= phase.examine(step)
        learned["step_seconds"] = time.monotonic() - started
        session.log_step(phase.key, step, phase.steps, {**result.metrics, **learned})
        done = step + 1
        if done % phase.commit_every == 0 or session.drain.requested:
            session.commit(phase.key, done, phase.to_commit(), phase.ahead())
        if session.drain.requested or (session.early_end.requested and done < phase.steps):
            session.pipeline.forget()
            if session.drain.requested or not phase.can_be_shorter:
                return
            break
    session.complete(phase.key, done, phase.to_commit())


def assess(session: Session, stage: str) -> None:
    """Measures the policy on fresh samples of tasks, held out or not, at the assessment's own preset."""
    if session.commits.has_assessed(stage) or session.drain.requested:
        return
    settings = session.config.assessment
    session.mark(f"assess/{stage}", 0)
    session.progress.stage(stage)
    wanted = Gathering(
        [session.prompts.one_shot(task.id) for task in session.tasks.measured(settings.training_tasks)],
        samples=settings.samples,
        temperature=settings.temperature,
        preset=settings.preset,
        seed=[session.config.seed, *f"assess/{stage}".encode()],
    )
    result = session.pipeline.run(wanted)
    held_out, lessons = {task.id for task in session.tasks.held_out}, Lessons(session.taught())
    metrics = separate_held_out(result, held_out, lessons, session.config.evaluator.baselines, session.tasks.marks)
    session.archive.store(f"assess/{stage}", 0, result)
    session.commit_assessment(stage, metrics)


def assess_constant_policies(session: Session) -> None:
    """Judges once what a policy would hand over that only looks lessons up, and the reference of every task.

    The verdict on the reference says how fast the baselines are, also on tasks without any other right program.
    """
    references, settings = session.prompts.references, session.config.assessment
    tasks, preset = [task.id for task in session.tasks.measured(settings.training_tasks)], settings.preset
    for stage, candidates in constant_policies(tasks, references, session.taught()).items():
        if not (session.commits.has_assessed(stage) or session.drain.requested):
            session.mark(stage, 0)
            session.progress.stage(stage)
            verdicts = session.pipeline.evaluate(candidates, preset)
            session.archive.keep(stage, as_step(candidates, verdicts, references))
            session.commits.record_assessment(stage)


def assess_portability(session: Session) -> None:
    """Judges the best program of every task on the further architectures, which the report compares. What has been
    judged before is not judged again."""
    if session.drain.requested:
        return
    session.progress.stage(PORTABILITY)
    kernels = session.run.kernels.read()
    best = [kernel.candidate for kernel in kernels if kernel.arch == session.config.evaluator.arch]
    result = session.pipeline.evaluate_elsewhere(best, session.config.assessment.preset)
    session.archive.keep(PORTABILITY, result)


def report(session: Session) -> None:
    """Writes the report and shows the tables; the report and the best programs go to MLflow."""
    made = build_report(session.run)
    session.run.write_report(render_html(made))
    session.tracker.log_run_directory()
    session.progress.report(made)
