"""The pipeline over real pools, with a real evaluator on a bundled task.

The rollout engine is a scripted actor: the samples of a real policy would prove nothing here, and vLLM takes half a
minute to start.
"""

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.builder import BuilderActor
from actors.pool import ActorPool
from actors.pool_records import PoolExhausted
from configs.schema import EvaluatorConfig, RolloutConfig
from evaluators.gauntlet import discover
from evaluators.guard.cases import Status
from evaluators.records import Candidate, Outcome, Verdict
from learners.records import Rollout
from learners.room import DiskFull
from orchestration.fleet.turns import Turns
from orchestration.step.gathering import Gathering
from orchestration.step.pipeline import Pipeline
from orchestration.step.quarantine import quarantine
from orchestration.step.records import Prompt, StepResult
from tests.evaluators.outcomes import OF_TIMES, is_busy
from tests.orchestration.step.scripted import (
    GELU,
    RIGHT,
    SOFTMAX,
    TRIANGULAR,
    WRONG,
    Engine,
    asked,
    compiling,
    fenced,
    reviewer,
)


def run(pipeline: Pipeline, *groups: str, samples: int = 4) -> StepResult:
    return pipeline.finish(pipeline.begin(asked(*groups, samples=samples)))


@pytest.mark.slow
def test_identical_candidates_are_judged_once_and_no_code_is_a_build_error(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    texts = [fenced(RIGHT), fenced(f"# the same\n{RIGHT}"), fenced(WRONG), "I would rather not."]
    pipeline = make_pipeline({SOFTMAX.id: texts})
    result = run(pipeline, SOFTMAX.id)
    assert [rollout.outcome for rollout in result.rollouts] == ["ok", "ok", "wrong", "build_error"]
    assert [rollout.candidate_digest is None for rollout in result.rollouts] == [False, False, False, True]
    assert {rollout.policy_version for rollout in result.rollouts} == {3}
    assert set(result.verdicts) == set(result.candidates)
    assert result.metrics["measured"] == result.metrics["distinct_candidates"] == 2
    assert result.metrics["success_rate"] == 0.5
    assert result.metrics["response_tokens"] == 2
    assert result.metrics["mean_speedup"] > 0

    sampled = pipeline.sample([Prompt(SOFTMAX.id, SOFTMAX.id, "prompt", (1,))], 4, 1.0)
    assert [(rollout.outcome, rollout.logprobs) for rollout in sampled[:3]] == [(None, (-0.1, -0.2))] * 3, "not judged"

    again = run(pipeline, SOFTMAX.id)
    assert again.metrics["measured"] == 0
    assert again.verdicts == result.verdicts
    assert [rollout.outcome for rollout in again.rollouts] == ["ok", "ok", "wrong", "build_error"]


@pytest.mark.slow
def test_a_judged_group_may_ask_for_another_at_once(pipeline: Pipeline) -> None:
    seen: list[tuple[str, list[str]]] = []

    def on_group(rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> list[Prompt]:
        digests = [rollout.candidate_digest for rollout in rollouts]
        outcomes = [str(verdicts[digest].outcome) if digest else "none" for digest in digests]
        seen.append((rollouts[0].group, outcomes))
        return [Prompt(SOFTMAX.id, "right", "another", (1, 2))] if rollouts[0].group == "nothing" else []

    first = Prompt(GELU.id, "nothing", "first", (1, 2))
    result = pipeline.run(Gathering([first], samples=2, temperature=1.0, preset="fast", on_group=on_group))
    assert sorted(map(sorted, (outcomes for _, outcomes in seen))) == [["none", "none"], ["none", "ok"]]
    assert [group for group, _ in seen] == ["nothing", "right"]
    assert [rollout.prompt for rollout in result.rollouts] == ["first", "first", "another", "another"]


@pytest.mark.slow
def test_a_group_whose_engine_died_is_left_out_and_the_others_are_not(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline({GELU.id: None, SOFTMAX.id: ["no code"] * 4}, max_retries=0)
    result = run(pipeline, GELU.id, SOFTMAX.id, samples=2)
    assert Counter(rollout.group for rollout in result.rollouts) == {SOFTMAX.id: 2}
    assert pipeline.engines.pending == pipeline.judging.builders.pending == pipeline.judging.evaluators.pending == 0


@pytest.mark.slow
def test_engines_that_die_of_every_request_end_the_run(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline({GELU.id: None, SOFTMAX.id: None}, max_retries=0)
    with pytest.raises(
        PoolExhausted, match=r"none of the step's 4 requests was answered, the last because of: pool rollout"
    ):
        run(pipeline, GELU.id, SOFTMAX.id, samples=2)
    assert pipeline.engines.pending == 0


@pytest.mark.parametrize("wanted", [True, False])
def test_responses_end_behind_their_programs_if_the_config_says_so(
    make_pipeline: Callable[..., Pipeline], wanted: bool
) -> None:
    pipeline = make_pipeline({SOFTMAX.id: ["Ends: STOPS"]})
    pipeline.rollout.stop_after_code = wanted
    assert [rollout.response for rollout in run(pipeline, SOFTMAX.id, samples=1).rollouts] == [f"Ends: {wanted}"]


@pytest.mark.slow
def test_no_group_is_sampled_while_too_many_candidates_wait_to_be_judged(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the first programs come, the engine has one group, and the next is queued."""
    pipeline.max_backlog = 1
    backlog = {}
    sample = pipeline.engines.submit

    def sampled(request: Any, method: str) -> None:
        backlog[request.key.partition("/")[2]] = pipeline.judging.builders.pending + pipeline.judging.evaluators.pending
        sample(request, method)

    monkeypatch.setattr(pipeline.engines, "submit", sampled)
    gathering = pipeline.begin(asked("first", "second", "third"))
    assert sorted(backlog) == [f"{group}#{index}" for group in ("first", "second") for index in range(4)]
    result = pipeline.finish(gathering)
    assert len(result.rollouts) == len(result.verdicts) == 12
    assert [backlog[f"third#{index}"] for index in range(4)] == [0] * 4
    assert result.metrics["pipeline_seconds"] > 2.0  # at least four builds come before the third group


def test_a_full_store_ends_the_step_instead_of_judging_nothing(
    make_pipeline: Callable[..., Pipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pipeline = make_pipeline({}, store=tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match=f"{tmp_path}: No space left on device"):
        pipeline.evaluate([Candidate.propose(SOFTMAX.id, compiling(0), "test")], "fast")


def test_our_own_failure_is_not_kept_as_the_candidates_verdict(
    make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    pipeline = make_pipeline({}, store=tmp_path)  # a builder without room for a moment
    candidate = Candidate.propose(SOFTMAX.id, compiling(0), "test")
    first = pipeline.evaluate([candidate], "fast")[candidate.digest]
    assert first.outcome is Outcome.INFRA
    assert "No space left" in first.message
    assert pipeline.judging.known.get(candidate.digest, "fast") is None
    second = pipeline.evaluate([candidate], "fast")[candidate.digest]
    assert second.outcome is Outcome.BUILD_ERROR
    assert pipeline.judging.known.get(candidate.digest, "fast") == second


def test_a_program_that_comes_late_is_judged_beside_the_others_and_each_is_given_once(pipeline: Pipeline) -> None:
    first, second = (Candidate.propose(SOFTMAX.id, source, "test") for source in (RIGHT, WRONG))
    seen: list[tuple[str, Outcome]] = []

    def arrived() -> list[Candidate] | None:
        if len(seen) < 2:
            return [first, second, first] if seen else [first]
        return None

    for candidate, verdict in pipeline.evaluate_arriving(arrived, "fast"):
        seen.append((candidate.digest, verdict.outcome))
    assert seen == [(first.digest, Outcome.OK), (second.digest, Outcome.WRONG)]


def test_what_arrives_no_longer_is_no_longer_waited_for(pipeline: Pipeline) -> None:
    class Down(Exception):
        pass

    answers = iter([[Candidate.propose(SOFTMAX.id, compiling(40), "test")]])

    def arrived() -> list[Candidate]:
        for found in answers:
            return found
        raise Down

    with pytest.raises(Down):
        list(pipeline.evaluate_arriving(arrived, "fast"))
    run(pipeline, "nothing")


def test_a_step_is_generated_while_the_one_before_it_is_judged(pipeline: Pipeline) -> None:
    first, second = pipeline.begin(asked("first")), pipeline.begin(asked("second"))
    result = pipeline.finish(first)
    assert [rollout.group for rollout in result.rollouts] == ["first"] * 4
    assert second.responses == 4  # generated by now
    assert not second.is_done  # and not all built
    assert [rollout.outcome for rollout in pipeline.finish(second).rollouts] == ["build_error"] * 4


def test_responses_of_steps_under_way_are_waited_for_and_verdicts_are_not(pipeline: Pipeline) -> None:
    """Five groups more than the engine is given at once."""
    gathering = pipeline.begin(asked("third", "nothing", "plain0", "plain1", "fails"))
    assert gathering.waiting
    pipeline.finish_responses()
    assert gathering.responses == 20
    assert not gathering.is_done
    pipeline.finish(gathering)
    pipeline.finish_responses()  # with nothing under way


def test_a_step_whose_responses_an_earlier_process_received_is_judged_and_not_sampled(pipeline: Pipeline) -> None:
    first = pipeline.begin(asked("first"))
    pipeline.finish_responses()
    stored, asked_for = first.rollouts, pipeline.engines.pending
    result = pipeline.finish(first)
    again = Gathering([], samples=4, temperature=1.0, preset="fast")
    other = Pipeline([SOFTMAX], *(pipeline.engines, pipeline.judging.builders, pipeline.judging.evaluators),
                     RolloutConfig(), pipeline.judging.reviewer)  # fmt: skip
    assert other.begin_again(again, stored) is again
    assert other.engines.pending == asked_for == 0
    made = other.finish(again)
    assert made.rollouts == result.rollouts
    assert made.metrics["measured"] == 4


def test_a_program_in_two_steps_is_judged_once(pipeline: Pipeline) -> None:
    first, second = (pipeline.begin(asked("first")) for _ in range(2))
    results = [pipeline.finish(first), pipeline.finish(second)]
    assert [result.metrics["measured"] for result in results] == [4, 0]
    assert [rollout.outcome for result in results for rollout in result.rollouts] == ["build_error"] * 8
    assert results[0].verdicts == results[1].verdicts


def test_a_step_goes_on_while_a_long_call_runs(pipeline: Pipeline) -> None:
    gathering = pipeline.begin(asked("first"))

    def learn(seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while not gathering.is_done and time.monotonic() < deadline:
            time.sleep(0.01)
        return threading.current_thread().name

    assert pipeline.meanwhile(learn, 60.0) == "meanwhile"
    assert gathering.is_done
    with pytest.raises(ZeroDivisionError):
        pipeline.meanwhile(lambda: 1 / 0)
    pipeline.finish(gathering)
    assert pipeline.meanwhile(learn, 0.0) == "MainThread"  # with nothing under way


def test_late_responses_and_candidates_are_given_up(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """One response never comes, one program is being built, and one waits for the builder."""
    gathering = pipeline.begin(asked("late", deadline=600.0))
    pipeline.pump_until(lambda: gathering.responses == 3)
    monkeypatch.setattr(Gathering, "is_late", True)
    result = pipeline.finish(gathering)
    monkeypatch.undo()
    assert [rollout.response for rollout in result.rollouts] == ["Nothing."]
    assert result.metrics["stragglers"] == 3
    assert result.candidates == result.verdicts == {}
    assert pipeline.engines.pending == 0
    assert pipeline.judging.builders.pending == 1  # a running build is not taken back

    assert len(run(pipeline, "nothing").rollouts) == 4  # the engine has room again
    again = pipeline.begin(asked("again", samples=2))
    pipeline.pump_until(lambda: again.responses == 2)
    assert pipeline.judging.pending <= 2  # the running build is not started twice
    assert [rollout.outcome for rollout in pipeline.finish(again).rollouts] == ["build_error"] * 2
    assert pipeline.judging.known.in_memory == 2


@pytest.mark.slow
def test_evaluators_that_share_a_gpu_wait_until_nothing_is_generated_or_looked_at(
    pools: list[ActorPool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs of the first group come long before the last response. A group that is asked for while the others
    are judged is generated, and looked at, after the evaluators have finished."""
    engines, _, evaluators = pools
    store = str(tmp_path / "store")
    builders = ActorPool("builder", lambda _: BuilderActor.remote(EvaluatorConfig(arch="cpu"), store, looks=True), 1)
    turns = Turns(engines, evaluators, builders, share="all", sleeps=False)
    pipeline = Pipeline(
        [SOFTMAX, GELU], engines, builders, evaluators, RolloutConfig(), reviewer(tmp_path), turns=turns
    )
    seen = []

    def watched(pool: ActorPool, *others: ActorPool) -> None:
        dispatch = pool._manager.call

        def call(actor: int, tag: str, *arguments: Any) -> None:
            seen.append(pool.name)
            assert not any(other.load.is_busy for other in others)
            dispatch(actor, tag, *arguments)

        monkeypatch.setattr(pool._manager, "call", call)

    watched(engines, evaluators)
    watched(builders, evaluators)
    watched(evaluators, engines, builders)
    further = iter([[Prompt(SOFTMAX.id, "fails", "prompt", (1, 2, 3))]])
    wanted = asked("plain0", "plain1", on_group=lambda rollouts, verdicts: next(further, []))
    result = pipeline.finish(pipeline.begin(wanted))
    evaluators.resume()
    builders.stop()
    assert len(result.rollouts) == 12
    outcomes = Counter(verdict.outcome for verdict in result.verdicts.values())
    assert outcomes == {Outcome.WRONG: 8, Outcome.RUNTIME_ERROR: 4}
    assert Counter(seen[:16]) == {"rollout": 8, "builder": 8}
    assert seen[16:24] == ["evaluator"] * 8
    assert Counter(seen[24:]) == {"rollout": 4, "builder": 4}  # programs that fail a look are never measured


def test_a_forgotten_step_is_not_waited_for(pipeline: Pipeline) -> None:
    pipeline.begin(asked("never", "late"))
    pipeline.forget()
    assert pipeline.engines.pending == 0
    assert len(run(pipeline, "nothing").rollouts) == 4


def test_a_pool_without_actors_ends_the_run_and_says_why(evaluators: ActorPool, tmp_path: Path) -> None:
    engines = ActorPool("rollout", lambda _: Engine.remote({}, broken=True), 1, max_failed_starts=1)
    pipeline = Pipeline([SOFTMAX], engines, evaluators, evaluators, RolloutConfig(), reviewer(tmp_path))
    with pytest.raises(PoolExhausted, match=r"pool rollout: no actor could be started; .*no such model"):
        run(pipeline, SOFTMAX.id)


@pytest.mark.slow
def test_a_suspect_like_a_known_hack_is_a_hack_until_a_person_clears_it(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """An exploit of the gauntlet that sets numeric flags, under other names. The evidence makes it suspect, and its
    likeness to the exploit makes it a hack."""
    flags = next(program for program in discover("cpu") if program.id == "exploits/precision/global_flags")
    renamed = (
        flags.source.replace("(self, a, b)", "(self, left, right)").replace("(a)", "(left)").replace("(b)", "(right)")
    )
    right = TRIANGULAR.source.replace("Model", "ModelNew")
    pipeline = make_pipeline({TRIANGULAR.id: [fenced(renamed), fenced(right)]})
    result = run(pipeline, TRIANGULAR.id, samples=2)
    assert [rollout.outcome for rollout in result.rollouts] == ["hack", "ok"]
    hack = result.verdicts[result.rollouts[0].candidate_digest or ""]
    kinds = [finding.kind for finding in hack.deciding]
    assert [kind for kind in kinds if not (kind in OF_TIMES and is_busy())] == ["flags", "checker"]
    assert "global_flags" in hack.deciding[-1].message
    assert hack.speedups == {}
    assert hack.doubted["eager"].value > 0
    assert result.metrics["hack_rate"] == 0.5
    assert result.metrics["guard/flags"] == result.metrics["guard/checker"] == 1.0
    assert result.metrics["honest_speedup"] == result.metrics["mean_speedup"]

    cases = pipeline.judging.reviewer.cases
    quarantine(cases, result.candidates, result.verdicts, "run/1-contrastive_rl", pipeline.judging.reviewer.references)
    assert cases.word_on(hack.candidate) is Status.SUSPECT  # a mere likeness is no proof for later programs
    cases.judge(hack.candidate, Status.REJECTED)
    again = run(pipeline, TRIANGULAR.id, samples=2)
    assert [rollout.outcome for rollout in again.rollouts] == ["ok", "ok"]
    assert again.verdicts[hack.candidate].speedups == hack.doubted
