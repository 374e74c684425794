"""A program that kills its evaluators is set aside with the evidence, and no resume tries it again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from actors import pool_members, pool_queue
from actors.pool import ActorPool
from actors.pool_records import ItemGivenUp
from configs.schema import GuardConfig, RolloutConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Candidate, Outcome, Task, Verdict
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import RunDirectoryError
from orchestration.run.set_aside import Evidence
from orchestration.step.pipeline import Pipeline
from orchestration.step.review import Reviewer
from tests.orchestration.step.scripted import RIGHT, SOFTMAX, Builder, Engine


def evaluator_class() -> Any:
    """A local class, which Ray sends by value."""

    @ray.remote(num_cpus=0)
    class Evaluator:
        """Dies of programs that say so, and logs in a file which program it was given."""

        def __init__(self, log: str) -> None:
            self.log = log

        def ping(self) -> str:
            return "pong"

        def apply(self, func: Callable[..., Any], *arguments: Any) -> Any:
            return func(self, *arguments)

        def evaluate(self, request: Any) -> Verdict:
            with open(self.log, "a") as log:
                print(request.candidate.digest, file=log)
            time.sleep(0.05)
            if "DIE" in request.candidate.source:
                os._exit(1)
            evaluator = {"preset": request.preset}
            return Verdict(request.candidate.digest, request.task.id, "cpu", Outcome.WRONG, evaluator=evaluator)

    return Evaluator


Evaluator = evaluator_class()
DEADLY, OTHER = (Candidate.propose(SOFTMAX.id, f"{RIGHT}\n{mark} = 1", "policy:3") for mark in ("DIE", "LIVE"))


class Window:
    """A process of a run in the folder: its pools, and how often each program came to an evaluator in all of them."""

    def __init__(self, folder: Path, pools: list[ActorPool], task: Task = SOFTMAX) -> None:
        self.run, self._log = RunDirectory(folder, "run"), folder / "log"
        made = [
            ActorPool("rollout", lambda _: Engine.remote({}), 0),  # nobody asks it
            ActorPool("builder", lambda _: Builder.remote(), 0),
            ActorPool("evaluator", lambda _: Evaluator.remote(str(self._log)), 2, timeout=30.0),
        ]
        pools += made
        reviewer = Reviewer(GuardConfig(), HackCases(folder / "hacks.parquet"), {SOFTMAX.id: SOFTMAX.source})
        self.pipeline = Pipeline([task], *made, RolloutConfig(), reviewer, set_aside=self.run.set_aside)

    def judge(self, *candidates: Candidate) -> dict[str, Verdict]:
        return self.pipeline.evaluate(candidates, "fast")

    def tries(self, candidate: Candidate) -> int:
        return self._log.read_text().split().count(candidate.digest)


@pytest.fixture
def window(local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Window]]:
    for name in ("SETTLE_SECONDS", "ABSENT_SECONDS"):
        monkeypatch.setattr(pool_queue, name, 0.2)
    monkeypatch.setattr(pool_members, "pause_before_start", lambda losses: 0.0)
    pools: list[ActorPool] = []
    yield lambda **options: Window(tmp_path, pools, **options)
    for pool in pools:
        pool.stop()


@pytest.mark.slow
def test_a_program_that_kills_its_evaluators_is_set_aside_and_a_resume_does_not_try_it_again(
    window: Callable[..., Window],
) -> None:
    before, first = time.time(), window()
    verdicts = first.judge(DEADLY, OTHER)
    assert verdicts[OTHER.digest].outcome is Outcome.WRONG
    verdict, tries = verdicts[DEADLY.digest], first.tries(DEADLY)
    assert verdict.outcome is Outcome.INFRA
    assert tries >= 3
    node = ray.get_runtime_context().get_node_id()
    assert verdict.message.count(f"on node {node[:12]}") == 3, "it names the losses"
    assert first.judge(DEADLY)[DEADLY.digest] == verdict, "in the same process, too"

    (path,) = (first.run.local_folder / "set_aside").iterdir()
    row = json.loads(path.read_text())
    assert (row["task"], row["task_digest"], row["candidate"]) == (SOFTMAX.id, SOFTMAX.digest, DEADLY.digest)
    assert (row["source"], row["author"], row["method"]) == (DEADLY.source, "policy:3", "evaluate")
    counted = [loss for loss in row["losses"] if not loss["excuse"]]
    assert len(counted) == 3
    assert all(loss["node"] == node and loss["process"] and loss["reason"] for loss in counted)
    assert all(before <= loss["time"] <= row["time"] <= time.time() for loss in counted)

    resumed = window()
    assert resumed.run.set_aside.count() == 1
    assert resumed.judge(DEADLY)[DEADLY.digest] == verdict
    assert resumed.tries(DEADLY) == tries


@pytest.mark.slow
def test_evidence_holds_for_the_task_as_it_was_and_as_long_as_it_is_there(
    window: Callable[..., Window], tmp_path: Path
) -> None:
    run, error = RunDirectory(tmp_path, "run"), ItemGivenUp("work", [], is_set_aside=True)
    run.set_aside.add(Evidence.of(SOFTMAX, OTHER, "fast", "evaluate", error))
    verdict = window().judge(OTHER)[OTHER.digest]
    assert verdict.outcome is Outcome.INFRA
    assert verdict.message.startswith("set aside, since it lost too many workers: work failed 0 times")
    changed = window(task=replace(SOFTMAX, source=f"{SOFTMAX.source}\n"))
    assert changed.judge(OTHER)[OTHER.digest].outcome is Outcome.WRONG
    assert changed.tries(OTHER) == 1
    run.storage.delete(run.storage.files("set_aside")[0])
    assert window().judge(OTHER)[OTHER.digest].outcome is Outcome.WRONG


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "run")
    run.storage.write("set_aside/one.json", b'{"task": ')
    with pytest.raises(RunDirectoryError, match=r"set_aside/one\.json: no evidence"):
        list(run.set_aside.all())
