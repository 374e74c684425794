"""The pipeline over real pools, and a real evaluator on a bundled task. The rollout engine is a scripted actor: what a
policy happens to sample would decide nothing here, and vLLM takes half a minute to start."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.evaluator import EvaluatorActor
from actors.pool import ActorPool, PoolExhausted
from actors.rollout import Completion
from configs.schema import EvaluatorConfig, GuardConfig, RolloutConfig
from evaluators.gauntlet import discover
from evaluators.guard.cases import HackCases, Status
from evaluators.records import BuildError, Candidate, Outcome, Verdict
from evaluators.tasks import find_task, program_source
from evaluators.tasks.loader import load_variants
from learners.records import Rollout
from orchestration.pipeline import Pipeline, Prompt, StepResult
from orchestration.quarantine import quarantine
from orchestration.review import Reviewer

SOFTMAX, GELU = find_task("level1/softmax", "cpu"), find_task("level1/gelu_tanh", "cpu")
PROGRAMS = {variant.name: variant.source for variant in load_variants(SOFTMAX.id)}
RIGHT, WRONG = PROGRAMS["log_softmax"], PROGRAMS["wrong_axis"]


def fenced(source: str) -> str:
    return f"## Code Implementation\n```python\n{source}\n```\n"


def scripted_actors() -> tuple[Any, Any]:
    """Local classes, which Ray sends by value."""

    @ray.remote(num_cpus=0)
    class Engine:
        """Answers the request of a group with the script's texts for it; None ends the actor."""

        def __init__(self, script: dict[str, list[str] | None], broken: bool = False) -> None:
            if broken:
                raise ValueError("no such model")
            self.script = script

        def ping(self) -> str:
            return "pong"

        def apply(self, func: Callable[..., Any], **keywords: Any) -> Any:
            return func(self, **keywords)

        def generate(self, request: Any) -> list[Completion]:
            texts = self.script[request.key]
            if texts is None:
                os._exit(1)
            return [Completion(text, (5, 6), (-0.1, -0.2), "stop", 3) for text in texts]

    @ray.remote(num_cpus=0)
    class Builder:
        """Fails on its own account the first time; afterwards nothing compiles."""

        def __init__(self) -> None:
            self.asked = 0

        def ping(self) -> str:
            return "pong"

        def apply(self, func: Callable[..., Any], **keywords: Any) -> Any:
            return func(self, **keywords)

        def build(self, request: Any) -> BuildError:
            self.asked += 1
            if self.asked == 1:
                raise OSError("no space left on device")
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

    def make(script: dict[str, list[str] | None], **options: Any) -> Pipeline:
        engines = ActorPool("rollout", lambda _: Engine.remote(script), 1, **{"timeout": 30.0, **options})
        builders = ActorPool("builder", lambda _: Builder.remote(), 1, timeout=30.0)
        pools.extend([engines, builders])
        return Pipeline([SOFTMAX, GELU], engines, builders, evaluators, RolloutConfig(), reviewer(tmp_path))

    yield make
    for pool in pools:
        pool.stop()


def run(pipeline: Pipeline, *groups: str) -> StepResult:
    prompts = [Prompt(group, group, f"prompt of {group}", (1, 2, 3)) for group in groups]
    return pipeline.run(prompts, samples=4, temperature=1.0, preset="fast")


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
def test_a_group_may_ask_for_another_as_soon_as_it_is_judged(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline({SOFTMAX.id: [fenced(RIGHT), "Nothing."], GELU.id: ["Nothing.", "Nothing."]})
    seen: list[tuple[str, list[str]]] = []

    def on_group(rollouts: Sequence[Rollout], verdicts: Mapping[str, Verdict]) -> Prompt | None:
        verdict = [verdicts[one.candidate_digest].outcome if one.candidate_digest else "none" for one in rollouts]
        seen.append((rollouts[0].group, [str(one) for one in verdict]))
        return Prompt(SOFTMAX.id, SOFTMAX.id, "another", (1, 2)) if rollouts[0].group == GELU.id else None

    first = Prompt(GELU.id, GELU.id, "first", (1, 2))
    result = pipeline.run([first], samples=2, temperature=1.0, preset="fast", on_group=on_group)
    assert seen == [(GELU.id, ["none", "none"]), (SOFTMAX.id, ["ok", "none"])]
    assert [rollout.prompt for rollout in result.rollouts] == ["first", "first", "another", "another"]


@pytest.mark.timeout(60)
def test_a_group_whose_engine_died_is_left_out_and_the_others_come_back(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline({GELU.id: None, SOFTMAX.id: ["no code"] * 4}, max_retries=0)
    result = run(pipeline, GELU.id, SOFTMAX.id)
    assert Counter(rollout.group for rollout in result.rollouts) == {SOFTMAX.id: 4}
    assert pipeline.engines.pending == pipeline.builders.pending == pipeline.evaluators.pending == 0


def test_no_group_is_sampled_while_too_many_candidates_wait_to_be_judged(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that compile, for a builder of its own pace; two groups bring two each."""
    sources = [
        f"import torch\nModelNew = torch.compile(torch.nn.Softmax)  # {number}\nX = {number}" for number in range(4)
    ]
    pipeline = make_pipeline({SOFTMAX.id: [*map(fenced, sources[:2])], GELU.id: [*map(fenced, sources[2:])]})
    pipeline.max_backlog = 1
    monkeypatch.setattr("orchestration.pipeline._POLL_SECONDS", 30.0)  # on a busy machine, a group is begun meanwhile
    events = []
    sample, build = pipeline.engines.submit, pipeline.builders.submit

    def sampled(request: Any, method: str) -> None:
        events.append((request.key, pipeline.builders.pending + pipeline.evaluators.pending))
        sample(request, method)

    def built(request: Any, method: str) -> None:
        events.append("build")
        build(request, method)

    monkeypatch.setattr(pipeline.engines, "submit", sampled)
    monkeypatch.setattr(pipeline.builders, "submit", built)
    result = run(pipeline, SOFTMAX.id, GELU.id)
    assert len(result.rollouts) == 4
    assert events == [(SOFTMAX.id, 0), "build", "build", (GELU.id, 0), "build", "build"]


def test_our_own_failure_is_not_remembered_as_the_candidates(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline({})
    compiling = Candidate.propose(SOFTMAX.id, "import torch\nModelNew = torch.compile(torch.nn.Softmax)", "test")
    first = pipeline.evaluate([compiling], "fast")[compiling.digest]
    assert first.outcome is Outcome.INFRA
    assert "no space left" in first.message
    assert pipeline.verdicts == {}
    second = pipeline.evaluate([compiling], "fast")[compiling.digest]
    assert second.outcome is Outcome.BUILD_ERROR
    assert pipeline.verdicts == {(compiling.digest, "fast"): second}


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
    result = run(pipeline, SOFTMAX.id)
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
    again = run(pipeline, SOFTMAX.id)
    assert [rollout.outcome for rollout in again.rollouts] == ["ok", "ok"]
    assert again.verdicts[hack.candidate].speedups == hack.doubted
