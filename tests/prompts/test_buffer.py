"""The buffer keeps successful programs of one architecture, and draws exemplars that a resume repeats."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.schema import BufferConfig
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from prompts.buffer import BUFFER_SCHEMA, ExemplarBuffer
from prompts.render import Exemplar
from prompts.selection import bucket_of

REFERENCE = "class Model:\n    pass\n"


def candidate(number: int, task_id: str = "task") -> Candidate:
    return Candidate.propose(task_id, f"class ModelNew:\n    number = {number}\n", "policy:3")


def verdict(proposed: Candidate, outcome: Outcome = Outcome.OK, arch: str = "cpu", **speedups: float) -> Verdict:
    estimates = {name: Estimate(value, value, value, 7) for name, value in speedups.items()}
    return Verdict(proposed.digest, proposed.task_id, arch, outcome, speedups=estimates)


def fill(buffer: ExemplarBuffer, *speedups: float, task_id: str = "task", step: int = 0) -> list[Candidate]:
    start = len(buffer.candidates(task_id))
    proposed = [candidate(start + i, task_id) for i in range(len(speedups))]
    for i, (one, speedup) in enumerate(zip(proposed, speedups, strict=True)):
        assert buffer.add(one, verdict(one, eager=speedup), step + i)
    return proposed


def buffer_of(seed: int = 0, baseline: str = "eager", **settings: object) -> ExemplarBuffer:
    return ExemplarBuffer(BufferConfig(**settings), "cpu", seed, baseline)  # type: ignore[arg-type]


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_only_ok_verdicts_enter(outcome: Outcome) -> None:
    buffer, one = buffer_of(), candidate(0)
    assert not buffer.add(one, verdict(one, outcome, eager=2.0), 0)
    assert len(buffer) == 0
    assert buffer.add(one, verdict(one, eager=2.0), 0)
    assert len(buffer) == 1


def test_other_architectures_and_missing_scores_do_not_enter() -> None:
    buffer, one = buffer_of(), candidate(0)
    assert not buffer.add(one, verdict(one, arch="H200", eager=2.0), 0)
    assert not buffer.add(one, verdict(one, torch_compile=2.0), 0)
    for speedup in (float("nan"), float("inf"), 0.0):
        assert not buffer.add(one, verdict(one, eager=speedup), 0)
    assert len(buffer) == 0


def test_a_verdict_on_another_candidate_is_an_error() -> None:
    with pytest.raises(ValueError, match="pass its own verdict"):
        buffer_of().add(candidate(0), verdict(candidate(1), eager=1.0), 0)


def test_what_is_discarded_is_shown_no_more() -> None:
    buffer = buffer_of()
    slow, fast = fill(buffer, 1.0, 3.0)
    buffer.discard(fast)
    buffer.discard(candidate(9))
    assert [one.candidate for one in buffer.candidates("task")] == [slow]


def test_the_baseline_decides_the_score() -> None:
    one = candidate(0)
    for baseline, speedup in (("eager", 3.0), ("best", 1.5)):
        buffer = buffer_of(baseline=baseline)
        buffer.add(one, verdict(one, eager=3.0, torch_compile=1.5), 0)
        assert [member.speedup for member in buffer.candidates("task")] == [speedup]
    with pytest.raises(ValueError, match="must be eager or best, got 'cudnn'"):
        buffer_of(baseline="cudnn")


def test_a_candidate_is_held_once_with_its_newest_measurement() -> None:
    buffer = buffer_of()
    one, other = fill(buffer, 1.2, 1.3)
    assert buffer.add(one, verdict(one, eager=1.7), 5)
    assert not buffer.add(one, verdict(one, eager=9.0), 4)
    assert [(m.candidate, m.speedup, m.step) for m in buffer.candidates("task")] == [(other, 1.3, 1), (one, 1.7, 5)]
    assert len(buffer) == 2


def test_tasks_are_kept_apart() -> None:
    buffer = buffer_of()
    fill(buffer, 1.2, 1.3)
    fill(buffer, 3.0, task_id="other")
    assert [member.speedup for member in buffer.candidates("other")] == [3.0]
    best = buffer.best("task")
    assert best is not None
    assert best.speedup == 1.3
    assert buffer.best("unknown") is None
    assert buffer.candidates("unknown") == []
    assert len(buffer) == 3


def test_eviction_takes_the_oldest_of_the_fullest_bucket() -> None:
    buffer = buffer_of(capacity=5)
    members = fill(buffer, 0.5, 1.21, 1.22, 1.23, 2.0, 2.05)
    assert {member.candidate for member in buffer.candidates("task")} == set(members) - {members[1]}


def test_eviction_never_takes_the_best() -> None:
    buffer = buffer_of(capacity=3)
    best = fill(buffer, 1.29)[0]
    fill(buffer, *(1.2 + i / 1000 for i in range(20)), step=1)
    kept = [member.candidate for member in buffer.candidates("task")]
    assert len(kept) == 3
    assert best in kept
    assert buffer.best("task").candidate == best  # type: ignore[union-attr]


def test_slow_and_fast_buckets_survive_a_flood_of_middling_candidates() -> None:
    buffer = buffer_of(capacity=6)
    fill(buffer, 0.4, 3.0, *(1.5 + i / 10000 for i in range(100)))
    buckets = {bucket_of(member.speedup, 0.1) for member in buffer.candidates("task")}
    assert buckets == {4, 15, 30}


def test_a_full_buffer_of_one_takes_only_what_is_better() -> None:
    buffer = buffer_of(capacity=1)
    fill(buffer, 1.5)
    worse, better = candidate(10), candidate(11)
    assert not buffer.add(worse, verdict(worse, eager=1.0), 1)
    assert buffer.add(better, verdict(better, eager=2.0), 2)
    assert [member.candidate for member in buffer.candidates("task")] == [better]


def test_an_empty_buffer_shows_the_reference_once() -> None:
    assert buffer_of().exemplars("task", REFERENCE) == [Exemplar(REFERENCE, 1.0)]


def test_too_few_buckets_are_filled_with_the_reference_first() -> None:
    buffer = buffer_of()
    fill(buffer, 0.81, 0.82, 0.83)
    shown = buffer.exemplars("task", REFERENCE)
    assert shown[0] == Exemplar(REFERENCE, 1.0)
    assert len(shown) == 2
    assert shown[1].speedup in (0.81, 0.82, 0.83)


def test_enough_buckets_leave_no_room_for_the_reference() -> None:
    buffer = buffer_of()
    fill(buffer, 1.0, 1.5, 2.0)
    for _ in range(20):
        shown = buffer.exemplars("task", REFERENCE)
        assert len(shown) == 2
        assert Exemplar(REFERENCE, 1.0) not in shown
        assert shown[0].speedup < shown[1].speedup


def test_more_places_than_buckets_show_other_programs_before_a_duplicate() -> None:
    for exemplars, distinct in ((3, 3), (9, 4)):
        buffer = buffer_of(exemplars=exemplars)
        fill(buffer, 1.21, 1.22, 1.23)
        shown = buffer.exemplars("task", REFERENCE)
        assert [exemplar.source for exemplar in shown].count(REFERENCE) == 1
        assert len({exemplar.source for exemplar in shown}) == len(shown) == distinct


def test_the_reference_is_not_shown_beside_itself() -> None:
    buffer = buffer_of()
    same = Candidate.propose("task", REFERENCE, "policy:0")
    buffer.add(same, verdict(same, eager=0.99), 0)
    assert len(buffer.exemplars("task", REFERENCE)) == 1


@pytest.mark.parametrize("strategy", ["bucket", "island", "random"])
def test_a_resumed_buffer_draws_what_the_first_would_have(strategy: str, tmp_path: Path) -> None:
    config = BufferConfig(strategy=strategy)
    buffer = ExemplarBuffer(config, "cpu", 11, "best")
    for task_id in ("a", "b"):
        fill(buffer, *(1 + i / 7 for i in range(12)), task_id=task_id)
    for _ in range(5):
        buffer.exemplars("a", REFERENCE)
    pq.write_table(buffer.to_table(), tmp_path / "buffer.parquet")
    resumed = ExemplarBuffer.from_table(pq.read_table(tmp_path / "buffer.parquet"), config, 99)
    assert (resumed.arch, resumed.baseline, len(resumed)) == ("cpu", "best", len(buffer))
    assert resumed.candidates("b") == buffer.candidates("b")
    expected = [buffer.exemplars(task_id, REFERENCE) for task_id in "abab" * 5]
    assert [resumed.exemplars(task_id, REFERENCE) for task_id in "abab" * 5] == expected
    fresh = ExemplarBuffer.from_table(buffer.to_table(), config, 99)
    assert [fresh.exemplars(task_id, REFERENCE) for task_id in "abab" * 5] != expected


def test_all_exemplars_are_slower_than_a_bound_and_so_is_the_reference() -> None:
    buffer = buffer_of(exemplars=4)
    fill(buffer, 0.5, 0.8, 1.3, 2.0, 4.0)
    for _ in range(20):
        shown = buffer.exemplars("task", REFERENCE, below=1.3)
        assert [exemplar.speedup for exemplar in shown] == [1.0, 0.5, 0.8]
        assert [exemplar.speedup for exemplar in buffer.exemplars("task", REFERENCE, below=0.8)] == [0.5]
    assert buffer.exemplars("task", REFERENCE, below=0.5) == []


def test_an_empty_buffer_survives_a_round_trip() -> None:
    resumed = ExemplarBuffer.from_table(buffer_of().to_table(), BufferConfig(), 0)
    assert len(resumed) == 0
    assert resumed.arch == "cpu"


def test_the_table_has_the_declared_schema() -> None:
    buffer = buffer_of()
    fill(buffer, 1.2)
    assert buffer.to_table().schema.equals(BUFFER_SCHEMA)
    assert pa.types.is_float64(BUFFER_SCHEMA.field("speedup").type)


def test_a_smaller_capacity_evicts_on_resume() -> None:
    buffer = buffer_of()
    fill(buffer, *(1 + i / 10 for i in range(10)))
    resumed = ExemplarBuffer.from_table(buffer.to_table(), BufferConfig(capacity=4), 0)
    assert len(resumed) == 4
    assert resumed.best("task") == buffer.best("task")


def test_a_table_from_elsewhere_is_refused() -> None:
    table = buffer_of().to_table()
    with pytest.raises(ValueError, match=r"lacks metadata warpsmith\.buffer"):
        ExemplarBuffer.from_table(table.replace_schema_metadata(None), BufferConfig(), 0)
    with pytest.raises(ValueError, match="lacks columns step"):
        ExemplarBuffer.from_table(table.drop_columns(["step"]), BufferConfig(), 0)
