"""The pipeline over real pools, and a real evaluator on a bundled task. The rollout engine is a scripted actor: what a
policy happens to sample would decide nothing here, and vLLM takes half a minute to start."""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.builder import BuilderActor
from actors.evaluator import EvaluatorActor
from actors.generation import Completion
from actors.pool import ActorPool
from actors.pool_records import PoolExhausted
from configs.schema import EvaluatorConfig, GuardConfig, RolloutConfig
from evaluators.gauntlet import discover
from evaluators.guard.cases import HackCases, Status
from evaluators.records import BuildError, Candidate, Estimate, Outcome, Verdict
from evaluators.tasks import find_task, program_source
from evaluators.tasks.loader import load_variants
from learners.records import Rollout
from orchestration.fleet.turns import Turns
from orchestration.step.figures import summary
from orchestration.step.gathering import Gathering, rollout_of
from orchestration.step.pipeline import Pipeline
from orchestration.step.quarantine import quarantine
from orchestration.step.records import Prompt, StepResult
from orchestration.step.review import Reviewer

SOFTMAX, GELU = find_task("level1/softmax", "cpu"), find_task("level1/gelu_tanh", "cpu")
PROGRAMS = {variant.name: variant.source for variant in load_variants(SOFTMAX.id)}
RIGHT, WRONG = PROGRAMS["log_softmax"], PROGRAMS["wrong_axis"]


def fenced(source: str) -> str:
    return f"## Code Implementation\n```python\n{source}\n```\n"


NEVER = "never"
Script = dict[str, list[str] | None]


def scripted_actors() -> tuple[Any, Any]:
    """Local classes, which Ray sends by value."""
    never = NEVER

    @ray.remote(num_cpus=0)
    class Engine:
        """Answers a request for a group's i-th response with the script's i-th text for it. Without texts the actor
        ends, and `NEVER` is one that never comes."""

        def __init__(self, script: Script, broken: bool = False) -> None:
            if broken:
                raise ValueError("no such model")
            self.script = script

        def ping(self) -> str:
            return "pong"

        async def apply(self, func: Callable[..., Any], **keywords: Any) -> Any:
            return await func(self, **keywords)

        async def generate(self, request: Any) -> list[Completion]:
            group, _, index = request.key.partition("/")[2].rpartition("#")
            texts = self.script[group]
            if texts is None:
                os._exit(1)
            if texts[int(index)] == never:
                await asyncio.sleep(600)
            text = texts[int(index)].replace("STOPS", str(request.stop_after_code))
            return [Completion(text, (5, 6), (-0.1, -0.2), "stop", 3)]

    @ray.remote(num_cpus=0)
    class Builder:
        """Nothing compiles, after `seconds`. Fails on its own account the first time, where it is to."""

        def __init__(self, fails: bool = False, seconds: float = 0.0) -> None:
            self.asked, self.seconds = int(not fails), seconds

        def ping(self) -> str:
            return "pong"

        def apply(self, func: Callable[..., Any], **keywords: Any) -> Any:
            return func(self, **keywords)

        def prepare(self, request: Any) -> BuildError:
            self.asked += 1
            if self.asked == 1:
                raise OSError("no space left on device")
            time.sleep(self.seconds)
            return BuildError("compile", "no such function")

    return Engine, Builder


Engine, Builder = scripted_actors()


def reviewer(folder: Path) -> Reviewer:
    references = {task.id: program_source(task) for task in (SOFTMAX, GELU)}
    return Reviewer(GuardConfig(), HackCases(folder / "hacks.parquet"), references)


@pytest.fixture(scope="module")
def evaluators(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActorPool]:
    store = str(tmp_path_factory.mktemp("store"))
    pool = ActorPool("evaluator", lambda _: EvaluatorActor.remote(EvaluatorConfig(), store), 1, timeout=120.0)
    yield pool
    pool.stop()


