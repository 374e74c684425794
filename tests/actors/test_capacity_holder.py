"""One request for a whole cluster: the sum of what its runs need, not too often, and nothing when nobody needs it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import ray

from actors.capacity_holder import NAME, NAMESPACE, Ledger, Room, Rooms, describe, find_holder, request_rooms

A100, L40S, CPU = Room(1, 1, "A100"), Room(1, 1, "L40S"), Room(1, 0)
PAUSE, SILENCE, LINGER = 5.0, 60.0, 10.0


class Cluster:
    """A recorded stand-in for Ray's request, and a simulated clock."""

    def __init__(self) -> None:
        self.now, self.requests, self.broken = 1000.0, list[dict[Room, int]](), False
        times = {"pause": PAUSE, "silence": SILENCE, "linger": LINGER}
        self.ledger = Ledger(self.request, clock=lambda: self.now, **times)

    def request(self, rooms: Rooms) -> None:
        if self.broken:
            raise ConnectionError("no head")
        self.requests.append(dict(rooms))

    def wait(self, seconds: float) -> bool:
        """Looks as often as the actor does."""
        goes_on = True
        for _ in range(int(2 * seconds)):
            self.now += 0.5
            goes_on = self.ledger.check()
        return goes_on


def test_the_sum_of_all_runs_is_requested_and_only_when_it_changes() -> None:
    cluster = Cluster()
    cluster.ledger.tell("first", {A100: 2, CPU: 4})
    cluster.ledger.tell("second", {A100: 1, L40S: 3})
    assert cluster.wait(1)
    assert cluster.requests == [{A100: 3, L40S: 3, CPU: 4}]
    for _ in range(10):
        cluster.ledger.tell("first", {A100: 2, CPU: 4})
        cluster.ledger.tell("second", {A100: 1, L40S: 3})
        cluster.wait(PAUSE)
    assert len(cluster.requests) == 1
    cluster.ledger.tell("second", {A100: 2, L40S: 2})
    cluster.wait(PAUSE)
    assert cluster.requests[1:] == [{A100: 4, L40S: 2, CPU: 4}]


def test_needs_that_change_all_the_time_are_requested_once_a_pause() -> None:
    cluster = Cluster()
    for count in range(1, 61):
        cluster.ledger.tell("run", {A100: count})
        cluster.wait(0.5)
    assert len(cluster.requests) == 30 / PAUSE
    cluster.wait(PAUSE)
    assert cluster.requests[-1] == {A100: 60}, "the last change is not lost"


def test_an_idle_run_lets_its_room_go_and_asks_again() -> None:
    cluster = Cluster()
    for rooms in ({A100: 2}, {A100: 0}, {A100: 1}):
        cluster.ledger.tell("run", rooms)
        assert cluster.wait(PAUSE)
    assert cluster.requests == [{A100: 2}, {}, {A100: 1}]


def test_a_run_that_leaves_takes_nothing_from_the_others() -> None:
    cluster = Cluster()
    cluster.ledger.tell("first", {A100: 2})
    cluster.ledger.tell("second", {A100: 1})
    cluster.wait(PAUSE)
    cluster.ledger.leave("first")
    cluster.wait(PAUSE)
    assert cluster.requests == [{A100: 3}, {A100: 1}]


def test_a_resumed_run_takes_the_place_of_the_killed_one() -> None:
    cluster = Cluster()
    cluster.ledger.tell("run", {A100: 2})
    cluster.wait(PAUSE)
    cluster.ledger.tell("run", {A100: 2})  # by another driver
    cluster.wait(PAUSE)
    assert cluster.requests == [{A100: 2}]


def test_a_run_that_is_killed_is_forgotten_and_the_last_look_comes_when_all_is_let_go() -> None:
    cluster = Cluster()
    cluster.ledger.tell("run", {A100: 2})
    assert cluster.wait(SILENCE - 1)
    assert cluster.requests == [{A100: 2}]
    assert not cluster.wait(LINGER)
    assert cluster.requests == [{A100: 2}, {}]


def test_it_ends_only_after_everything_was_let_go() -> None:
    cluster = Cluster()
    cluster.ledger.tell("run", {A100: 2})
    cluster.wait(PAUSE)
    cluster.ledger.leave("run")
    cluster.broken = True
    for _ in range(int(4 * LINGER)):
        cluster.now += 0.5
        try:
            assert cluster.ledger.check()
        except ConnectionError:
            continue
    cluster.broken = False
    cluster.wait(PAUSE)
    assert cluster.requests[-1] == {}
    assert not cluster.wait(LINGER)


def test_what_a_holder_before_left_is_let_go() -> None:
    cluster = Cluster()
    cluster.wait(1)
    assert cluster.requests == [{}], "a holder that died cannot have let it go"


def test_rooms_are_told_in_rays_words(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("ray.autoscaler._private.commands.request_resources", lambda *words: asked.append(words))
    request_rooms({A100: 2, CPU: 1, Room(2, 0.5): 1})
    label = {"ray.io/accelerator-type": "A100"}
    assert asked == [
        (
            None,
            [{"CPU": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 2, "GPU": 0.5}],
            [{}, label, label, {}],
        )
    ]
    request_rooms({})
    assert asked[1:] == [(None, [], [])]
    assert describe({A100: 2, CPU: 1}) == "1 x 1 CPU, 2 x 1 A100 with 1 CPU"
    assert describe({A100: 0}) == "nothing"


def requested() -> Any:
    """The request that Ray keeps for this cluster, which has no autoscaler: as one of version 1 would read it."""
    from ray.autoscaler._private.constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
    from ray.experimental.internal_kv import _internal_kv_get

    kept = _internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL)
    return None if kept is None else json.loads(kept)


def wait_for(what: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_gone() -> bool:
    try:
        ray.get_actor(NAME, namespace=NAMESPACE)
    except ValueError:
        return True
    return False


@pytest.mark.slow
def test_a_cluster_has_one_holder_which_ends_after_its_last_run(local_ray: None) -> None:
    times = {"pause": 0.5, "silence": 4.0, "linger": 1.0}
    first, second = find_holder(**times), find_holder(**times)
    ray.get([first.tell.remote("first", {A100: 1}), second.tell.remote("second", {CPU: 2})], timeout=60)
    wait_for(lambda: requested() == [{"CPU": 1}, {"CPU": 1}, {"CPU": 1, "GPU": 1}])
    ray.get(first.leave.remote("second"), timeout=60)
    wait_for(lambda: requested() == [{"CPU": 1, "GPU": 1}])
    wait_for(lambda: requested() == [])  # the first is silent
    wait_for(is_gone)
