"""A run of many steps keeps few verdicts in memory, a resume reads what it needs, and no program is judged twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema import GuardConfig, RunConfig
from evaluators.guard.cases import HackCases, Status, case_of
from evaluators.records import Candidate, Estimate, Finding, Outcome, Verdict
from orchestration.run.directory import RunDirectory
from orchestration.run.steps import StepTable
from orchestration.step.archive import Archive
from orchestration.step.gathering import Gathering
from orchestration.step.judging import Judging
from orchestration.step.known import RunVerdicts
from orchestration.step.review import Reviewer
from tests.orchestration.step.scripted import SOFTMAX, Pool, program

MOST = 16
PHASE = "1-contrastive_rl"


def speed_of(digest: str) -> float:
    """Below 2, so that no review is called for."""
    return 1.0 + int(digest[:4], 16) / 70000


def judged(request: Any) -> Verdict:
    digest, value = request.candidate.digest, speed_of(request.candidate.digest)
    settings = {"preset": request.preset, "task_digest": SOFTMAX.digest}
    speedups = {"eager": Estimate(value, value, value, 9)}
    return Verdict(digest, SOFTMAX.id, "cpu", Outcome.OK, speedups=speedups, evaluator=settings)


class Process:
    """A run's driver, as far as it judges and stores: over a real run directory, with pools that answer at once."""

    def __init__(self, folder: Path, committed: int = 0) -> None:
        self.run = RunDirectory(folder, "run")
        self.cases = HackCases(folder / "hacks.parquet")
        self.reviewer = Reviewer(GuardConfig(), self.cases, {SOFTMAX.id: SOFTMAX.source})
        self.known = RunVerdicts(self.run.verdicts, MOST)
        pools: Any = (Pool(lambda _: None), Pool(judged))
        self.evaluators = pools[1]
        self.judging = Judging([SOFTMAX], *pools, self.reviewer, builders_look=False, known=self.known)
        writer: Any = SimpleNamespace(references=self.reviewer.references)
        self.archive = Archive(RunConfig(name="run"), self.run, self.cases, writer, self.known)
        self.known.resume({SOFTMAX.id: SOFTMAX.digest}, lambda step: step[1] < committed, self.reviewer)

    def step(self, number: int, names: Sequence[str]) -> Mapping[str, Verdict]:
        """Judges and stores programs, of which some may be proposed twice."""
        gathering = Gathering((), samples=0, temperature=0.0, preset="fast")
        for name in names:
            self.judging.propose(Candidate.propose(SOFTMAX.id, program(name), "test"), gathering)
        while self.judging.advance():
            pass
        with self.archive.storing(PHASE, number, gathering.result):
            pass
        return gathering.result.verdicts

    def asked(self) -> list[str]:
        return [request.candidate.digest for request in self.evaluators.requests]


def names_of(step: int) -> list[str]:
    """Six new programs, two of them twice, and four of earlier steps."""
    new = [f"{step}/{index}" for index in range(6)]
    return [*new, *new[:2], *(f"{step * index // 5}/{index}" for index in range(4))]


STEPS = 20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Process]:
    """A run of so many steps, and its driver."""
    folder = tmp_path_factory.mktemp("made")
    driver = Process(folder)
    for step in range(STEPS):
        verdicts = driver.step(step, names_of(step))
        assert len(verdicts) >= 6
        assert driver.known.in_memory <= MOST
    return folder, driver


def test_no_program_is_judged_twice_however_many_steps_ago_it_was(made: tuple[Path, Process]) -> None:
    _, driver = made
    asked = driver.asked()
    assert len(asked) == len(set(asked)) == 6 * STEPS
    before = len(asked)
    for step in range(STEPS):
        verdicts = driver.step(STEPS + step, names_of(step))
        assert all(verdict.speedup == speed_of(digest) for digest, verdict in verdicts.items())
    assert len(driver.asked()) == before
    assert driver.known.in_memory <= MOST


