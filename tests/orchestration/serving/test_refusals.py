"""Bad input gives one clear line, and what one client may do has limits."""

from __future__ import annotations

import http.client
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from configs.load import ConfigError
from orchestration.serving.clients import Client, Clients, Limits, digest, read_tokens, require_tokens
from orchestration.serving.records import Refusal
from tests.orchestration.serving.served import SOFTMAX, call, program, served

GOOD = {"task": "softmax", "program": program(1)}
ANNA, BERT = "anna-has-this-token", "bert-has-that-token"


def two_clients(**limits: int) -> Clients:
    return Clients({digest(ANNA): Client("anna"), digest(BERT): Client("bert")}, Limits(**limits))


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        (b"", 400, "body: Input data was truncated"),
        (b"{", 400, "body: Input data was truncated"),
        (b"[" * 100_000, 400, "body: "),
        (b'{"task": "softmax", "program": "\\ud800"}', 400, "body: "),
        (b'{"task": "softmax", "program": "\xff"}', 400, "body: "),
        ({"task": "softmax"}, 400, "missing required field `program`"),
        ({**GOOD, "program": 7}, 400, "Expected `str`, got `int` - at `$.program`"),
        ({**GOOD, "priority": 1000}, 400, "`$.priority`"),
        ({**GOOD, "preset": "paper"}, 400, "unknown field `preset`"),
        ({**GOOD, "task": "nosuch"}, 400, "task: there is no task 'nosuch' here; GET /v1/tasks lists them"),
        ({**GOOD, "task": __file__}, 400, "there is no task"),
        ({**GOOD, "task": "../../etc/passwd\n" * 1000}, 400, "there is no task"),
        ({**GOOD, "task": {"source": SOFTMAX.source}}, 403, "a task's own text runs uncontained"),
        ({**GOOD, "task": {"path": "/etc/passwd"}}, 400, "unknown field `path`"),
        ({**GOOD, "program": "x" * (3 << 20)}, 413, "body: more than 2097152 bytes"),
    ],
)
def test_a_bad_body_is_refused_in_one_line(tmp_path: Path, body: Any, status: int, line: str) -> None:
    with served(tmp_path) as service:
        found, answer, _ = call(f"{service.url}/v1/verdicts", body)
        assert found == status, answer
        assert answer.keys() == {"error"}
        assert line in answer["error"]
        assert "\n" not in answer["error"]
        assert len(answer["error"]) < 700
        assert service.ledger.outcomes() == {}


def test_a_task_text_that_is_no_task_is_refused(tmp_path: Path) -> None:
    clients = Clients({digest(ANNA): Client("anna", sends_tasks=True)})
    with served(tmp_path, clients) as service:
        lines = {"def (": "task.source: does not parse", "x = 1": "Model, get_init_inputs, get_inputs missing"}
        for source, line in lines.items():
            status, answer, _ = call(f"{service.url}/v1/verdicts", {**GOOD, "task": {"source": source}}, ANNA)
            assert (status, line in answer["error"]) == (400, True), answer