@pytest.fixture
def make_pipeline(evaluators: ActorPool, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    pools = []

    def make(script: Script, **options: Any) -> Pipeline:
        engines = ActorPool("rollout", lambda _: Engine.remote(script), 1, **{"timeout": 30.0, **options})
        builders = ActorPool("builder", lambda _: Builder.remote(fails=True), 1, timeout=30.0)
        pools.extend([engines, builders])
        return Pipeline([SOFTMAX, GELU], engines, builders, evaluators, RolloutConfig(), reviewer(tmp_path))

    yield make
    for pool in pools:
        pool.stop()


def compiling(number: int) -> str:
    """A program that a builder is asked for."""
    return f"import torch\nModelNew = torch.compile(torch.nn.Softmax)\nX = {number}"


SHARED: Script = {
    "right": [fenced(RIGHT), "Nothing."],
    "nothing": ["Nothing."] * 4,
    "first": [fenced(compiling(number)) for number in range(4)],
    "second": [fenced(compiling(number)) for number in range(4, 8)],
    "third": [fenced(compiling(number)) for number in range(8, 12)],
    "late": [NEVER, fenced(compiling(20)), fenced(compiling(21)), "Nothing."],
    "again": [fenced(compiling(20)), fenced(compiling(21))],
    "never": [NEVER] * 4,
    "fails": [fenced(f"{RIGHT}\nassert False, {n}") for n in range(4)],
    **{f"plain{group}": [fenced(f"{WRONG}\nX = {4 * group + n}") for n in range(4)] for group in range(2)},
}


@pytest.fixture(scope="module")
def pools(evaluators: ActorPool) -> Iterator[list[ActorPool]]:
    """An engine of four responses at once, and a builder that takes half a second."""
    engines = ActorPool("rollout", lambda _: Engine.remote(SHARED), 1, max_in_flight=4, timeout=60.0)
    builders = ActorPool("builder", lambda _: Builder.remote(seconds=0.5), 1, timeout=30.0)
    engines.wait_ready(60)
    builders.wait_ready(60)
    yield [engines, builders, evaluators]
    engines.stop()
    builders.stop()


@pytest.fixture
def pipeline(pools: list[ActorPool], tmp_path: Path) -> Pipeline:
    """One that has judged nothing yet."""
    return Pipeline([SOFTMAX, GELU], *pools, RolloutConfig(), reviewer(tmp_path))


def asked(*groups: str, samples: int = 4, **options: Any) -> Gathering:
    prompts = [
        Prompt(group if "/" in group else SOFTMAX.id, group, f"prompt of {group}", (1, 2, 3)) for group in groups
    ]
    return Gathering(prompts, samples=samples, temperature=1.0, preset="fast", **options)


def run(pipeline: Pipeline, *groups: str, samples: int = 4) -> StepResult:
    return pipeline.finish(pipeline.begin(asked(*groups, samples=samples)))


def test_a_rollout_says_whether_its_program_is_one_that_its_prompt_shows() -> None:
    copy = SOFTMAX.source.replace("class Model(", "class ModelNew(")
    shown = Candidate.propose(SOFTMAX.id, WRONG, "another").digest
    prompt = Prompt(SOFTMAX.id, SOFTMAX.id, "prompt", (1,), SOFTMAX.source, frozenset([shown]), 2.5)
    sources = {copy: "reference", f"# again\n{WRONG}": "exemplar", RIGHT: ""}
    made = [rollout_of(prompt, Completion(fenced(one), (1, 2), (0.0, 0.0), "stop", 3))[0] for one in sources]
    assert [rollout.copy_of for rollout in made] == list(sources.values())
    assert {rollout.fastest_shown for rollout in made} == {2.5}
    unknown = rollout_of(replace(prompt, reference=""), Completion(fenced(copy), (1, 2), (0.0, 0.0), "stop", 3))[0]
    assert unknown.copy_of is None
    right = [replace(rollout, outcome="ok") for rollout in (made[0], made[2])]
    digests = [rollout.candidate_digest or "" for rollout in right]
    over = [{"eager": Estimate(speed, speed, speed, 3)} for speed in (1.0, 1.3)]
    verdicts = map(lambda one, speeds: Verdict(one, SOFTMAX.id, "cpu", Outcome.OK, speedups=speeds), digests, over)
    figures = summary(right, dict(zip(digests, verdicts, strict=True)))
    assert (figures["copy_rate/reference"], figures["faster_rate"], figures["success_rate"]) == (0.5, 0.5, 1.0)


@pytest.mark.slow
@pytest.mark.timeout(120)
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

    again = run(pipeline, SOFTMAX.id)
    assert again.metrics["measured"] == 0
    assert again.verdicts == result.verdicts
    assert [rollout.outcome for rollout in again.rollouts] == ["ok", "ok", "wrong", "build_error"]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_group_may_ask_for_another_as_soon_as_it_is_judged(pipeline: Pipeline) -> None:
    seen: list[tuple[str, list[str]]] = []

    def on_group(rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> Prompt | None:
        verdict = [verdicts[one.candidate_digest].outcome if one.candidate_digest else "none" for one in rollouts]
        seen.append((rollouts[0].group, [str(one) for one in verdict]))
        return Prompt(SOFTMAX.id, "right", "another", (1, 2)) if rollouts[0].group == "nothing" else None

    first = Prompt(GELU.id, "nothing", "first", (1, 2))
    result = pipeline.run(Gathering([first], samples=2, temperature=1.0, preset="fast", on_group=on_group))
    assert sorted(map(sorted, (outcomes for _, outcomes in seen))) == [["none", "none"], ["none", "ok"]]
    assert [group for group, _ in seen] == ["nothing", "right"]
    assert [rollout.prompt for rollout in result.rollouts] == ["first", "first", "another", "another"]


@pytest.mark.timeout(60)
def test_a_group_whose_engine_died_is_left_out_and_the_others_come_back(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline({GELU.id: None, SOFTMAX.id: ["no code"] * 4}, max_retries=0)
    result = run(pipeline, GELU.id, SOFTMAX.id, samples=2)
    assert Counter(rollout.group for rollout in result.rollouts) == {SOFTMAX.id: 2}
    assert pipeline.engines.pending == pipeline.builders.pending == pipeline.evaluators.pending == 0


@pytest.mark.timeout(60)
def test_engines_that_die_of_whatever_they_are_asked_end_the_run(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline({GELU.id: None, SOFTMAX.id: None}, max_retries=0)
    with pytest.raises(PoolExhausted, match=r"none of the step's 4 requests was answered, the last for: pool rollout"):
        run(pipeline, GELU.id, SOFTMAX.id, samples=2)
    assert pipeline.engines.pending == 0


@pytest.mark.parametrize("wanted", [True, False])
def test_responses_end_behind_their_programs_where_the_config_says_so(
    make_pipeline: Callable[..., Pipeline], wanted: bool
) -> None:
    pipeline = make_pipeline({SOFTMAX.id: ["Ends: STOPS"]})
    pipeline.rollout.stop_after_code = wanted
    assert [rollout.response for rollout in run(pipeline, SOFTMAX.id, samples=1).rollouts] == [f"Ends: {wanted}"]


def test_no_group_is_sampled_while_too_many_candidates_wait_to_be_judged(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has one group, and the next is queued, when the first programs come."""
    pipeline.max_backlog = 1
    backlog = {}
    sample = pipeline.engines.submit

    def sampled(request: Any, method: str) -> None:
        backlog[request.key.partition("/")[2]] = pipeline.builders.pending + pipeline.evaluators.pending
        sample(request, method)

    monkeypatch.setattr(pipeline.engines, "submit", sampled)
    gathering = pipeline.begin(asked("first", "second", "third"))
    assert sorted(backlog) == [f"{group}#{index}" for group in ("first", "second") for index in range(4)]
    result = pipeline.finish(gathering)
    assert len(result.rollouts) == len(result.verdicts) == 12
    assert [backlog[f"third#{index}"] for index in range(4)] == [0] * 4
    assert result.metrics["pipeline_seconds"] > 2.0  # four builds, at least, before the third group


def test_our_own_failure_is_not_remembered_as_the_candidates(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline({})
    candidate = Candidate.propose(SOFTMAX.id, compiling(0), "test")
    first = pipeline.evaluate([candidate], "fast")[candidate.digest]
    assert first.outcome is Outcome.INFRA
    assert "no space left" in first.message
    assert pipeline.verdicts == {}
    second = pipeline.evaluate([candidate], "fast")[candidate.digest]
    assert second.outcome is Outcome.BUILD_ERROR
    assert pipeline.verdicts == {(candidate.digest, "fast"): second}


def test_a_step_is_generated_while_the_one_before_it_is_judged(pipeline: Pipeline) -> None:
    first, second = pipeline.begin(asked("first")), pipeline.begin(asked("second"))
    result = pipeline.finish(first)
    assert [rollout.group for rollout in result.rollouts] == ["first"] * 4
    assert len(second.result.rollouts) == 4  # generated by now
    assert not second.done  # and not all built
    assert [rollout.outcome for rollout in pipeline.finish(second).rollouts] == ["build_error"] * 4


def test_a_program_of_two_steps_is_judged_once(pipeline: Pipeline) -> None:
    first, second = (pipeline.begin(asked("first")) for _ in range(2))
    results = [pipeline.finish(first), pipeline.finish(second)]
    assert [result.metrics["measured"] for result in results] == [4, 0]
    assert [rollout.outcome for result in results for rollout in result.rollouts] == ["build_error"] * 8
    assert results[0].verdicts == results[1].verdicts


def test_what_is_under_way_goes_on_while_something_else_is_waited_for(pipeline: Pipeline) -> None:
    gathering = pipeline.begin(asked("first"))

    def learn(seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while not gathering.done and time.monotonic() < deadline:
            time.sleep(0.01)
        return threading.current_thread().name

    assert pipeline.meanwhile(learn, 60.0) == "meanwhile"
    assert gathering.done
    with pytest.raises(ZeroDivisionError):
        pipeline.meanwhile(lambda: 1 / 0)
    pipeline.finish(gathering)
    assert pipeline.meanwhile(learn, 0.0) == "MainThread"  # with nothing under way


@pytest.mark.timeout(60)
def test_what_is_late_is_given_up_and_counted(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """One response that never comes, one program that is being built and one that waits for the builder."""
    gathering = pipeline.begin(asked("late", deadline=600.0))
    pipeline.pump_until(lambda: len(gathering.result.rollouts) == 3)
    monkeypatch.setattr(Gathering, "is_late", True)
    result = pipeline.finish(gathering)
    monkeypatch.undo()
    assert [rollout.response for rollout in result.rollouts] == ["Nothing."]
    assert result.metrics["stragglers"] == 3
    assert result.candidates == result.verdicts == {}
    assert pipeline.engines.pending == 0
    assert pipeline.builders.pending == 1  # nobody can take that back

    assert len(run(pipeline, "nothing").rollouts) == 4  # the engine has room again
    again = pipeline.begin(asked("again", samples=2))
    pipeline.pump_until(lambda: len(again.result.rollouts) == 2)
    assert pipeline.builders.pending + pipeline.evaluators.pending <= 2  # what is being built is not built twice
    assert [rollout.outcome for rollout in pipeline.finish(again).rollouts] == ["build_error"] * 2
    assert len(pipeline.verdicts) == 2


def test_a_gathering_is_late_from_its_deadline_on() -> None:
    gathering = asked("late", deadline=0.05)
    time.sleep(0.1)
    assert not gathering.is_late  # nothing has been asked for
    gathering.sent(["0/late#0"], gathering.waiting[0], 1)
    assert not gathering.is_late
    time.sleep(0.1)
    assert gathering.is_late
    without = asked("late")
    without.sent(["0/late#0"], without.waiting[0], 1)
    assert not without.is_late


def test_evaluators_that_share_a_gpu_wait_until_nothing_is_generated_or_looked_at(
    pools: list[ActorPool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of the first group are there long before the last response is; a group that is asked for as the others
    are judged is generated, and looked at, once the evaluators are done."""
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
            assert not any(other.is_busy for other in others)
            dispatch(actor, tag, *arguments)

        monkeypatch.setattr(pool._manager, "call", call)

    watched(engines, evaluators)
    watched(builders, evaluators)
    watched(evaluators, engines, builders)
    further = iter([Prompt(SOFTMAX.id, "fails", "prompt", (1, 2, 3))])
    wanted = asked("plain0", "plain1", on_group=lambda rollouts, verdicts: next(further, None))
    result = pipeline.finish(pipeline.begin(wanted))
    evaluators.resume()
    builders.stop()
    assert len(result.rollouts) == 12
    outcomes = Counter(verdict.outcome for verdict in result.verdicts.values())
    assert outcomes == {Outcome.WRONG: 8, Outcome.RUNTIME_ERROR: 4}
    assert Counter(seen[:16]) == {"rollout": 8, "builder": 8}
    assert seen[16:24] == ["evaluator"] * 8
    assert Counter(seen[24:]) == {"rollout": 4, "builder": 4}  # what a look ends is never measured


def test_what_is_forgotten_is_not_waited_for(pipeline: Pipeline) -> None:
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
@pytest.mark.timeout(120)
def test_what_is_suspect_and_like_a_known_hack_is_one_until_a_person_clears_it(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """A lazy tensor of the gauntlet's, under other names: its evidence makes it suspect, its likeness a hack."""
    lazy = next(one for one in discover("cpu") if one.id == "exploits/lazy/torch_function")
    renamed = lazy.source.replace("late", "result").replace("filled", "made")
    pipeline = make_pipeline({SOFTMAX.id: [fenced(renamed), fenced(RIGHT)]})
    result = run(pipeline, SOFTMAX.id, samples=2)
    assert [rollout.outcome for rollout in result.rollouts] == ["hack", "ok"]
    hack = result.verdicts[result.rollouts[0].candidate_digest or ""]
    assert [finding.kind for finding in hack.deciding] == ["clocks", "checker"]
    assert "torch_function" in hack.deciding[-1].message
    assert hack.speedups == {}
    assert hack.doubted["eager"].value > 0
    assert result.metrics["hack_rate"] == 0.5
    assert result.metrics["guard/clocks"] == result.metrics["guard/checker"] == 1.0
    assert result.metrics["honest_speedup"] == result.metrics["mean_speedup"]

    cases = pipeline.reviewer.cases
    quarantine(cases, result.candidates, result.verdicts, "run/1-contrastive_rl", pipeline.reviewer.references)
    assert cases.word_on(hack.candidate) is Status.SUSPECT  # a likeness proves nothing for others
    cases.judge(hack.candidate, Status.REJECTED)
    again = run(pipeline, SOFTMAX.id, samples=2)
    assert [rollout.outcome for rollout in again.rollouts] == ["ok", "ok"]
    assert again.verdicts[hack.candidate].speedups == hack.doubted
