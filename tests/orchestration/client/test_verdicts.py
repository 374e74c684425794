"""The client gets every verdict through a service that is away, full, or set up anew, and gives up in the end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from evaluators.records import Outcome, Verdict
from orchestration.client import ServiceError, Verdicts
from orchestration.client.verdicts import Asked
from orchestration.serving.clients import Client, Clients, Limits, digest
from tests.orchestration.serving.served import Served, program, served
from tests.ports import free_port

TOKEN = "anna-has-this-token"


def releasing(service: Served, number: int) -> threading.Thread:
    """Judges so many requests in the background, as they come."""

    def release() -> None:
        for _ in range(number):
            service.release()

    thread = threading.Thread(target=release, daemon=True)
    thread.start()
    return thread


def test_verdicts_come_in_the_order_of_the_programs_and_each_program_is_sent_once(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        thread = releasing(service, 3)
        asked = [Asked("softmax", program(number)) for number in (0, 1, 0, 2, 1)]
        verdicts = Verdicts(service.url).judge_all(asked)
        thread.join(30)
        assert [verdict.candidate for verdict in verdicts] == [
            Verdicts(service.url).judge("level1/softmax", program(number)).candidate for number in (0, 1, 0, 2, 1)
        ]
        assert len(service.judge.order) == 3


def test_more_programs_than_places_are_all_judged(tmp_path: Path) -> None:
    clients = Clients({digest(TOKEN): Client("anna")}, Limits(places=2))
    with served(tmp_path, clients) as service:
        releasing(service, 7)
        verdicts = Verdicts(service.url, TOKEN).judge_all([Asked("softmax", program(number)) for number in range(7)])
        assert len({verdict.candidate for verdict in verdicts}) == 7


def test_a_service_that_is_away_and_has_other_settings_since_gives_the_verdict(tmp_path: Path) -> None:
    port, found = free_port(), list[Verdict]()
    with served(tmp_path, settings="old", port=port) as before:
        client = Verdicts(before.url)
        thread = threading.Thread(target=lambda: found.append(client.judge("softmax", program(1))), daemon=True)
        thread.start()
        before.judge.given.get(timeout=30)  # it has asked, and waits
    with served(tmp_path, settings="new", port=port) as after:
        after.release(speedup=3.0)
        thread.join(30)
    assert [verdict.speedup for verdict in found] == [3.0]


def test_a_service_that_stays_away_is_given_up_in_the_time_allowed() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    client = Verdicts(f"http://127.0.0.1:{free_port()}", patience=100.0, clock=lambda: now[0], sleep=sleep)
    with pytest.raises(ServiceError, match=r"is away for 100 s: .*refused"):
        client.judge("softmax", program(1))
    assert 100.0 <= now[0] < 101.0


def test_a_refusal_is_raised_as_its_line_and_not_asked_again(tmp_path: Path) -> None:
    with served(tmp_path, Clients({digest(TOKEN): Client("anna")})) as service:
        with pytest.raises(ServiceError, match="there is no task 'nosuch' here"):
            Verdicts(service.url, TOKEN).judge("nosuch", program(1))
        with pytest.raises(ServiceError, match="no client has this token") as refused:
            Verdicts(service.url, "not-the-token-of-anna").judge("softmax", program(1))
        assert "not-the-token" not in str(refused.value)
        assert "not-the-token" not in repr(Verdicts(service.url, "not-the-token-of-anna"))
    with pytest.raises(ServiceError, match="must begin with http"):
        Verdicts("127.0.0.1:8321")


def test_a_verdict_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    with served(tmp_path) as service, pytest.raises(ServiceError, match="no verdict within 1 s"):
        Verdicts(service.url, limit=1.0).judge("softmax", program(1))


def test_our_own_failure_is_a_verdict(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        threading.Timer(0.1, service.release, [Outcome.INFRA]).start()
        assert Verdicts(service.url).judge("softmax", program(1)).outcome is Outcome.INFRA
