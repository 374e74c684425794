"""Programs on several architectures: which of them is judged where, what a step waits for, and what is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.pool_records import PoolExhausted, PoolFailure
from configs.schema import ArchConfig, BufferConfig, EvaluationConfig, GuardConfig, RunConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from orchestration.run.directory import RunDirectory
from orchestration.step.archive import Archive
from orchestration.step.elsewhere import Elsewhere, is_drawn
from orchestration.step.gathering import Gathering
from orchestration.step.judging import Judging
from orchestration.step.known import RunVerdicts
from orchestration.step.records import StepResult, verdicts_over
from orchestration.step.review import Reviewer
from prompts.buffer import ExemplarBuffer
from tests.orchestration.step.scripted import SOFTMAX, Pool, program

COUNTED, SAMPLED, RARE = "A100", "L40S", "T4"
SHARES = {COUNTED: 1.0, SAMPLED: 1.0, RARE: 0.0}
Answer = Callable[[Any], Any]


def judged_on(arch: str, speedup: float, *wrong: str) -> Answer:
    """Answers every request with a verdict of this architecture: the speed-up, or `wrong` for programs that contain
    one of these texts."""

    def answer(request: Any) -> Verdict:
        candidate, settings = request.candidate, {"preset": request.preset, "task_digest": SOFTMAX.digest}
        if any(text in candidate.source for text in wrong):
            return Verdict(candidate.digest, SOFTMAX.id, arch, Outcome.WRONG, evaluator=settings)
        speedups = {"eager": Estimate(speedup, speedup, speedup, 9)}
        return Verdict(candidate.digest, SOFTMAX.id, arch, Outcome.OK, speedups=speedups, evaluator=settings)

    return answer


class Driver:
    """A run's driver, as far as it judges and stores on `cpu` and three further architectures: over a real run
    directory, with pools that answer at once."""

    def __init__(self, folder: Path, answers: dict[str, Answer], counted: str = COUNTED) -> None:
        self.run, self.cases = RunDirectory(folder, "run"), HackCases(folder / "hacks.parquet")
        self.pools: dict[str, Any] = {arch: Pool(answer) for arch, answer in answers.items()}
        self.known = {arch: RunVerdicts(self.run.verdicts, arch=arch) for arch in answers}
        self.first = self._judging("cpu")
        further = {arch: self._judging(arch, arch, arch != counted) for arch in (COUNTED, SAMPLED, RARE)}
        self.elsewhere = Elsewhere(
            {counted: further[counted]} if counted else {},
            {arch: (each, SHARES[arch]) for arch, each in further.items() if arch != counted},
        )
        self.first.on_verdict = self.elsewhere.follow
        archs = {arch: ArchConfig(share=SHARES[arch] if arch != SAMPLED else 0.9) for arch in SHARES}
        config = RunConfig(name="run", evaluation=EvaluationConfig(archs, "worst"))
        self.buffer = ExemplarBuffer(BufferConfig(), "cpu", 0)
        writer: Any = SimpleNamespace(references={SOFTMAX.id: SOFTMAX.source}, buffer=self.buffer)
        known = {arch: self.known[arch] for arch in SHARES}
        self.archive = Archive(config, self.run, self.cases, writer, self.known["cpu"], elsewhere=known)

    def _judging(self, arch: str, name: str = "", is_sampled: bool = False) -> Judging:
        pools: Any = (Pool(lambda _: None), self.pools[arch])
        reviewer = Reviewer(GuardConfig(), self.cases, {SOFTMAX.id: SOFTMAX.source})
        known = self.known[arch]
        known.resume({SOFTMAX.id: SOFTMAX.digest}, lambda _: True, reviewer)
        return Judging([SOFTMAX], *pools, reviewer, builders_look=False, known=known, arch=name, is_sampled=is_sampled)

    def propose(self, *names: str, samples: int = 4) -> Gathering:
        gathering = Gathering((), samples=samples, temperature=0.0, preset="fast")
        for name in names:
            candidate = Candidate.propose(SOFTMAX.id, program(name), "policy:1")
            self.first.propose(candidate, gathering)
            self.elsewhere.propose(candidate, gathering)
        return gathering

    def advance(self) -> None:
        while any([self.first.advance(), self.elsewhere.advance()]):
            pass

    def step(self, *names: str) -> StepResult:
        gathering = self.propose(*names)
        self.advance()
        assert gathering.is_done
        return gathering.finish()

    def asked(self, arch: str) -> list[str]:
        """The programs that an architecture's evaluators were asked about, by the name in them."""
        return sorted(request.candidate.source.rpartition("= ")[2].strip("'") for request in self.pools[arch].requests)


ALL_RIGHT = {
    "cpu": judged_on("cpu", 1.5, "wrong"),
    COUNTED: judged_on(COUNTED, 1.2, "wrong", "only on cpu"),
    SAMPLED: judged_on(SAMPLED, 1.1),
    RARE: judged_on(RARE, 1.0),
}


def digest_of(name: str) -> str:
    return Candidate.propose(SOFTMAX.id, program(name), "").digest


def test_all_programs_are_judged_where_the_reward_is_and_right_ones_where_they_are_drawn(tmp_path: Path) -> None:
    driver = Driver(tmp_path, ALL_RIGHT)
    result = driver.step("right", "wrong")
    assert driver.asked("cpu") == driver.asked(COUNTED) == ["right", "wrong"]
    assert driver.asked(SAMPLED) == ["right"]
    assert driver.asked(RARE) == []
    assert result.verdicts[digest_of("right")].arch == "cpu"
    assert {arch: list(verdicts) for arch, verdicts in result.verdicts.elsewhere.items()} == {
        COUNTED: [digest_of("right"), digest_of("wrong")],
        SAMPLED: [digest_of("right")],
    }
    assert (result.metrics[f"arch/{COUNTED}/judged"], result.metrics[f"arch/{COUNTED}/success_rate"]) == (2, 0.5)
    assert result.metrics[f"arch/{SAMPLED}/mean_speedup"] == pytest.approx(1.1)
    over = verdicts_over(result.verdicts, digest_of("right"), [COUNTED])
    assert [verdict.arch for verdict in over] == ["cpu", COUNTED]


