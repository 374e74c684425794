"""Artifacts are bounded in size. None goes that is in use, and one that is gone is built again before it is judged."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from evaluators.compile.artifacts import Artifacts
from evaluators.compile.cache import BuildCache
from evaluators.evaluator import Evaluator
from evaluators.failures import Unbuilt
from evaluators.records import Artifact, Candidate, Outcome
from tests.evaluators.sources import DOUBLE
from tests.folders import open_folder
from tests.processes import forks

BYTES = 100_000
AMPLE = 1 << 30


def artifact_of(artifacts: Artifacts, number: int) -> Artifact:
    digest = f"{number:016x}"
    return Artifact(digest, "caches", str(artifacts.place(digest)), "cpu", store=artifacts.identity)


def fill(artifacts: Artifacts, number: int, age: float = 0.0) -> Artifact:
    """Builds an artifact of BYTES, which was last used `age` seconds ago."""
    artifact = artifact_of(artifacts, number)
    with artifacts.building(artifact):
        folder = Path(artifact.path) / "inductor"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "made").write_bytes(bytes(BYTES))
        artifacts.write_record(artifact, {"error": None})
    used = time.time() - age
    with contextlib.suppress(FileNotFoundError):  # another process has evicted it already
        os.utime(Path(artifact.path).with_suffix(".lock"), (used, used))
    return artifact


def left_of(artifacts: Artifacts) -> set[int]:
    return {int(path.name, 16) for path in artifacts.folder.iterdir() if path.is_dir() and len(path.name) == 16}


def test_least_recently_used_artifacts_go_first_with_all_that_belongs_to_them(tmp_path) -> None:
    artifacts = Artifacts(tmp_path, AMPLE)
    made = [fill(artifacts, number, age=1000 - number) for number in range(10)]
    assert artifacts.read_record(made[0]) == {"error": None}  # which makes it the last used
    left = artifacts.shrink(9 * BYTES)
    assert left_of(artifacts) == {0, 5, 6, 7, 8, 9}
    assert left <= 0.8 * 9 * BYTES
    names = {path.name.partition(".")[0] for path in tmp_path.iterdir()} - {"gone", "identity"}
    assert names == {Path(artifact.path).name for artifact in (made[0], *made[5:])}
    assert not list((tmp_path / "gone").iterdir())
    assert Artifacts(tmp_path, AMPLE).shrink(9 * BYTES) == left


@pytest.mark.parametrize("damage", [b'{"error": nu', b"\xf7\x00", b"[]"], ids=["half", "no text", "no record"])
def test_an_artifact_with_a_damaged_record_is_there_no_more(tmp_path, damage: bytes, caplog) -> None:
    artifacts = Artifacts(tmp_path, AMPLE)
    artifact = fill(artifacts, 1)
    Path(artifact.path).with_suffix(".json").write_bytes(damage)
    assert artifacts.read_record(artifact) is None
    assert "built again" in caplog.text
    with pytest.raises(Unbuilt), artifacts.used(artifact):
        pass
    assert artifacts.read_record(fill(artifacts, 1)) == {"error": None}


def test_builders_keep_to_the_size(tmp_path) -> None:
    artifacts = Artifacts(tmp_path, 5 * BYTES)
    for number in range(20):
        fill(artifacts, number, age=100 - number)
    assert len(left_of(artifacts)) <= 5
    assert 19 in left_of(artifacts)


def test_the_artifact_that_is_being_built_stays_however_large_it_is(tmp_path) -> None:
    artifacts = Artifacts(tmp_path, BYTES // 2)
    fill(artifacts, 1)
    assert left_of(artifacts) == {1}
    fill(artifacts, 2)
    assert left_of(artifacts) == {2}


def _use(folder: Path, number: int, held: Event) -> None:
    artifacts = Artifacts(folder, AMPLE)
    with artifacts.used(artifact_of(artifacts, number)):
        held.set()
        time.sleep(600)


def test_an_artifact_that_another_process_uses_stays_until_that_has_ended(tmp_path) -> None:
    artifacts = Artifacts(tmp_path, AMPLE)
    made = [fill(artifacts, number, age=1000) for number in range(2)]
    context = forks()
    held = context.Event()
    user = context.Process(target=_use, args=(tmp_path, 0, held))
    user.start()
    assert held.wait(60)
    artifacts.shrink(0)
    assert left_of(artifacts) == {0}
    with pytest.raises(Unbuilt), artifacts.used(made[1]):
        pass
    assert user.pid is not None
    os.kill(user.pid, signal.SIGKILL)
    user.join()
    artifacts.shrink(0)
    assert left_of(artifacts) == set()


def _build_use_and_evict(folder: Path, seed: int, results: Any) -> None:
    """Uses artifacts at random, and builds those that are gone, while it evicts others."""
    draws, artifacts, lost, rebuilt = random.Random(seed), Artifacts(folder, 4 * BYTES), 0, 0
    for _ in range(60):
        number = draws.randrange(8)
        try:
            with artifacts.used(artifact_of(artifacts, number)):
                made = artifacts.place(f"{number:016x}") / "inductor/made"
                for _ in range(3):
                    lost += not made.is_file() or made.stat().st_size != BYTES
                    time.sleep(0.001)
        except Unbuilt:
            fill(artifacts, number)
            rebuilt += 1
        artifacts.shrink(4 * BYTES)
    results.put((lost, rebuilt))


def test_processes_that_evict_take_nothing_from_processes_that_use(tmp_path) -> None:
    context = forks()
    results = context.Queue()
    processes = [context.Process(target=_build_use_and_evict, args=(tmp_path, seed, results)) for seed in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    found = [results.get(timeout=60) for _ in processes]
    assert sum(lost for lost, _ in found) == 0
    assert sum(rebuilt for _, rebuilt in found) > 8
    assert len({Artifacts(tmp_path, AMPLE).identity for _ in range(3)}) == 1


def test_an_artifact_of_a_store_that_this_node_does_not_share_is_used_all_the_same(tmp_path) -> None:
    there, here = Artifacts(tmp_path / "there", AMPLE), Artifacts(tmp_path / "here", AMPLE)
    assert there.identity != here.identity
    foreign = replace(fill(there, 1), path=str(here.place("1")))
    with here.used(foreign):
        pass


# Its "compiler" takes longer than a program may take to start, and leaves its work in the cache.
SLOW = """
import os, time
import torch.nn as nn  # torch.compile
class ModelNew(nn.Module):
    def forward(self, x):
        made = os.environ["TORCHINDUCTOR_CACHE_DIR"] + "/made"
        if not os.path.exists(made):
            time.sleep({seconds})
            open(made, "w").close()
        return 2 * x
