"""Pools outlive the nodes and the processes of their workers, and leave nothing of them behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import ray

from actors.evaluator import EvaluatorActor
from actors.pool import ActorPool
from configs.schema import EvaluatorConfig
from tests.actors.lossy_cluster import ITEMS, LARGE_BYTES, NODES
from tests.actors.workers import process_of
from tests.own_ray import printed_by


@pytest.mark.slow
def test_a_node_that_leaves_and_comes_back_costs_no_item_and_the_pool_is_whole_again() -> None:
    found = printed_by("tests.actors.lossy_cluster", 200)
    assert found["large"] == LARGE_BYTES
    assert found["items"] == list(range(ITEMS)), "each once"
    assert found["failures"] == []
    assert found["worked"] == NODES, "the node that left had work"
    assert (found["healthy"], len(found["before"]), len(found["after"])) == (NODES, NODES, NODES)
    assert len(set(found["before"]) & set(found["after"])) == NODES - 1
    assert found["restarts"] >= 1


def children_of(process: int) -> set[int]:
    """The processes below one, at any depth."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {process}} - found:
        found |= more
    return found


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_noticed_killed_and_replaced_and_its_children_end(
    local_ray: None, tmp_path: Path
) -> None:
    pool = ActorPool(
        "evaluator",
        lambda _: EvaluatorActor.remote(EvaluatorConfig(), str(tmp_path)),
        1,
        timeout=2.0,
        probe_timeout=1.0,
    )
    try:
        pool.wait_ready(120)
        process = process_of(pool)
        of_worker = {process} | children_of(process)
        assert len(of_worker) > 1, "its zygote"
        os.kill(process, signal.SIGSTOP)
        pool.submit(None, "ping_later")
        deadline = time.monotonic() + 60
        while pool.members.restarts == 0:
            assert time.monotonic() < deadline, pool.describe()
            pool.poll(0.2)
        while left := {each for each in of_worker if Path(f"/proc/{each}").exists()}:
            assert time.monotonic() < deadline, f"left of {of_worker}: {left}"
            time.sleep(0.2)
        pool.withdraw(lambda _: True)
        pool.wait_ready(120)
        assert process_of(pool) != process
    finally:
        pool.stop()
    assert ray.is_initialized()
