"""Hack cases are kept, found by likeness, and decided on by a person."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from evaluators.gauntlet import discover
from evaluators.guard import cases as guard_cases
from evaluators.guard.cases import CaseError, HackCases, Status, case_of, seeds
from evaluators.guard.similarity import similarity
from evaluators.records import Candidate, Finding, Outcome, Verdict
from evaluators.tasks import find_task, program_source
from evaluators.tasks.loader import load_variants
from tests.processes import forks

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


def test_a_case_names_the_findings_that_decided(cases: HackCases) -> None:
    made = case()
    assert (made.kinds, made.why, made.status) == (("clocks", "bursts"), "late; first", Status.SUSPECT)


def test_an_added_case_stays_and_is_added_once(cases: HackCases) -> None:
    assert cases.add([case(1), case(2)]) == 2
    assert cases.add([case(2), case(3)]) == 1
    again = HackCases(cases.path)
    assert [added.id for added in again.all()[len(seeds()) :]] == [case(1).id, case(2).id, case(3).id]
    assert again.find(case(1).id).added.endswith("+00:00")
    assert again.add([seeds()[0]]) == 0


def test_a_copy_of_an_exploit_without_its_docstring_is_that_exploit(cases: HackCases) -> None:
    for exploit in seeds():
        bare = ast.parse(exploit.source)
        del bare.body[0]
        assert cases.word_on(Candidate.propose(exploit.task, ast.unparse(bare), "policy:1").digest) is Status.SEED


def test_a_case_from_a_version_that_named_programs_otherwise_is_found(cases: HackCases) -> None:
    cases.add([replace(case(1), id="0123456789abcdef", status=Status.CONFIRMED)])
    again = HackCases(cases.path)
    assert again.word_on(case(1).id) is Status.CONFIRMED
    assert again.add([case(1)]) == 0


def test_a_persons_decision_stands(cases: HackCases) -> None:
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


@pytest.mark.parametrize("seed", seeds()[::9], ids=lambda seed: seed.origin)
def test_the_nearest_case_of_an_exploit_is_itself(cases: HackCases, seed) -> None:
    disguised = "# harmless\n" + seed.source.replace("ready", "kept").replace("result", "outcome")
    neighbours = cases.nearest(disguised, ("clocks",), seed.reference)
    assert neighbours.nearest.origin == seed.origin
    assert neighbours.likeness > max(0.85, neighbours.hacks[1][1])


def test_an_unconfirmed_case_is_no_neighbour_and_a_rejected_one_counts_as_honest(cases: HackCases) -> None:
    cases.add([case(1)])
    asked = case(2).source
    assert all(hack.id != case(1).id for hack, _ in cases.nearest(asked).hacks)
    cases.judge(case(1).id, Status.CONFIRMED)
    assert cases.nearest(asked, ("clocks", "bursts")).nearest.id == case(1).id
    assert cases.nearest(asked).likeness > 0.9
    cases.judge(case(1).id, Status.REJECTED)
    neighbours = cases.nearest(asked)
    assert neighbours.honest > 0.9
    assert neighbours.likeness == 0.0


def test_programs_are_not_alike_because_they_answer_the_same_task(cases: HackCases) -> None:
    """Right programs share most of their syntax with exploits of their task, but nothing peculiar."""
    task = find_task("level1/quantile_huber_loss", "cpu")
    sources = [variant.source for variant in load_variants(task.id)]
    exploits = [case.source for case in seeds() if case.task == task.id]
    by_syntax = median(max(similarity(source, exploit) for exploit in exploits) for source in sources)
    likeness = median(cases.nearest(source, reference=program_source(task)).hacks[0][1] for source in sources)
    assert likeness < 0.15 < 0.4 < by_syntax


def test_findings_do_not_make_an_honest_program_a_hack(cases: HackCases) -> None:
    """Text decides which program is nearer. Common findings only make a likeness more certain."""
    honest = next(program for program in discover("cpu") if not program.is_exploit)
    cases.add([case(1)])
    cases.judge(case(1).id, Status.CONFIRMED)
    near = cases.nearest(honest.source, ("clocks", "bursts"), program_source(find_task(honest.task, "cpu")))
    assert near.likeness == 0.0
    assert cases.nearest(SOURCE.format(2), ("clocks", "bursts")).likeness > 0.9


def test_a_change_by_another_process_is_seen(cases: HackCases) -> None:
    assert len(cases.all()) == len(seeds())
    HackCases(cases.path).add([case(1)])
    assert len(cases.all()) == len(seeds()) + 1
    HackCases(cases.path).judge(case(1).id, Status.CONFIRMED)
    assert cases.word_on(case(1).id) is Status.CONFIRMED


def test_a_decision_on_a_program_counts_for_that_program_alone(cases: HackCases) -> None:
    cases.add([case(1)])
    assert (cases.word_on(case(1).id), cases.word_on(case(2).id)) == (Status.SUSPECT, None)
    cases.judge(case(1).id, Status.REJECTED)
    assert cases.word_on(case(1).id) is Status.REJECTED
    assert cases.word_on(seeds()[0].id) is Status.SEED


def _add(path: Path, number: int) -> None:
    HackCases(path).add([case(number)])


@pytest.mark.slow
def test_nothing_is_lost_when_several_processes_add(cases: HackCases) -> None:
    context = forks()
    workers = [context.Process(target=_add, args=(cases.path, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(cases.all()) == len(seeds()) + 4


def test_a_lock_that_is_not_given_back_is_an_error(cases: HackCases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_cases, "_LOCK_SECONDS", 0.1)
    with cases._locked(), pytest.raises(CaseError, match="locked"):
        HackCases(cases.path).add([case()])
