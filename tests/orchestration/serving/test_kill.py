"""1,000 requests of 32 clients to a real service process, which is killed half-way: none is lost or judged twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.serving import TASK, Process, ask_all, programs, write_tokens
from benchmarks.serving_members import judged
from evaluators.records import Candidate
from orchestration.serving.ledger import Ledger

EVALUATORS, CLIENTS, REQUESTS, DISTINCT = 16, 32, 1000, 800
pytestmark = pytest.mark.slow  # it starts Ray twice


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path, tmp_path / "tokens", EVALUATORS, mean=0.1)
    yield process
    process.stop()


def test_a_killed_service_loses_no_request_and_judges_none_twice(tmp_path: Path, process: Process) -> None:
    tokens = write_tokens(tmp_path / "tokens", CLIENTS)
    wanted = programs(DISTINCT)
    repeated = [*wanted, *wanted[: REQUESTS - DISTINCT]]  # some are asked for again at once, some after the restart
    process.start()
    served = ask_all(process, tokens, repeated, kill_at=DISTINCT // 2)
    process.stop()

    digests = {Candidate.propose(TASK, program, "").digest for program in wanted}
    assert {verdict.candidate for verdict in served.verdicts.values()} == digests
    for program, verdict in served.verdicts.items():
        assert verdict.candidate == Candidate.propose(TASK, program, "").digest
    ledger = Ledger(tmp_path / "ledger" / "requests.sqlite")
    assert ledger.judged() == {1: DISTINCT}, "each request has had exactly one verdict"
    assert ledger.waiting() == []
    ledger.close()
    done = judged(tmp_path / "judged.log")
    assert done.keys() == digests
    reported = {Candidate.propose(TASK, program, "").digest for program in served.before}
    assert len(reported) >= DISTINCT // 2
    assert {done[digest] for digest in reported} == {1}, "no program is judged again whose verdict a client has"
    # What was with evaluators, or on its way to the disk, when the service was killed, is begun again.
    assert sum(done.values()) - DISTINCT <= 2 * (EVALUATORS + 1)
    assert max(done.values()) <= 2