def test_a_resume_reads_whole_what_will_be_done_again_alone_and_judges_nothing_twice(
    made: tuple[Path, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, driver = made
    whole: list[int] = []
    read_step = StepTable.read_step

    def reading(self: Any, phase: str, step: int, columns: Sequence[str] | None = None) -> Any:
        if columns is None:
            whole.append(step)
        return read_step(self, phase, step, columns)

    monkeypatch.setattr(StepTable, "read_step", reading)
    resumed = Process(folder, committed=STEPS - 2)
    assert [step for step in whole if step < STEPS] == [STEPS - 2, STEPS - 1]
    assert resumed.known.in_memory <= MOST
    assert resumed.reviewer.best_of(SOFTMAX.id) == driver.reviewer.best_of(SOFTMAX.id)
    whole.clear()
    resumed.step(STEPS - 2, ["new in the step done again"])  # replaces its rows
    resumed.step(STEPS - 1, [])
    assert len(resumed.asked()) == 1
    assert whole == [], "no file is read for a new program"
    for step in range(STEPS):
        verdicts = resumed.step(3 * STEPS + step, names_of(step))
        assert all(verdict.speedup == speed_of(digest) for digest, verdict in verdicts.items())
    assert len(resumed.asked()) == 1
    assert resumed.known.in_memory <= MOST


def test_a_verdict_is_found_in_its_own_step_when_a_later_one_that_reused_it_is_stored_otherwise(
    tmp_path: Path,
) -> None:
    driver = Process(tmp_path)
    driver.step(0, ["kept"])
    driver.step(1, ["kept", "other"])
    driver.run.verdicts.write(PHASE, 1, [])
    driver.step(2, [f"in between {number}" for number in range(2 * MOST)])
    driver.step(3, ["kept"])
    assert len(driver.asked()) == 2 + 2 * MOST


def test_verdicts_that_no_step_stores_are_known_all_the_same(tmp_path: Path) -> None:
    """Of a step that was given up, for example."""
    driver = Process(tmp_path)
    gathering = Gathering((), samples=0, temperature=0.0, preset="fast")
    for number in range(4 * MOST):
        driver.judging.propose(Candidate.propose(SOFTMAX.id, program(str(number)), "test"), gathering)
    while driver.judging.advance():
        pass
    assert driver.known.in_memory == MOST
    driver.step(0, [str(number) for number in range(4 * MOST)])
    assert len(driver.asked()) == 4 * MOST


@pytest.mark.parametrize("committed", [0, 1])
def test_what_is_not_the_verdict_of_today_is_judged_again(tmp_path: Path, committed: int) -> None:
    driver = Process(tmp_path)
    verdicts = list(driver.step(0, ["infra", "other task", "right"]).values())
    changed = [
        replace(verdicts[0], outcome=Outcome.INFRA, speedups={}),
        replace(verdicts[1], evaluator={**verdicts[1].evaluator, "task_digest": "another"}),
        verdicts[2],
    ]
    driver.run.verdicts.write(PHASE, 0, changed)
    resumed = Process(tmp_path, committed)
    assert resumed.reviewer.best_of(SOFTMAX.id) == verdicts[2].speedup
    resumed.step(1, ["infra", "other task", "right"])
    assert resumed.asked() == [verdict.candidate for verdict in verdicts[:2]]


@pytest.mark.parametrize("committed", [0, 1])
def test_a_resume_knows_what_a_person_has_decided_since(tmp_path: Path, committed: int) -> None:
    driver = Process(tmp_path)
    names = ["cleared", "confirmed", "plain"]
    cleared, confirmed, plain = driver.step(0, names).values()
    doubted = cleared.doubted_by(Finding("clocks", "suspect", "late"))
    doubted = replace(doubted, doubted={"eager": Estimate(5.0, 5.0, 5.0, 9)})
    driver.run.verdicts.write(PHASE, 0, [doubted, replace(confirmed, speedups={}, doubted=confirmed.speedups), plain])
    sources = {name: Candidate.propose(SOFTMAX.id, program(name), "test") for name in names}
    driver.cases.add(
        [case_of(sources["cleared"], doubted, "run", ""), case_of(sources["confirmed"], doubted, "run", "")]
    )
    assert Process(tmp_path, committed).reviewer.best_of(SOFTMAX.id) == plain.speedup
    driver.cases.judge(cleared.candidate, Status.REJECTED)
    driver.cases.judge(confirmed.candidate, Status.CONFIRMED)
    resumed = Process(tmp_path, committed)
    assert resumed.reviewer.best_of(SOFTMAX.id) == 5.0
    outcomes = [verdict.outcome for verdict in resumed.step(1, names).values()]
    assert outcomes == [Outcome.OK, Outcome.HACK, Outcome.OK]
    assert resumed.asked() == []