def test_programs_that_no_policy_sampled_are_judged_on_the_first_alone(tmp_path: Path) -> None:
    driver = Driver(tmp_path, ALL_RIGHT)
    gathering = Gathering((), samples=0, temperature=0.0, preset="fast")
    driver.first.propose(Candidate.propose(SOFTMAX.id, program("taught"), "teacher:x"), gathering)
    driver.advance()
    assert driver.asked("cpu") == ["taught"]
    assert driver.asked(SAMPLED) == driver.asked(COUNTED) == []


def test_a_larger_share_takes_no_program_back() -> None:
    drawn = [{n for n in range(400) if is_drawn(f"{n:016x}", "A100", share)} for share in (0.0, 0.1, 0.5, 1.0)]
    assert drawn[0] < drawn[1] < drawn[2] < drawn[3]
    assert drawn[3] == set(range(400))
    assert 20 < len(drawn[1]) < 60
    assert {n for n in range(400) if is_drawn(f"{n:016x}", "L40S", 0.1)} != drawn[1]


def test_rows_carry_the_architecture_and_a_resume_judges_nothing_again(tmp_path: Path) -> None:
    before = Driver(tmp_path, ALL_RIGHT)
    with before.archive.storing("1-contrastive_rl", 0, before.step("right", "wrong")):
        pass
    rows = before.run.verdicts.read(columns=["candidate", "arch"]).to_pylist()
    right, wrong = digest_of("right"), digest_of("wrong")
    assert {(row["candidate"], row["arch"]) for row in rows} == {
        (right, "cpu"), (wrong, "cpu"), (right, COUNTED), (wrong, COUNTED), (right, SAMPLED)
    }  # fmt: skip
    assert {(kernel.arch, kernel.verdict.arch, kernel.verdict.speedup) for kernel in before.run.kernels.read()} == {
        ("cpu", "cpu", 1.5), (COUNTED, COUNTED, 1.2), (SAMPLED, SAMPLED, 1.1)
    }  # fmt: skip
    after = Driver(tmp_path, ALL_RIGHT)
    again = after.step("right", "wrong")
    assert [after.asked(arch) for arch in ("cpu", COUNTED, SAMPLED)] == [[], [], []]
    assert {arch: len(verdicts) for arch, verdicts in again.verdicts.elsewhere.items()} == {COUNTED: 2, SAMPLED: 1}
    assert [after.elsewhere.judgings[arch].reviewer.best_of(SOFTMAX.id) for arch in SHARES] == [1.2, 1.1, None]


def test_a_program_that_fails_where_the_reward_is_is_no_exemplar(tmp_path: Path) -> None:
    driver = Driver(tmp_path, ALL_RIGHT)
    driver.archive.remember(driver.step("right", "only on cpu"), 1)
    assert [member.candidate.digest for member in driver.buffer.candidates(SOFTMAX.id)] == [digest_of("right")]


def test_a_hack_where_the_reward_is_becomes_no_best_program(tmp_path: Path) -> None:
    def hacked(request: Any) -> Verdict:
        return replace(judged_on(COUNTED, 1.2)(request), outcome=Outcome.HACK, message="it reads the answer")

    driver = Driver(tmp_path, {**ALL_RIGHT, COUNTED: hacked})
    result = driver.step("right")
    driver.archive.remember(result, 1)
    driver.archive.store("1-contrastive_rl", 0, result)
    assert driver.buffer.candidates(SOFTMAX.id) == []
    assert driver.run.kernels.read() == []


def test_a_deadline_drops_programs_without_a_verdict_that_their_reward_needs(tmp_path: Path) -> None:
    driver = Driver(tmp_path, ALL_RIGHT)
    gathering = driver.propose("late")
    driver.first.advance()
    assert gathering.give_up() == (set(), {(digest_of("late"), COUNTED), (digest_of("late"), SAMPLED)})
    assert gathering.finish().candidates == {}


def test_a_deadline_keeps_programs_that_lack_a_verdict_for_portability(tmp_path: Path) -> None:
    driver = Driver(tmp_path, ALL_RIGHT)
    gathering = driver.propose("right")
    driver.first.advance()
    driver.elsewhere.judgings[COUNTED].advance()
    assert gathering.give_up() == (set(), {(digest_of("right"), SAMPLED)})
    result = gathering.finish()
    assert list(result.candidates) == [digest_of("right")]
    assert list(result.verdicts.elsewhere) == [COUNTED]


def test_a_run_goes_on_without_an_architecture_that_no_reward_needs(tmp_path: Path) -> None:
    def lost(request: Any) -> PoolFailure:
        return PoolFailure(PoolExhausted("pool evaluator L40S: no actor could be started"))

    driver = Driver(tmp_path / "sampled", {**ALL_RIGHT, SAMPLED: lost})
    verdict = driver.step("right").verdicts.elsewhere[SAMPLED][digest_of("right")]
    assert (verdict.arch, verdict.outcome) == (SAMPLED, Outcome.INFRA)
    driver = Driver(tmp_path / "counted", {**ALL_RIGHT, COUNTED: lost})
    with pytest.raises(PoolExhausted):
        driver.step("right")
