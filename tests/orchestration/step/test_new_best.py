"""A program that seems the fastest of its task is measured again before that is believed, and no other program is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from actors.pool import ActorPool
from configs.schema import BufferConfig, GuardConfig, RolloutConfig
from evaluators.failures import Unbuilt
from evaluators.guard.cases import HackCases
from evaluators.records import Artifact, Candidate, Estimate, Outcome, Verdict
from evaluators.shared.extension import ExtensionRequest
from orchestration.run.directory import RunDirectory
from orchestration.step.gathering import Gathering
from orchestration.step.judging import Judging
from orchestration.step.known import RunVerdicts
from orchestration.step.pipeline import Pipeline
from orchestration.step.records import StepResult
from orchestration.step.review import Reviewer
from prompts.buffer import ExemplarBuffer
from tests.orchestration.step.scripted import (
    NEVER,
    SOFTMAX,
    Builder,
    Engine,
    Evaluator,
    Pool,
    asked,
    compiling,
    digest_of_program,
    fenced,
    program,
)

Measured = dict[str, list[Any]]


class Stand:
    """A pipeline over scripted actors: one engine, whose single group is the programs, and these evaluators."""

    def __init__(self, folder: Path, measured: Measured, most: int, evaluators: int) -> None:
        script = {digest_of_program(name): entries for name, entries in measured.items()}
        texts = [fenced(program(name)) for name in measured]
        self.names = {digest_of_program(name): name for name in measured}
        self.actors: list[Any] = []
        self.pools = [
            ActorPool("rollout", lambda _: Engine.remote({"group": texts}), 1, timeout=30.0),
            ActorPool("builder", lambda _: Builder.remote(), 1, timeout=30.0),
            ActorPool("evaluator", lambda _: self._start(script), evaluators, timeout=30.0, max_retries=0),
        ]
        self.samples, self.folder, self.most = len(texts), folder, most
        self.pipeline = self.resumed()

    def _start(self, script: Measured) -> Any:
        self.actors.append(Evaluator.remote(script))
        return self.actors[-1]

    def resumed(self, known: RunVerdicts | None = None) -> Pipeline:
        """A pipeline that knows these verdicts, or nothing yet, over the same actors."""
        reviewer = Reviewer(GuardConfig(), HackCases(self.folder / "hacks.parquet"), {SOFTMAX.id: SOFTMAX.source})
        return Pipeline([SOFTMAX], *self.pools, RolloutConfig(), reviewer, remeasure_best=self.most, known=known)

    def begin(self) -> Gathering:
        return self.pipeline.begin(asked("group", samples=self.samples))

    def judge(self, *names: str) -> dict[str, Verdict]:
        """Verdicts on these programs, which are judged in this order."""
        candidates = [Candidate.propose(SOFTMAX.id, program(name), "test") for name in names]
        verdicts = self.pipeline.evaluate(candidates, "fast")
        return {self.names[digest]: verdict for digest, verdict in verdicts.items()}

    def run(self) -> StepResult:
        return self.pipeline.finish(self.begin())

    def asked(self) -> list[tuple[str, bool]]:
        """The programs that evaluators were asked about, in order, and whether again."""
        requests = [one for actor in self.actors for one in ray.get(actor.requests.remote())]
        return [(self.names[digest], again) for digest, again in requests]


@pytest.fixture
def stand(local_ray: None, tmp_path: Path) -> Iterator[Callable[..., Stand]]:
    stands: list[Stand] = []

    def make(measured: Measured, most: int = 3, evaluators: int = 1) -> Stand:
        stands.append(Stand(tmp_path, measured, most, evaluators))
        return stands[-1]

    yield make
    for one in stands:
        for pool in one.pools:
            pool.stop()


def test_a_new_best_is_believed_as_fast_as_it_is_when_it_is_measured_again(stand: Callable[..., Stand]) -> None:
    made = stand({"best": [(1.5, 0.05), (1.3, 0.05)], "slower": [(0.9, 0.05)]})
    result = made.run()
    verdicts = {made.names[digest]: verdict for digest, verdict in result.verdicts.items()}
    assert verdicts["best"].speedup == pytest.approx(1.3)
    assert [one.value for one in verdicts["best"].measurements] == [1.5, 1.3]
    assert verdicts["best"].cost["total"] == 2.0
    assert verdicts["slower"].measurements == ()
    assert sorted(made.asked()) == [("best", False), ("best", True), ("slower", False)]
    assert (result.metrics["measured"], result.metrics["remeasured"]) == (2, 1)
    assert result.metrics["remeasured_shrinkage"] == pytest.approx(1 - 1.3 / 1.5)


@pytest.mark.slow
def test_programs_behind_a_new_best_are_compared_with_what_is_believed_of_it(stand: Callable[..., Stand]) -> None:
    others = {f"other {number}": [(1.25, 0.05)] for number in range(6)}
    made = stand({"best": [(1.5, 0.05), (1.3, 0.05)], **others})
    made.judge("best", "other 0")
    made.judge(*others)
    assert made.asked().index(("best", True)) < made.asked().index(("other 1", False))
    assert [one for one in made.asked() if one[1]] in ([("best", True)], [("best", True), ("other 0", True)])


@pytest.mark.slow
def test_in_doubt_it_is_measured_so_often_and_no_more(stand: Callable[..., Stand]) -> None:
    noisy = [(1.2, 0.3), (1.1, 0.3), (1.05, 0.3), (1.15, 0.3), (9.0, 0.3)]
    made = stand({"noisy": noisy, "lucky": [(1.3, 0.3), (0.8, 0.3)]})
    noisy_verdict, lucky = (made.judge(name)[name] for name in ("noisy", "lucky"))
    assert noisy_verdict.speedup == pytest.approx(1.1), "the median of the repetitions"
    assert lucky.speedup == pytest.approx(0.8)
    assert made.asked() == [("noisy", False), *[("noisy", True)] * 3, ("lucky", False), ("lucky", True)]


def test_nothing_is_measured_again_if_nothing_seems_the_best(stand: Callable[..., Stand]) -> None:
    measured = {"first": [(0.9, 0.1)], "wrong": [Outcome.WRONG], "suspect": [Outcome.SUSPECT], "second": [(1.0, 0.1)]}
    made = stand(measured)
    result = made.run()
    assert not any(again for _, again in made.asked())
    assert result.metrics["remeasured"] == 0
    assert "remeasured_shrinkage" not in result.metrics


def test_a_repetition_that_fails_decides(stand: Callable[..., Stand]) -> None:
    made = stand({"wrong": [(1.5, 0.05), Outcome.WRONG], "lost": [(1.5, 0.05), OSError("gone"), (1.4, 0.05)]})
    wrong, lost = (made.judge(name)[name] for name in ("wrong", "lost"))
    assert (wrong.outcome, wrong.speedups) == (Outcome.WRONG, {})
    assert lost.outcome is Outcome.INFRA
    assert made.pipeline.judging.reviewer.best_of(SOFTMAX.id) is None
    again = made.judge("lost")["lost"]
    assert (again.outcome, len(again.measurements)) == (Outcome.OK, 2), "our own failure: it is judged anew"


@pytest.mark.slow
def test_other_verdicts_do_not_wait_for_a_repetition(
    stand: Callable[..., Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {f"other {number}": [(0.9, 0.05)] for number in range(4)}
    made = stand({"best": [(1.5, 0.05), NEVER], **others}, evaluators=2)
    gathering = made.begin()
    made.pipeline.pump_until(lambda: len(gathering.result.verdicts) == len(others))
    assert not gathering.is_done
    monkeypatch.setattr(Gathering, "is_late", True)
    result = made.pipeline.finish(gathering)
    assert {made.names[digest] for digest in result.verdicts} == set(others), "what is not believed is not stored"


def test_a_resumed_run_knows_its_best_programs(stand: Callable[..., Stand]) -> None:
    made = stand({"best": [(1.5, 0.05), (1.3, 0.05)], "slower": [(1.25, 0.05)], "faster": [(1.4, 0.02), (1.38, 0.02)]})
    run, stored = RunDirectory(made.folder, "run"), made.judge("best")["best"]
    run.verdicts.write("1-sft", 0, [stored])
    known = RunVerdicts(run.verdicts)
    made.pipeline = made.resumed(known)
    known.resume({}, lambda _: True, made.pipeline.judging.reviewer)
    assert made.judge("best", "slower")["best"] == stored
    made.judge("faster")
    assert made.asked()[2:] == [("slower", False), ("faster", False), ("faster", True)]


def verdict_on(request: Any, value: float, half: float) -> Verdict:
    speedups = {"eager": Estimate(value, value - half, value + half, 9)}
    settings = {"preset": request.preset}
    return Verdict(request.candidate.digest, SOFTMAX.id, "cpu", Outcome.OK, speedups=speedups, evaluator=settings)


def judging_of(folder: Path, builders: Pool, evaluators: Pool, most: int) -> Judging:
    reviewer = Reviewer(GuardConfig(), HackCases(folder / "hacks.parquet"), {})
    pools: Any = (builders, evaluators)
    return Judging([SOFTMAX], *pools, reviewer, builders_look=False, remeasure_best=most)


def judge(judging: Judging, candidate: Candidate) -> Verdict:
    gathering = Gathering((), samples=0, temperature=0.0, preset="fast")
    judging.propose(candidate, gathering)
    while judging.advance():
        pass
    return gathering.result.verdicts[candidate.digest]


@pytest.mark.parametrize("lead", [1.003, 1.0099])
def test_a_lead_of_less_than_a_hundredth_is_neither_measured_again_nor_believed(tmp_path: Path, lead: float) -> None:
    """A copy of the reference was measured four times, at 1.000x, since each interval contained 1."""
    speedups = iter([lead, 1.5, 1.5, 1.5 * lead])
    evaluators = Pool(lambda request: verdict_on(request, next(speedups), 0.02))
    judging = judging_of(tmp_path, Pool(lambda _: None), evaluators, most=3)
    verdicts = [
        judge(judging, Candidate.propose(SOFTMAX.id, program(name), "test")) for name in ("copy", "fast", "lead")
    ]
    assert [verdict.speedup for verdict in verdicts] == [pytest.approx(1.0), pytest.approx(1.5), pytest.approx(1.5)]
    assert [request.again for request in evaluators.requests] == [False, False, True, False]
    assert judging.reviewer.best_of(SOFTMAX.id) == pytest.approx(1.5)
    assert [len(verdict.measurements) for verdict in verdicts] == [0, 2, 0]


def test_a_run_may_do_without(tmp_path: Path) -> None:
    evaluators = Pool(lambda request: verdict_on(request, 1.5, 0.05))
    judging = judging_of(tmp_path, Pool(lambda _: None), evaluators, most=0)
    assert judge(judging, Candidate.propose(SOFTMAX.id, program("best"), "test")).measurements == ()
    assert len(evaluators.requests) == 1


def test_a_repetition_has_what_was_built_and_may_ask_for_more(tmp_path: Path) -> None:
    artifact = Artifact("a", "torch", "/built", "cpu")
    missing = Unbuilt(ExtensionRequest("late", (("main.cpp", "int f();"),)))
    answers = iter([(1.5, 0.05), missing, (1.3, 0.05)])

    def evaluate(request: Any) -> Any:
        answer = next(answers)
        return answer if answer is missing else verdict_on(request, *answer)

    builders, evaluators = Pool(lambda _: artifact), Pool(evaluate)
    judging = judging_of(tmp_path, builders, evaluators, most=3)
    verdict = judge(judging, Candidate.propose(SOFTMAX.id, compiling(1), "test"))
    assert verdict.speedup == pytest.approx(1.3)
    assert [(one.artifact, one.again) for one in evaluators.requests] == [
        (artifact, one) for one in (False, True, True)
    ]
    assert [(len(one.extensions), one.again) for one in builders.requests] == [(0, False), (1, True)]


def test_a_repetition_that_was_given_up_leaves_nothing_behind(tmp_path: Path) -> None:
    speedups = iter([1.5, 1.45, 1.4, 1.3])
    nothing = Pool(lambda _: None)
    evaluators = Pool(lambda request: verdict_on(request, next(speedups), 0.05))
    judging = judging_of(tmp_path, nothing, evaluators, most=3)
    candidate = Candidate.propose(SOFTMAX.id, program("late"), "test")
    gathering = Gathering((), samples=0, temperature=0.0, preset="fast")
    judging.propose(candidate, gathering)
    judging.advance()
    judging.give_up([candidate.digest], gathering)
    assert [one.value for one in judge(judging, candidate).measurements] == [1.4, 1.3]
    assert [request.again for request in evaluators.requests] == [False, True, False, True]


def best_scores(most: int, runs: int, counts: Sequence[int], folder: Path) -> tuple[list[float], float]:
    """The best score in the buffer after so many equally fast programs, and the measurements of a program.

    The score is the distance from the truth, in standard deviations of a measurement, and a mean over runs.
    """
    truth, deviation, measured = 1.3, 0.05, 0
    scores: dict[int, list[float]] = {count: [] for count in counts}
    candidates = [Candidate.propose(SOFTMAX.id, f"X = {number}", "test") for number in range(max(counts))]
    for seed in range(runs):
        rng = np.random.default_rng(seed)

        def evaluate(request: Any, rng: np.random.Generator = rng) -> Verdict:
            value = truth * (1 + deviation * rng.standard_normal())
            return verdict_on(request, value, 1.96 * deviation * truth)

        evaluators = Pool(evaluate)
        judging = judging_of(folder, Pool(lambda _: None), evaluators, most)
        buffer = ExemplarBuffer(BufferConfig(capacity=8), "cpu", 0)
        for number, candidate in enumerate(candidates, start=1):
            buffer.add(candidate, judge(judging, candidate), 0)
            if number in counts and (best := buffer.best(SOFTMAX.id)) is not None:
                scores[number].append((best.speedup / truth - 1) / deviation)
        measured += len(evaluators.requests)
    return [float(np.mean(scores[count])) for count in counts], measured / runs / max(counts)


def test_the_best_of_equal_programs_seems_the_faster_the_more_there_are_unless_it_is_measured_again(
    tmp_path: Path,
) -> None:
    """The largest of 10 and of 100 normal values lies 1.54 and 2.51 deviations above their mean."""
    (few, many), each = best_scores(0, 50, (10, 100), tmp_path)
    assert (few, many, each) == (pytest.approx(1.54, abs=0.25), pytest.approx(2.51, abs=0.25), 1.0)
    (_, repeated_once), _ = best_scores(1, 50, (10, 100), tmp_path)
    (_, repeated), each = best_scores(3, 50, (10, 100), tmp_path)
    assert repeated < 0.6 * many
    assert repeated < few, "the best of a hundred is less exaggerated than that of ten without repetitions"
    assert repeated < repeated_once < many, "the next choice is among repetitions, too"
    assert each < 1.4
