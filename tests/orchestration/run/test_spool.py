"""A spool keeps records in order, across processes, within bounds."""

from __future__ import annotations

import pytest

from orchestration.run.spool import REFUSED, Spool
from orchestration.run.storage import Storage


@pytest.fixture
def storage(tmp_path) -> Storage:
    return Storage.at(tmp_path, "demo")


def steps_of(spool: Spool) -> list[int]:
    return [record.body["step"] for record in spool.oldest()]


def test_another_process_finds_the_records_in_order_and_adds_later_ones(storage):
    first = Spool(storage)
    for step in range(20):
        assert first.add("metrics", {"step": step})
    first.remove(next(first.oldest()))
    second = Spool(storage)
    second.add("end", {"step": 20})
    assert steps_of(second) == list(range(1, 21))
    assert second.kinds() == ["metrics"] * 19 + ["end"]
    times = [record.time for record in second.oldest()]
    assert len(set(times)) == 20
    assert times == sorted(times)


def test_a_clock_that_was_put_back_keeps_the_order(storage, monkeypatch):
    Spool(storage).add("metrics", {"step": 0})
    monkeypatch.setattr("orchestration.run.spool.time.time_ns", lambda: 10**15)
    spool = Spool(storage)
    spool.add("metrics", {"step": 1})
    assert steps_of(Spool(storage)) == steps_of(spool) == [0, 1]


def test_a_full_spool_takes_only_what_must_not_be_lost(storage):
    spool = Spool(storage, max_records=4)
    assert [spool.add("metrics", {"step": step}, share=0.5) for step in range(3)] == [True, True, False]
    assert [spool.add("metrics", {"step": step}) for step in range(3, 6)] == [True, True, False]
    assert spool.add("end", {"step": 6}, share=float("inf"))
    assert steps_of(spool) == [0, 1, 3, 4, 6]


def test_the_bytes_of_a_spool_are_bounded_also_after_a_restart(storage):
    body = {"step": 0, "text": "x" * 300}
    assert [Spool(storage, max_bytes=1000).add("metrics", body) for _ in range(4)] == [True, True, True, False]
    spool = Spool(storage, max_bytes=1000)
    spool.remove(next(spool.oldest()))
    assert spool.add("metrics", body)


def test_a_record_that_cannot_be_read_does_not_stop_the_others(storage, caplog):
    spool = Spool(storage)
    for step in range(3):
        spool.add("metrics", {"step": step})
    first, second, _ = spool.oldest()
    storage.write(f"tracking/spool/{first.name}", b"{")
    storage.delete(f"tracking/spool/{second.name}")
    storage.write("tracking/spool/notes.json", b"not ours")
    assert steps_of(Spool(storage)) == [2]
    assert first.name in caplog.text


def test_what_was_refused_is_kept_within_a_bound(storage):
    spool = Spool(storage)
    for step in range(103):
        spool.add("metrics", {"step": step})
        path = spool.set_aside(next(spool.oldest()))
    assert len(spool) == 0
    assert len(storage.files(REFUSED)) == 100
    assert path.endswith(storage.files(REFUSED)[-1])
