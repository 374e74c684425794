"""The schedule as the driver takes it: to its end, or until SIGUSR1 asks for an early one, or SIGTERM for a stop."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema import AssessmentConfig, EvaluationConfig, RunConfig
from orchestration import driver
from orchestration.commands.run import carry_out
from orchestration.run.interrupt import AGAIN_SECONDS, Drain, EarlyEnd, Interruptible
from orchestration.step.records import StepResult

KEYS = ("1-sft", "1-self_supervised", "1-contrastive_rl")


class Phase:
    """Three steps; sends a signal within one of them, as a scheduler does from outside."""

    steps = 3
    commit_every = 1

    def __init__(
        self,
        key: str,
        signalled_at: int = -1,
        can_be_shorter: bool = True,
        by: signal.Signals = signal.SIGUSR1,
        learns: bool = True,
    ) -> None:
        self.learns = learns
        self.key, self._signalled_at, self.can_be_shorter, self._by = key, signalled_at, can_be_shorter, by

    def restore(self, memory: object, ahead: object) -> None: ...

    def begin(self) -> None: ...

    def remaining(self, done: int) -> Iterator[int]:
        return iter(range(done, self.steps))

    def gather(self, step: int) -> StepResult:
        if step == self._signalled_at:
            os.kill(os.getpid(), self._by)
        return StepResult()

    def credit(self, result: StepResult) -> list[Any]:
        return []

    def training(self, step: int, rollouts: list[Any]) -> Callable[[], dict[str, float]]:
        return dict

    def describe(self, result: StepResult) -> dict[str, float]:
        return {}

    def examine(self, step: int) -> dict[str, float]:
        return {}

    def to_commit(self) -> dict[str, Any]:
        return {}

    def ahead(self) -> dict[int, Any]:
        return {}


class Session:
    """Writes down what the driver asks of a run, and keeps what that commits to."""

    def __init__(self, phases: list[Phase], before: Session | None = None) -> None:
        self.phases = phases
        self.extra: dict[str, list[str]] = before.extra if before else {}
        self.committed: dict[str, int] = before.committed if before else {}
        self.early_end, self.drain = EarlyEnd(), Drain(60.0)
        self.done: list[str] = []
        self.pipeline = self.roles = self.progress = self.commits = self.archive = self.config = self
        self.schedule, self.assessment, self.evaluation = None, AssessmentConfig(), EvaluationConfig()
        self.version = 0

    def mark(self, phase: str, step: int) -> None:
        """Log lines and the pulse are not looked at here."""

    def context(self) -> Session:
        return self

    def steps_done(self, key: str) -> int:
        return self.committed.get(key, 0)

    def has_completed(self, key: str) -> bool:
        return key in self.extra.get("completed", ())

    def memory_of(self, key: str) -> dict[str, Any]:
        return {}

    def ahead_of(self, key: str) -> dict[int, Any]:
        return {}

    def remember(self, result: StepResult, version: int) -> None: ...

    def storing(self, key: str, step: int, result: StepResult) -> Any:
        return contextlib.nullcontext()

    def push_weights(self, version: int, pipeline: object) -> float:
        return 0.0

    def log_step(self, key: str, step: int, steps: int, metrics: dict[str, float]) -> None:
        self.done.append(f"{key} {step}")

    def commit(self, key: str, steps: int, memory: dict[str, Any], ahead: object) -> None:
        self.committed[key] = steps

    def complete(self, key: str, steps: int, memory: dict[str, Any]) -> None:
        self.extra.setdefault("completed", []).append(key)
        self.done.append(f"{key} complete with {steps}")

    def assess(self, stage: str) -> None:
        assessed = self.extra.setdefault("assessed", [])
        if stage not in assessed:
            assessed.append(stage)
            self.done.append(f"assess {stage}")

    def finish(self) -> None:
        self.done.append("finish")

    def forget(self) -> None:
        self.done.append("forget what is under way")

    def note(self, text: str) -> None:
        self.done.append(text)


@pytest.fixture(autouse=True)
def _driven(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(driver, "schedule", lambda _, session: session.phases)
    monkeypatch.setattr(driver, "learn_beside", lambda *_: {})
    monkeypatch.setattr(driver, "assess", lambda session, stage: session.assess(stage))
    before = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)] == before


def train(session: Session) -> list[str]:
    with session.early_end, session.drain:
        driver.train(session)  # type: ignore[arg-type]
    return session.done


def whole(key: str) -> list[str]:
    return [f"{key} 0", f"{key} 1", f"{key} 2", f"{key} complete with 3", f"assess {key}"]


def test_a_run_goes_through_its_schedule() -> None:
    done = train(Session([Phase(key) for key in KEYS]))
    assert done == ["assess base", *whole(KEYS[0]), *whole(KEYS[1]), *whole(KEYS[2]), "finish"]


def test_phases_that_learn_nothing_are_not_assessed() -> None:
    frozen = "1-evolve"
    assert train(Session([Phase(frozen, learns=False)])) == [*whole(frozen)[:-1], "finish"]
    mixed = train(Session([Phase(KEYS[0]), Phase(frozen, learns=False)]))
    assert mixed == ["assess base", *whole(KEYS[0]), *whole(frozen)[:-1], "finish"]


def test_asked_to_end_early_a_phase_is_complete_with_the_step_under_way_and_the_same_command_goes_on_after_it() -> None:
    first = Session([Phase(KEYS[0]), Phase(KEYS[1], signalled_at=1), Phase(KEYS[2])])
    assert train(first) == [
        "assess base",
        *whole(KEYS[0]),
        f"{KEYS[1]} 0",
        f"{KEYS[1]} 1",
        "forget what is under way",
        f"{KEYS[1]} complete with 2",
        f"assess {KEYS[1]}",
        f"ends early; the same command goes on with {KEYS[2]}",
    ]
    assert train(Session([Phase(key) for key in KEYS], first)) == [*whole(KEYS[2]), "finish"]


def test_a_phase_that_cannot_be_shorter_goes_on_where_it_was() -> None:
    first = Session([Phase(KEYS[0], signalled_at=1, can_be_shorter=False), Phase(KEYS[2])])
    ended = ["forget what is under way", f"ends early; the same command goes on with {KEYS[0]}"]
    assert train(first) == ["assess base", f"{KEYS[0]} 0", f"{KEYS[0]} 1", *ended]
    rest = [f"{KEYS[0]} 2", f"{KEYS[0]} complete with 3", f"assess {KEYS[0]}", *whole(KEYS[2]), "finish"]
    assert train(Session([Phase(KEYS[0], can_be_shorter=False), Phase(KEYS[2])], first)) == rest
    last = Session([Phase(KEYS[0], signalled_at=2, can_be_shorter=False), Phase(KEYS[2])])
    ended = [f"ends early; the same command goes on with {KEYS[2]}"]
    assert train(last) == ["assess base", *whole(KEYS[0]), *ended], "it was through"


def test_asked_to_end_early_in_its_last_phase_a_run_is_finished() -> None:
    done = train(Session([Phase(KEYS[0]), Phase(KEYS[2], signalled_at=0)]))
    last = [f"{KEYS[2]} 0", "forget what is under way", f"{KEYS[2]} complete with 1", f"assess {KEYS[2]}", "finish"]
    assert done == ["assess base", *whole(KEYS[0]), *last]


def test_asked_before_its_first_step_a_begun_phase_is_complete_with_one_more() -> None:
    """The process was asked while its roles started."""
    session = Session([Phase(key) for key in KEYS])
    session.extra = {"completed": [KEYS[0]], "assessed": ["base", KEYS[0]]}
    session.committed = {KEYS[1]: 1}
    session.early_end.requested = True
    assert train(session) == [
        f"{KEYS[1]} 1",
        "forget what is under way",
        f"{KEYS[1]} complete with 2",
        f"assess {KEYS[1]}",
        f"ends early; the same command goes on with {KEYS[2]}",
    ]


@pytest.mark.parametrize("can_be_shorter", [True, False])
def test_draining_every_phase_is_committed_at_the_step_under_way_and_stays_open(can_be_shorter: bool) -> None:
    first = Session([Phase(KEYS[0]), Phase(KEYS[1], 1, can_be_shorter, signal.SIGTERM), Phase(KEYS[2])])
    first.phases[1].commit_every = 5
    assert train(first) == [
        "assess base",
        *whole(KEYS[0]),
        f"{KEYS[1]} 0",
        f"{KEYS[1]} 1",
        "forget what is under way",
        f"ends early; the same command goes on with {KEYS[1]}",
    ]
    assert first.committed[KEYS[1]] == 2
    rest = [f"{KEYS[1]} 2", f"{KEYS[1]} complete with 3", f"assess {KEYS[1]}", *whole(KEYS[2]), "finish"]
    assert train(Session([Phase(key) for key in KEYS], first)) == rest


def test_draining_before_a_step_nothing_is_begun() -> None:
    session = Session([Phase(KEYS[0])])
    session.drain.requested = True
    session.assess = lambda stage: None  # type: ignore[method-assign] - as `driver.assess` does then
    assert train(session) == [f"ends early; the same command goes on with {KEYS[0]}"]


def test_a_step_that_does_not_end_is_given_up_after_the_drains_seconds() -> None:
    drain, started = Drain(0.3), time.monotonic()
    with pytest.raises(KeyboardInterrupt), Interruptible(), drain:  # noqa: PT012 - as a step is interrupted
        os.kill(os.getpid(), signal.SIGTERM)
        while time.monotonic() - started < 60:
            time.sleep(0.01)
    assert drain.requested
    assert 0.3 <= time.monotonic() - started < 30


def test_a_drain_in_time_interrupts_nothing() -> None:
    with Drain(0.2):
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.4)


class Closing:
    """A session whose step takes longer than it may, and whose parts take their time to end."""

    def __init__(self, *_: Any) -> None:
        self.early_end, self.drain, self.config = EarlyEnd(), Drain(0.3), SimpleNamespace(drain_seconds=0.3)
        self.commits = SimpleNamespace(state=SimpleNamespace(finished=False))
        self.progress = SimpleNamespace(note=lambda text: said.append(text))

    def __enter__(self) -> Closing:
        self.stack = ExitStack()
        for part in ("lock", "tracker", "heart", "roles"):
            self.stack.callback(self.end, part)
        self.stack.enter_context(self.drain)
        return self

    def __exit__(self, *raised: Any) -> None:
        self.stack.__exit__(*raised)

    @staticmethod
    def end(part: str) -> None:
        time.sleep(2.0 * AGAIN_SECONDS)
        said.append(part)


said: list[str] = []


def test_what_a_drain_interrupts_ends_all_its_parts_and_with_exit_code_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60.0)

    said.clear()
    monkeypatch.setattr(driver, "Session", Closing)
    monkeypatch.setattr(driver, "train_and_recover", work)
    carry_out(RunConfig("drained"))
    note, *ended = said
    assert "stopped by SIGTERM at its last commit" in note
    assert ended == ["roles", "heart", "tracker", "lock"]
