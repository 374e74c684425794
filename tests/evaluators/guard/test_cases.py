"""Cases are kept, found by likeness, and judged by a person."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from evaluators.guard.cases import CaseError, HackCases, Status, case_of, seeds
from evaluators.records import Candidate, Finding, Outcome, Verdict

SOURCE = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * {}\n"
FINDINGS = (Finding("text", "hint", "odd"), Finding("clocks", "suspect", "late"), Finding("bursts", "suspect", "first"))


def case(number: int = 1):
    candidate = Candidate.propose("level1/softmax", SOURCE.format(number), "policy:3")
    verdict = Verdict(candidate.digest, candidate.task_id, "cpu", Outcome.SUSPECT, guard=FINDINGS)
    return case_of(candidate, verdict, "runs/first")


@pytest.fixture
def cases(tmp_path: Path) -> HackCases:
    return HackCases(tmp_path / "store" / "hacks.parquet")


def test_the_gauntlets_exploits_are_cases_from_the_start(cases: HackCases) -> None:
    assert len(seeds()) >= 70
    assert cases.all() == list(seeds())


def test_a_case_says_what_decided(cases: HackCases) -> None:
    made = case()
    assert (made.kinds, made.why, made.status) == (("clocks", "bursts"), "late; first", Status.SUSPECT)


def test_what_is_added_stays_and_is_added_once(cases: HackCases) -> None:
    assert cases.add([case(1), case(2)]) == 2
    assert cases.add([case(2), case(3)]) == 1
    again = HackCases(cases.path)
    assert [one.id for one in again.all()[len(seeds()) :]] == [case(1).id, case(2).id, case(3).id]
    assert again.find(case(1).id).added.endswith("+00:00")
    assert again.add([seeds()[0]]) == 0


def test_a_persons_word_stands(cases: HackCases) -> None:
    cases.add([case()])
    assert cases.judge(case().id[:10], Status.CONFIRMED).status is Status.CONFIRMED
    cases.add([case()])
    assert cases.find(case().id).status is Status.CONFIRMED


def test_cases_that_are_unknown_or_of_the_gauntlet_are_refused(cases: HackCases) -> None:
    with pytest.raises(CaseError, match="no case"):
        cases.find("zzz")
    with pytest.raises(CaseError, match="cases"):
        cases.find("")
    with pytest.raises(CaseError, match="gauntlet"):
        cases.judge(seeds()[0].id, Status.REJECTED)


@pytest.mark.parametrize("seed", seeds()[::9], ids=lambda one: one.origin)
def test_the_nearest_case_of_an_exploit_is_itself(cases: HackCases, seed) -> None:
    disguised = "# harmless\n" + seed.source.replace("ready", "kept").replace("result", "outcome")
    (first, likeness), (_, second), _ = cases.nearest(disguised, seed.kinds)
    assert first.origin == seed.origin
    assert likeness > max(0.85, second)


def test_a_rejected_case_is_no_neighbour(cases: HackCases) -> None:
    cases.add([case()])
    assert cases.nearest(case().source, ("clocks", "bursts"))[0][0].id == case().id
    cases.judge(case().id, Status.REJECTED)
    assert all(one.id != case().id for one, _ in cases.nearest(case().source))


def _add(path: Path, number: int) -> None:
    HackCases(path).add([case(number)])


def test_nothing_is_lost_when_several_processes_add(cases: HackCases) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add, args=(cases.path, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(cases.all()) == len(seeds()) + 4
