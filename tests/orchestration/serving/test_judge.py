"""The judge gives each request the verdict on its program, and believes what it knows of today's tasks alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from configs.load import parse_config
from evaluators.records import Candidate, Task
from orchestration.serving.judge import Judge
from orchestration.serving.ledger import Ledger
from orchestration.serving.records import Request, as_json, request_id
from tests.orchestration.serving.served import SOFTMAX, TASKS, program, verdict_on
from tests.orchestration.step.scripted import Pool


def judge_in(folder: Path) -> Judge:
    """A judge over pools that answer at once."""
    folder.mkdir()
    pools: Any = SimpleNamespace(builders=Pool(lambda _: None), evaluators=Pool(verdict_on_item), confirms=False)
    config = parse_config("name: serve\n", "serve", ["evaluator.arch=cpu"]).config
    return Judge(config, TASKS, pools, folder / "store", cpu_look=False)


def verdict_on_item(item: Any) -> Any:
    verdict = verdict_on(item)
    return replace(verdict, evaluator={**verdict.evaluator, "preset": item.preset})


def request(task: Task = SOFTMAX, number: int = 1, **changes: Any) -> Request:
    candidate = Candidate.propose(task.id, program(number), "client:anna")
    name = request_id(task.digest, candidate.digest, "settings")
    return replace(Request(name, task, candidate, "anna", 0), **changes)


def test_two_requests_on_one_program_both_hear_its_verdict(tmp_path: Path) -> None:
    judge, heard = judge_in(tmp_path / "judge"), list[str]()
    judge._on_verdict = lambda request, verdict, row: heard.append(request.id)
    for name in ("first", "second"):
        judge.submit(request(id=name))
    judge._take(0.0)
    while judge._judging.advance():
        pass
    assert heard == ["first", "second"]


def test_a_speedup_over_what_a_task_was_before_is_not_believed_of_the_task(tmp_path: Path) -> None:
    before = replace(SOFTMAX, source=f"{SOFTMAX.source}\nEXTRA = 1\n")
    own = Task("source/own", 0, "source/own", before.source)
    ledger = Ledger(tmp_path / "requests.sqlite")
    judged = [(request(before), 9.0), (request(number=2), 1.5), (request(own, is_sent=True), 3.0)]
    for number, (each, speedup) in enumerate(judged):
        ledger.accept(each, number, "settings")
        verdict = verdict_on(each, speedup=speedup)
        ledger.settle(each.id, verdict, as_json(verdict)).result()
    judge = judge_in(tmp_path / "judge")
    judge.resume(ledger, "settings")
    assert [judge.reviewer.best_of(task) for task in (SOFTMAX.id, own.id)] == [1.5, 3.0]
    ledger.close()