"""


@pytest.fixture(scope="module")
def store() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.mark.slow
def test_an_evaluator_builds_an_evicted_artifact_again(store, limits) -> None:
    source = SLOW.format(seconds=limits.start_seconds + 1)
    with Evaluator(arch="cpu", limits=limits, store=store) as evaluator:
        artifact = evaluator.builder.build(DOUBLE, Candidate.propose(DOUBLE.id, source, "test"))
        assert isinstance(artifact, Artifact)
        evaluator.builder.artifacts.shrink(0)
        assert not Path(artifact.path).exists()
        verdict = evaluator.evaluate(DOUBLE, source, artifact=artifact)
        assert verdict.outcome in (Outcome.OK, Outcome.SUSPECT), verdict.message
        assert (Path(artifact.path) / "inductor/made").exists()
        assert verdict.cost["build"] > limits.start_seconds


@pytest.mark.slow
def test_an_evaluator_that_builds_nothing_says_that_an_artifact_is_gone(store, limits) -> None:
    source = SLOW.format(seconds=0.01)
    with Evaluator(arch="cpu", limits=limits, store=store, builds=False) as evaluator:
        artifact = evaluator.builder.build(DOUBLE, Candidate.propose(DOUBLE.id, source, "test"))
        evaluator.builder.artifacts.shrink(0)
        with pytest.raises(Unbuilt, match="evicted") as gone:
            evaluator.evaluate(DOUBLE, source, artifact=artifact)
        assert gone.value.request is None
        with pytest.raises(Unbuilt, match="evicted"):
            evaluator.look(DOUBLE, source, preset="fast", artifact=artifact)


@pytest.mark.slow
def test_an_artifact_that_never_stays_is_no_fault_of_its_program(store, limits, monkeypatch) -> None:
    cache = BuildCache(store / "extensions", max_bytes=1)
    with Evaluator(arch="cpu", limits=limits, store=store, cache=cache) as evaluator:
        build = evaluator.builder.build

        def build_and_lose(*arguments: Any) -> Any:
            built = build(*arguments)
            evaluator.builder.artifacts.shrink(0)  # as other processes do that build meanwhile
            return built

        monkeypatch.setattr(evaluator.builder, "build", build_and_lose)
        verdict = evaluator.evaluate(DOUBLE, SLOW.format(seconds=0.02))
        assert verdict.outcome is Outcome.INFRA
        assert "raise evaluator.build_cache_gib" in verdict.message