def test_other_ways_and_places_are_refused_in_one_line(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        url = service.url
        assert call(f"{url}/v1/nothing")[:2] == (
            404, {"error": "there is nothing here; the interface is POST /v1/verdicts, GET /v1/verdicts/ID, /v1/queue,"
                           " /v1/tasks, /v1/health and /metrics"},
        )  # fmt: skip
        assert call(f"{url}/v1/verdicts")[:2] == (405, {"error": "/v1/verdicts takes POST"})
        assert call(f"{url}/v1/verdicts/0123")[0] == 404
        assert "wait must be from 0 to 60" in call(f"{url}/v1/verdicts?wait=nan", GOOD)[1]["error"]
        assert call(f"{url}/v1/verdicts?wait=61", GOOD)[0] == 400
        form = call(f"{url}/v1/verdicts", json.dumps(GOOD).encode(), headers={"Content-Type": "text/plain"})
        assert form[0] == 415


def test_without_tokens_another_site_in_a_browser_here_reaches_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        assert call(f"{service.url}/v1/queue", headers={"Host": "evil.example"})[0] == 403
        assert call(f"{service.url}/v1/queue", headers={"Host": "localhost:8321"})[0] == 200


def test_a_token_is_needed_and_stands_in_no_answer_and_no_log(tmp_path: Path, caplog) -> None:
    with caplog.at_level(logging.DEBUG), served(tmp_path, two_clients()) as service:
        url = f"{service.url}/v1/verdicts"
        assert call(url, GOOD)[:2] == (
            401, {"error": "send the header `Authorization: Bearer TOKEN` with this client's token"},
        )  # fmt: skip
        status, answer, headers = call(url, GOOD, "a-wrong-token-of-somebody")
        assert (status, answer, headers["WWW-Authenticate"]) == (401, {"error": "no client has this token"}, "Bearer")
        assert call(url, GOOD, ANNA)[0] == 202
        assert call(f"{service.url}/v1/queue", token=BERT)[1]["client"]["name"] == "bert"
        assert call(f"{service.url}/metrics")[0] == 401
    assert not any(token in caplog.text for token in (ANNA, BERT, "a-wrong-token"))


def test_a_client_has_so_many_places_and_the_others_have_theirs(tmp_path: Path) -> None:
    with served(tmp_path, two_clients(places=2), depth=1) as service:
        url = f"{service.url}/v1/verdicts"
        bodies = [{"task": "softmax", "program": program(number)} for number in range(4)]
        assert [call(url, body, ANNA)[0] for body in bodies] == [202, 202, 429, 429]
        assert call(url, bodies[0], ANNA)[0] == 202, "what waits already takes no further place"
        _, answer, headers = call(url, bodies[2], ANNA)
        assert answer == {"error": "2 requests of anna wait already, which is the most"}
        assert headers["Retry-After"] == "5"
        assert call(url, bodies[2], BERT)[0] == 202
        service.release()
        assert call(f"{url}?wait=30", bodies[0], ANNA)[0] == 200
        assert call(url, bodies[3], ANNA)[0] == 202


def test_the_queue_of_all_has_an_end(tmp_path: Path) -> None:
    with served(tmp_path, two_clients(queue=1)) as service:
        url = f"{service.url}/v1/verdicts"
        assert call(url, GOOD, ANNA)[0] == 202
        assert call(url, {**GOOD, "program": program(2)}, BERT)[:2] == (
            503, {"error": "1 requests wait already, which is the most"},
        )  # fmt: skip


def test_requests_a_minute_are_counted_by_a_clock() -> None:
    now = [0.0]
    tokens = {digest(ANNA): Client("anna"), digest(BERT): Client("bert")}
    clients = Clients(tokens, Limits(per_minute=60), lambda: now[0])
    for _ in range(60):
        clients.admit(f"Bearer {ANNA}")
    with pytest.raises(Refusal, match="more than 60 requests a minute; wait 2 s"):
        clients.admit(f"Bearer {ANNA}")
    clients.admit(f"bearer {BERT}")
    now[0] += 1.0
    clients.admit(f"Bearer {ANNA}")
    with pytest.raises(Refusal) as refused:
        clients.admit(f"Bearer {ANNA}")
    assert (refused.value.status, refused.value.retry_after) == (429, 2)


def test_a_body_that_never_comes_holds_no_other_request_up(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        host = service.url.removeprefix("http://")
        slow = http.client.HTTPConnection(host)
        slow.putrequest("POST", "/v1/verdicts")
        slow.putheader("Content-Type", "application/json")
        slow.putheader("Content-Length", "100")
        slow.endheaders()
        assert call(f"{service.url}/v1/health")[0] == 200
        slow.close()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("anna", "line 1: a line must be NAME TOKEN"),
        ("# none\n", "names no client"),
        (f"anna {ANNA} everything", "line 1: a line must be NAME TOKEN"),
        ("anna short", "line 1: the token of anna must have at least 16 characters"),
        (f"an/na {ANNA}", "line 1: a client's name must be"),
        (f"anna {ANNA}\nanna {BERT}", "line 2: anna, or its token, stands in another line"),
        (f"anna {ANNA}\nbert {ANNA}", "line 2: bert, or its token, stands in another line"),
    ],
)
def test_a_bad_file_of_tokens_is_refused_and_no_token_repeated(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=line) as refused:
        read_tokens(file, {})
    assert not any(token in str(refused.value) for token in (ANNA, BERT, "short"))


def test_a_file_of_tokens_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"anna {ANNA}")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=f"chmod 600 {file}"):
        read_tokens(file, {})
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tokens(tmp_path / "nosuch", {})


def test_tokens_of_the_environment_are_inherited_by_nobody() -> None:
    environment = {"WARPSMITH_TOKENS": f"anna {ANNA}, bert {BERT} tasks", "HOME": os.sep}
    found = read_tokens(None, environment)
    assert {client.name: client.sends_tasks for client in found.values()} == {"anna": False, "bert": True}
    assert environment == {"HOME": os.sep}
    assert read_tokens(None, environment) == {}


def test_a_service_without_tokens_listens_to_this_machine_alone() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        require_tokens(host, Clients())
    require_tokens("0.0.0.0", two_clients())
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(ConfigError, match="without --tokens FILE"):
            require_tokens(host, Clients())
