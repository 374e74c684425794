"""What a step's programs cost: each is judged once, and what fails anywhere never reaches an evaluator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.builder import BuilderActor
from actors.evaluation import BuildRequest
from actors.pool import ActorPool
from configs.schema import EvaluatorConfig, GuardConfig, RolloutConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Candidate, Outcome, Verdict
from learners.records import Rollout
from orchestration.step.pipeline import Pipeline
from orchestration.step.records import Prompt
from orchestration.step.review import Reviewer
from tests.orchestration.step.scripted import (
    NEVER,
    RIGHT,
    SOFTMAX,
    Builder,
    Engine,
    Evaluator,
    asked,
    compiling,
    digest_of_program,
    fenced,
    program,
)

SPEEDS = {"one": (0.9, 0.05), "two": (0.8, 0.05), "slow": NEVER}
FAILS = f"{RIGHT}\nassert nothing"


class Stand:
    """Pipelines over one scripted engine, one builder and one scripted evaluator."""

    def __init__(self, folder: Path, groups: dict[str, list[str]], builder: Any, **options: Any) -> None:
        script = {digest_of_program(name): [speed] for name, speed in SPEEDS.items()}
        script |= {Candidate.propose(SOFTMAX.id, RIGHT, "").digest: [(0.7, 0.05)]}
        self.evaluator = Evaluator.remote(script)
        self.pools = [
            ActorPool("rollout", lambda _: Engine.remote(groups), 1, timeout=30.0),
            ActorPool("builder", lambda _: builder, 1, timeout=60.0),
            ActorPool("evaluator", lambda _: self.evaluator, 1, timeout=30.0, max_retries=0),
        ]
        reviewer = Reviewer(GuardConfig(), HackCases(folder / "hacks.parquet"), {SOFTMAX.id: SOFTMAX.source})
        self.pipeline = Pipeline([SOFTMAX], *self.pools, RolloutConfig(), reviewer, **options)

    def evaluated(self) -> Counter[str]:
        """How often the evaluator was asked about each program, by digest."""
        return Counter(digest for digest, _ in ray.get(self.evaluator.requests.remote()))


@pytest.fixture
def stands(local_ray: None) -> Iterator[list[Stand]]:
    made: list[Stand] = []
    yield made
    for one in made:
        for pool in one.pools:
            pool.stop()


def test_duplicates_of_a_step_are_judged_once(stands: list[Stand], tmp_path: Path) -> None:
    """Within a group, in another group of the step, and in the next step."""
    one, two = program("one"), program("two")
    groups = {
        "first": [fenced(one), fenced(f"# the same\n{one}"), fenced(two), fenced(one.replace("\n\n\n", "\n"))],
        "second": [fenced(two), fenced(two), fenced(one), "Nothing."],
    }
    stand = Stand(tmp_path, groups, Builder.remote())
    stands.append(stand)
    for _ in range(2):
        result = stand.pipeline.run(asked("first", "second"))
        assert Counter(rollout.outcome for rollout in result.rollouts) == {"ok": 7, "build_error": 1}
        assert len(result.verdicts) == result.metrics["distinct_candidates"] == 2
    assert result.metrics["measured"] == 0
    assert stand.evaluated() == {digest_of_program("one"): 1, digest_of_program("two"): 1}


@pytest.mark.slow
def test_nobody_waits_for_a_duplicate(stands: list[Stand], tmp_path: Path) -> None:
    """The evaluator never ends with another program of the step, so it can have judged no duplicate."""
    groups = {"known": [fenced(program("one"))] * 4, "slow": [fenced(program("slow"))] * 4}
    stand = Stand(tmp_path, groups, Builder.remote())
    stands.append(stand)
    pipeline, closed = stand.pipeline, []
    pipeline.evaluate([Candidate.propose(SOFTMAX.id, program("one"), "test")], "fast")

    def close(rollouts: Sequence[Rollout], _: Mapping[str, Verdict]) -> list[Prompt]:
        closed.append(rollouts[0].group)
        return []

    gathering = asked("slow", "known", on_group=close)
    pipeline.begin(gathering)
    pipeline.pump_until(lambda: gathering.responses == 8 and bool(closed))
    assert closed == ["known"]
    assert pipeline.judging.evaluators.pending == 1  # the four responses of the other group are one program
    pipeline.forget()


@pytest.mark.slow
def test_what_fails_anywhere_never_reaches_an_evaluator(stands: list[Stand], tmp_path: Path) -> None:
    """And what has been measured, or compiles, is not looked at."""
    builder = BuilderActor.remote(EvaluatorConfig(arch="cpu"), str(tmp_path), right_programs={SOFTMAX.id: [RIGHT]})
    groups = {"mixed": [fenced(FAILS), fenced(f"# again\n{FAILS}"), fenced(RIGHT), fenced("def (")]}
    stand = Stand(tmp_path, groups, builder, cpu_look=True)
    stands.append(stand)
    result = stand.pipeline.run(asked("mixed"))
    assert [rollout.outcome for rollout in result.rollouts] == ["runtime_error", "runtime_error", "ok", "build_error"]
    (ended,) = [verdict for verdict in result.verdicts.values() if verdict.outcome is Outcome.RUNTIME_ERROR]
    assert ended.evaluator["judged_on"] == "cpu"
    assert "NameError" in ended.message
    assert list(stand.evaluated().values()) == [1]

    def prepared(source: str, **options: Any) -> Any:
        candidate = Candidate.propose(SOFTMAX.id, source, "test")
        return ray.get(builder.prepare.remote(BuildRequest(SOFTMAX, candidate, "fast", **options)))

    assert isinstance(prepared(FAILS), Verdict)
    assert prepared(FAILS, again=True) is None
    assert not isinstance(prepared(f"{compiling(1)}\nassert nothing"), Verdict)
