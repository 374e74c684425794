"""What a client gets of the service: each program is judged once, whoever asks, in the order of priorities."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.records import Outcome, Verdict
from orchestration.serving.clients import Client, Clients, Limits, digest
from tests.orchestration.serving.served import SOFTMAX, Served, call, program, served


def ask(number: int, priority: int = 0, task: Any = "softmax") -> dict[str, Any]:
    return {"task": task, "program": program(number), "priority": priority}


def settle(service: Served, numbers: Iterable[int]) -> None:
    """Asks for programs, and judges each at once."""
    for number in numbers:
        place = call(f"{service.url}/v1/verdicts", ask(number))[2]["Location"]
        service.release()
        assert call(f"{service.url}{place}?wait=30")[0] == 200


def test_a_request_is_accepted_then_judged_then_answered_with_the_verdict_record(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        status, answer, headers = call(f"{service.url}/v1/verdicts", ask(1))
        assert (status, answer["state"], headers["Retry-After"]) == (202, "judging", "1")
        place = service.url + headers["Location"]
        assert call(f"{place}?wait=0.05")[0] == 202
        service.release()
        status, answer, headers = call(f"{place}?wait=30")
        assert status == 200
        assert headers["Content-Location"] == f"/v1/verdicts/{place.rpartition('/')[2]}"
        verdict = Verdict.from_row(answer)
        assert (verdict.task, verdict.outcome, verdict.speedup) == (SOFTMAX.id, Outcome.OK, 1.5)
        assert answer.keys() == verdict.to_row().keys()


def test_the_same_program_is_judged_once_for_all_who_ask_at_once_or_later_or_in_other_words(tmp_path: Path) -> None:
    answers: list[Any] = []
    with served(tmp_path) as service:
        url = f"{service.url}/v1/verdicts?wait=30"
        same = {"task": SOFTMAX.id, "program": "# a comment\n" + program(1)}
        bodies = [ask(1), same, ask(1), same]
        threads = [threading.Thread(target=lambda body=body: answers.append(call(url, body))) for body in bodies]
        for thread in threads:
            thread.start()
        service.release()
        for thread in threads:
            thread.join(30)
        assert [status for status, _, _ in answers] == [200] * 4
        assert call(url, same)[:2] == answers[0][:2]
        assert len(service.judge.order) == 1
        assert service.ledger.judged() == {1: 1}


def test_a_restart_goes_on_with_what_was_accepted_and_judges_nothing_again(tmp_path: Path) -> None:
    with served(tmp_path, depth=1) as service:
        places = [call(f"{service.url}/v1/verdicts", ask(number))[2]["Location"] for number in range(4)]
        service.release()
        assert call(f"{service.url}{places[0]}?wait=30")[0] == 200
    with served(tmp_path, depth=1) as service:
        assert call(service.url + places[0])[0] == 200
        assert call(service.url + places[2])[0] == 202
        for _ in range(3):
            service.release()
        assert [call(f"{service.url}{place}?wait=30")[0] for place in places] == [200] * 4
        assert service.judge.order == [program(number) for number in (1, 2, 3)]
        assert service.ledger.judged() == {1: 4}


def test_other_settings_judge_anew_and_take_over_what_waits(tmp_path: Path) -> None:
    with served(tmp_path, settings="old") as service:
        before = [call(f"{service.url}/v1/verdicts", ask(number))[2]["Location"] for number in range(2)]
        service.release()
        assert call(f"{service.url}{before[0]}?wait=30")[0] == 200
    with served(tmp_path, settings="new") as service:
        assert service.release().candidate.source == program(1)
        status, _, headers = call(f"{service.url}/v1/verdicts?wait=30", ask(1))
        assert (status, headers["Content-Location"] == before[1]) == (200, False)
        assert call(service.url + before[1])[0] == 404
        assert call(f"{service.url}/v1/verdicts", ask(0))[0] == 202


def test_a_task_whose_text_has_changed_is_judged_anew_and_by_its_new_text_alone(tmp_path: Path) -> None:
    changed = replace(SOFTMAX, source=f"{SOFTMAX.source}\nEXTRA = 1\n")
    with served(tmp_path) as service:
        before = call(f"{service.url}/v1/verdicts", ask(1))[2]["Location"]
    with served(tmp_path, tasks={changed.id: changed}) as service:
        status, _, headers = call(f"{service.url}/v1/verdicts", ask(1))
        assert (status, headers["Location"] == before) == (202, False)
        assert call(service.url + before)[0] == 404
        assert service.release().task == changed
        assert call(f"{service.url}{headers['Location']}?wait=30")[0] == 200
        assert service.judge.order == [program(1)]


def test_requests_that_have_become_the_same_one_are_judged_once(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        place = call(f"{service.url}/v1/verdicts", ask(1))[2]["Location"]
    with sqlite3.connect(tmp_path / "requests.sqlite") as database:
        database.execute("CREATE TEMP TABLE earlier AS SELECT * FROM requests")
        database.execute("UPDATE earlier SET id = 'earlier', number = 0, settings = 'earlier'")
        database.execute("INSERT INTO requests SELECT * FROM earlier")
    database.close()
    with served(tmp_path) as service:
        service.release()
        assert call(f"{service.url}{place}?wait=30")[0] == 200
        queue = call(f"{service.url}/v1/queue")[1]
        assert (queue["waiting"], queue["judging"], queue["client"]["waiting"]) == (0, 0, 0)
        assert service.judge.order == [program(1)]


def test_higher_priorities_go_first_and_a_waiting_request_can_be_preferred(tmp_path: Path) -> None:
    with served(tmp_path, depth=1) as service:
        for number, priority in ((0, 0), (1, 0), (2, 0), (3, 5), (4, -5)):
            assert call(f"{service.url}/v1/verdicts", ask(number, priority))[0] == 202
        assert call(f"{service.url}/v1/verdicts", ask(2, 7))[1]["priority"] == 7
        for _ in range(5):
            service.release()
        assert service.judge.order == [program(number) for number in (0, 2, 3, 1, 4)]


def test_our_own_failure_is_an_answer_but_a_new_request_is_judged_again(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        url = f"{service.url}/v1/verdicts?wait=30"
        threading.Timer(0.1, service.release, [Outcome.INFRA]).start()
        status, answer, headers = call(url, ask(1))
        assert (status, answer["outcome"]) == (200, "infra")
        assert call(service.url + headers["Content-Location"])[1]["outcome"] == "infra"
        threading.Timer(0.1, service.release).start()
        assert call(url, ask(1))[1]["outcome"] == "ok"
        assert call(url, ask(1))[1]["outcome"] == "ok"


def test_the_queue_the_tasks_and_the_metrics_are_told(tmp_path: Path) -> None:
    clients = Clients({digest("a" * 16): Client("anna")}, Limits(places=7))
    with served(tmp_path, clients, depth=1) as service:
        for number in range(3):
            call(f"{service.url}/v1/verdicts", ask(number), "a" * 16)
        service.release()
        call(f"{service.url}/v1/verdicts?wait=30", ask(0), "a" * 16)
        _, queue, _ = call(f"{service.url}/v1/queue", token="a" * 16)
        assert queue == {
            "waiting": 2, "judging": 1, "evaluators": 1, "verdicts": {"ok": 1},
            "client": {"name": "anna", "waiting": 2, "places": 7},
        }  # fmt: skip
        assert call(f"{service.url}/v1/tasks", token="a" * 16)[1] == {
            "tasks": [{"id": "level1/softmax", "level": 1, "name": "softmax"}]
        }
        assert call(f"{service.url}/v1/health")[1] == {"status": "ok", "arch": "cpu", "evaluators": 1}
        text = call(f"{service.url}/metrics", token="a" * 16)[1]
        assert 'warpsmith_serve_verdicts_total{outcome="ok"} 1.0' in text
        assert "warpsmith_serve_waiting 2.0" in text
        assert 'warpsmith_serve_answers_total{client="anna",status="202"} 3.0' in text


@pytest.mark.parametrize("held", [False, True])
def test_a_client_that_may_send_tasks_has_its_own_judged(tmp_path: Path, held: bool) -> None:
    clients = Clients({digest("a" * 16): Client("anna", sends_tasks=True)})
    own = SOFTMAX.source + "\nsize = 4\n"
    with served(tmp_path, clients, depth=1) as service:
        if held:  # it waits over a restart
            call(f"{service.url}/v1/verdicts", ask(0), "a" * 16)
        status, answer, _ = call(f"{service.url}/v1/verdicts", ask(1, task={"source": own}), "a" * 16)
        assert (status, answer["state"]) == (202, "queued" if held else "judging")
    with served(tmp_path, Clients(), depth=2) as service:
        requests = [service.release() for _ in range(2 if held else 1)]
        assert requests[-1].task.source == own
        assert requests[-1].task.id.startswith("source/")


def test_the_oldest_verdicts_are_forgotten_and_what_waits_is_not(tmp_path: Path) -> None:
    with served(tmp_path, depth=1, kept=3) as service:
        url = f"{service.url}/v1/verdicts"
        places = [call(url, ask(number))[2]["Location"] for number in range(6)]
        for place in places[:5]:
            service.release()
            assert call(f"{service.url}{place}?wait=30")[0] == 200, "however many wait"
        assert [call(service.url + place)[0] for place in places] == [404, 404, 200, 200, 200, 202]
        assert service.ledger.outcomes() == {"ok": 3, "": 1}
        assert call(url, ask(0))[0] == 202, "it is judged anew"


def test_a_ledger_of_an_earlier_version_forgets_what_it_held_first(tmp_path: Path) -> None:
    with served(tmp_path, depth=1) as service:
        settle(service, range(3))
    with sqlite3.connect(tmp_path / "requests.sqlite") as database:
        database.execute("DROP INDEX judged")
        database.execute("ALTER TABLE requests DROP COLUMN settled")
    database.close()
    with served(tmp_path, depth=1, kept=2) as service:
        settle(service, range(3, 5))
        assert [call(f"{service.url}/v1/verdicts", ask(number))[0] for number in (3, 4, 0)] == [200, 200, 202]
