"""`warpsmith collect`: what is refused before anything starts, and what the plan says. Real runs are in
tests/orchestration/test_collect.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaluators.records import Candidate, Outcome
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState
from tests.orchestration.step.endpoint_server import Reply, serving

AWAY = "http://127.0.0.1:9/v1"


def asking(url: str) -> list[str]:
    return [f"sft.endpoints.large={{url: '{url}', model: m}}", "sft.teachers=[bundled,large]"]


def refused(done: Any, says: str) -> None:
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert not Path("runs").exists(), "nothing was written"


def test_the_plan_has_no_policy_and_asks_nobody(warpsmith) -> None:
    with serving(lambda *_: Reply()) as endpoint:
        done = warpsmith("collect", "local", *asking(endpoint.url), "--dry-run")
        assert endpoint.seen == []
    assert done.exit_code == 0, done.output
    assert "name: local-collect\n" in done.stdout
    said = " ".join(done.stdout.split())
    assert "1-collect 1 - nothing: it keeps verified programs of bundled, large" in said
    assert "24 tasks on cpu; policy none; 0 engine(s), 0 learner rank(s), 1 evaluator(s)" in said
    assert not Path("runs").exists()


def test_a_configuration_for_gpus_that_roles_share_needs_none_but_for_evaluators(warpsmith) -> None:
    words = ["tasks.source=bundled", "tasks.include=[level1/softmax]", "tasks.held_out.share=0"]
    done = warpsmith("collect", "h200", *words, "sft.teachers=[bundled]", "name=own", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "name: own\n" in done.stdout
    assert "policy none; 0 engine(s), 0 learner rank(s)" in " ".join(done.stdout.split())


def test_an_endpoint_that_is_away_is_refused_by_the_key_that_names_it(warpsmith) -> None:
    refused(warpsmith("collect", "local", *asking(AWAY)), f"sft.endpoints.large.url: {AWAY} cannot be reached")
    words = [f"sft.teachers=[{AWAY}]", "sft.teacher_model=m"]
    refused(warpsmith("collect", "local", *words), f"sft.teachers: {AWAY} cannot be reached")


def test_behind_a_proxy_nobody_else_is_asked_whether_an_endpoint_is_there(
    warpsmith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:10")
    monkeypatch.setenv("no_proxy", "")
    assert warpsmith("collect", "local", *asking(AWAY), "--dry-run").exit_code == 0
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    refused(warpsmith("collect", "local", *asking(AWAY), "--dry-run"), "cannot be reached")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sft.teachers=[absent.jsonl]"], "absent.jsonl cannot be read"),
        (["sft.teachers=[large]"], "large cannot be read"),
        (["sft.endpoints.large={url: 'http://[/v1', model: m}", "sft.teachers=[large]"], "http://[/v1 is no address"),
        (["sft.endpoints.large.model=m", "sft.teachers=[large]"], "sft.endpoints.large.url must be an http(s) address"),
        (["--output", "absent/examples.jsonl"], "--output absent/examples.jsonl: there is no folder absent"),
        (["sft.tires=3"], "did you mean sft.tries?"),
    ],
)
def test_what_cannot_be_asked_or_written_is_refused(warpsmith, words: list[str], says: str) -> None:
    refused(warpsmith("collect", "local", *words), says)


def test_a_finished_run_hands_its_file_over_again_and_asks_nobody(warpsmith) -> None:
    """Its endpoint may be away by then."""
    program = Candidate.propose("level1/softmax", "x = 1", "teacher:large")
    row = {"task_id": program.task_id, "teacher": "large", "source": program.source, "outcome": str(Outcome.OK)}
    from configs.load import load_config
    from orchestration.commands.collect import _ALONE

    run = RunDirectory("runs", "local-collect")
    config = load_config("local", [*asking(AWAY), *_ALONE, "name=local-collect"])
    run.write_config(config)
    run.write_examples(json.dumps(row).encode() + b"\n")
    given = {"name": "large", "tasks": 1, "solved": 1, "tries": 20, "right": 1, "faster": 1, "lost": 0}
    teacher = {**given, "prompt_tokens": 2000, "completion_tokens": 800, "cost": 1.25}
    extra = {"completed": ["1-collect"], "1-collect": {"teachers": [teacher], "examples": 1}}
    run.write_state(RunState(phase="collect", step=1, finished=True, extra=extra))
    run.metrics.write("1-collect", 0, {"examples": 1.0})
    done = warpsmith("collect", "local", *asking(AWAY), "--output", "mine.jsonl")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("mine.jsonl").read_text()) == row
    assert "1 verified programs: mine.jsonl" in done.stdout
    assert "large 1 1 20 1 1 0 2,000 800 1.25" in " ".join(done.stdout.split()), "the table of teachers"
