"""The learner's ranks in Ray actors: two ranks, connected by gloo, learn as one."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from actors import learner
from actors.learner import LearnerGroup, LearnerLost, RankDied
from actors.weight_transport import BROADCAST, BroadcastChannel
from configs.schema import LearnerConfig, PolicyConfig, RunConfig
from learners.errors import LearnerError
from learners.records import Sample
from learners.weights import unpack, verify

_SAMPLES = [Sample(tuple(range(10, 30)), tuple(range(40 + index, 60 + index))) for index in range(8)]


@pytest.fixture
def config() -> RunConfig:
    learner = LearnerConfig(ranks=2, zero_stage=1, threads=1, autocast=False, timeout=120.0)
    return RunConfig(name="ranks", policy=PolicyConfig(max_length=256), learner=learner)


def weights_of(group: LearnerGroup, version: int) -> dict[str, torch.Tensor]:
    weights = {}
    for part, (manifest, data) in enumerate(group.parts(version, "float32", limit_bytes=20_000)):
        buffer = ray.get(data)
        verify(manifest, buffer)
        assert (manifest.version, manifest.part) == (version, part)
        weights |= {name: tensor.clone() for name, tensor in unpack(manifest, buffer)}
    assert part > 1
    return weights


@pytest.fixture
def two_ranks(local_ray: None, config: RunConfig, policy_folder: Path) -> Iterator[LearnerGroup]:
    group = LearnerGroup(config, str(policy_folder))
    yield group
    group.stop()


@pytest.fixture
def one_rank(local_ray: None, config: RunConfig, policy_folder: Path) -> Iterator[LearnerGroup]:
    group = LearnerGroup(replace(config, learner=replace(config.learner, ranks=1)), str(policy_folder))
    yield group
    group.stop()


def assert_waiting_is_no_work(group: LearnerGroup) -> None:
    """The learner waits for a receiver that is two seconds late, and does not count the wait as work."""
    address, port, met = group.open_channel(2, 60.0)

    def receive(data: torch.Tensor) -> None:
        time.sleep(2.0)
        channel.broadcast(data)

    with ThreadPoolExecutor(1) as pool:
        channel = BroadcastChannel(address, port, 2, sends=False, timeout=60.0, device="cpu")
        ray.get(met, timeout=240)
        manifest, _ = next(group.parts(0, "float32", BROADCAST))
        got = torch.empty(manifest.total_bytes, dtype=torch.uint8)
        before, started = group.busy_seconds, time.monotonic()
        received = pool.submit(receive, got)
        group.send_part(60.0)
        received.result(timeout=240)
    verify(manifest, got)
    assert time.monotonic() - started > 1.9
    assert group.busy_seconds == before


@pytest.mark.slow
def test_two_ranks_learn_what_one_learns_and_a_lost_rank_is_noticed_in_time(
    two_ranks: LearnerGroup, config: RunConfig, policy_folder: Path
) -> None:
    alone = LearnerGroup(replace(config, learner=replace(config.learner, ranks=1)), str(policy_folder))
    try:
        assert_waiting_is_no_work(alone)
        for _ in range(2):
            ours = two_ranks.train_cross_entropy(_SAMPLES, 1e-3)
            theirs = alone.train_cross_entropy(_SAMPLES, 1e-3)
            assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4)
        expected = weights_of(alone, 1)
        for name, tensor in weights_of(two_ranks, 1).items():
            torch.testing.assert_close(tensor, expected[name], atol=1e-4, rtol=1e-3)
    finally:
        alone.stop()
    ray.kill(two_ranks._ranks[1])

    def train_on() -> None:
        for _ in range(100):  # it takes a moment to die
            two_ranks.train_cross_entropy(_SAMPLES, 1e-3)

    with pytest.raises(LearnerLost, match="rank"):
        train_on()


def lacking(config: RunConfig, *missing: int, **changes: Any) -> dict[str, Any]:
    """Arguments of a group whose `missing` ranks find no place: no node has what they ask for."""
    learner = replace(config.learner, place_timeout=1.0, **changes)
    return {
        "config": replace(config, learner=learner),
        "place": lambda rank: {"resources": {"nowhere": 1}} if rank in missing else {},
    }


@pytest.mark.slow
def test_fewer_ranks_go_on_from_the_checkpoint_of_all_and_all_come_back(
    two_ranks: LearnerGroup, config: RunConfig, policy_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two_ranks.train_cross_entropy(_SAMPLES, 1e-3)
    files = two_ranks.save(str(tmp_path))
    expected = weights_of(two_ranks, 1)
    group = LearnerGroup(**lacking(config, 1, min_ranks=1), policy=str(policy_folder))
    try:
        assert group.size == 1
        assert "the learner goes on with 1 of 2 ranks" in caplog.text
        group.load(str(tmp_path), files)
        loaded = weights_of(group, 1)
        assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())
        ours, theirs = (one.train_cross_entropy(_SAMPLES, 1e-3) for one in (group, two_ranks))
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4)
        (tmp_path / "fewer").mkdir()
        files = group.save(str(tmp_path / "fewer"))
        expected = weights_of(group, 2)
    finally:
        group.stop()
    two_ranks.load(str(tmp_path / "fewer"), files)
    loaded = weights_of(two_ranks, 2)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())


def rank_that_starts(seconds: float = 0.0) -> Any:
    @ray.remote(num_cpus=0)
    class Rank:
        """Stands in for a rank, whose start takes many seconds; here it takes `seconds`."""

        def address(self) -> tuple[str, int]:
            return "127.0.0.1", 1

        def node(self) -> str:
            return "node"

        def start(self, config: RunConfig, policy: str, rank: int, *_: object, ranks_on_host: int) -> None:
            time.sleep(seconds)
            assert (config.learner.ranks, ranks_on_host) == (2, 2)
            assert rank in (0, 1)

    return Rank


@pytest.mark.slow
def test_ranks_without_a_place_are_left_out_if_the_others_are_enough(
    local_ray: None, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner, "LearnerRank", rank_that_starts())
    limit = replace(config, learner=replace(config.learner, timeout=2.0))
    group = LearnerGroup(**lacking(limit, 1, ranks=3, min_ranks=2), policy="")
    assert group.size == 2
    group.stop()
    group = LearnerGroup(**lacking(limit, 1, ranks=4, min_ranks=2, sequence_parallel=2), policy="")
    assert group.size == 2, "three are there, who cannot share rows in pairs"
    group.stop()
    limit = replace(config, learner=replace(limit.learner, start_timeout=2.0))
    found = r"[01] of 3 learner ranks found a place within 2 s, and learner\.min_ranks is 2"
    with pytest.raises(LearnerLost, match=found):
        LearnerGroup(**lacking(limit, 0, 1, ranks=3, min_ranks=2), policy="")


def test_each_rank_knows_how_many_share_its_host(
    local_ray: None, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    @ray.remote(num_cpus=0)
    class Rank:
        """Stands in for a rank, since a real one on each of two nodes takes a minute to start."""

        def __init__(self, node: str) -> None:
            self._node, self._ranks_on_host = node, 0

        def address(self) -> tuple[str, int]:
            return "127.0.0.1", 1

        def node(self) -> str:
            return self._node

        def start(self, *_: object, ranks_on_host: int) -> None:
            self._ranks_on_host = ranks_on_host

        def call(self, method: str) -> int:
            return self._ranks_on_host

    nodes = iter("aba")
    monkeypatch.setattr(learner, "start_actor", lambda *_: Rank.remote(next(nodes)))
    group = LearnerGroup(replace(config, learner=replace(config.learner, ranks=3)), "nowhere")
    try:
        assert group._call_engines("ranks_on_host") == [2, 1, 2]
    finally:
        group.stop()


@pytest.mark.slow
def test_a_rank_that_hangs_as_it_starts_counts_as_dead(
    local_ray: None, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = rank_that_starts(600.0).remote()
    ray.get(rank.address.remote(), timeout=240)  # its process is there: on a busy machine that alone takes seconds
    monkeypatch.setattr(learner, "start_actor", lambda *_: rank)
    short = replace(config, learner=replace(config.learner, timeout=1.0, start_timeout=5.0))
    with pytest.raises(RankDied, match=r"rank 0 did not answer within 5 s \(its start\)"):
        LearnerGroup(short, "nowhere")


def test_a_rank_without_room_is_noticed_in_time(local_ray: None, config: RunConfig, policy_folder: Path) -> None:
    short = replace(config, learner=replace(config.learner, timeout=2.0, start_timeout=2.0))
    with pytest.raises(LearnerLost, match="rank 0 did not start within 2 s: is there room"):
        LearnerGroup(short, str(policy_folder), lambda _: {"resources": {"nowhere": 1.0}})


@pytest.mark.slow
def test_ranks_without_a_shared_folder_save_to_an_object_store_and_go_on_from_there(
    two_ranks: LearnerGroup, config: RunConfig, policy_folder: Path, object_store: str
) -> None:
    place = object_store.format("two-ranks/step-1")
    two_ranks.train_cross_entropy(_SAMPLES, 1e-3)
    files = [*two_ranks.save(place), *two_ranks.export(place, "policy")]
    names = {file.path for file in files}
    assert len(names) == len(files), "each file has one writer"
    assert {"random-0.pt", "random-1.pt", "policy/model.safetensors"} <= names
    expected = [two_ranks.train_cross_entropy(_SAMPLES, 1e-3)["loss"] for _ in range(2)]
    again = LearnerGroup(config, str(policy_folder))
    try:
        again.load(place, [file for file in files if not file.path.startswith("policy/")])
        assert [again.train_cross_entropy(_SAMPLES, 1e-3)["loss"] for _ in range(2)] == expected
        with pytest.raises(LearnerError, match=r"random-1\.pt: damaged"):
            again.load(
                place, [replace(file, digest="0" * 32) if file.path == "random-1.pt" else file for file in files]
            )
    finally:
        again.stop()


@pytest.mark.slow
def test_a_rank_whose_host_does_not_see_the_folder_says_so(one_rank: LearnerGroup, tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match="does not see the folder"):
        one_rank.save(str(tmp_path / "on-another-host"))
    (tmp_path / "shared").mkdir()
    files = one_rank.save(str(tmp_path / "shared"))
    assert {file.path: file.size for file in files} == {
        str(path.relative_to(tmp_path / "shared")): path.stat().st_size
        for path in (tmp_path / "shared").rglob("*")
        if path.is_file()
    }
    one_rank.load(str(tmp_path / "shared"), files)
