"""`warpsmith collect` as its guide gives it: real processes, real endpoints, real verdicts, and a kill.

The model behind an endpoint hands the reference over again, which is right; one of them fails twice before.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evaluators.records import Candidate
from orchestration.run.directory import RunDirectory
from tests.orchestration.processes import HANG_SECONDS, PROGRAM, REPOSITORY, left_of
from tests.orchestration.step.endpoint_server import Endpoint, Reply, answer, chat, serving

GUIDE = (REPOSITORY / "docs" / "guides" / "collect.md").read_text(encoding="utf-8")
SHORT = [
    "tasks.include=[level1/softmax,level1/triangular_matmul]",
    "tracking.enabled=false",
    "sft.tries=6",
    "sft.min_speedup=0",  # a reference that is handed over again counts, too
    "tasks.levels=[1]",
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
REFERENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def commands() -> list[list[str]]:
    """The words of the guide's commands, behind `warpsmith`."""
    lines = [line for language, block in FENCE.findall(GUIDE) if not language for line in block.splitlines()]
    return [[word.strip("'") for word in line.split()[1:]] for line in lines if line.startswith("warpsmith ")]


def configuration(large: str, small: str) -> str:
    """The guide's configuration, as in the root of the checkout, with the addresses of these endpoints."""
    (text,) = [block for language, block in FENCE.findall(GUIDE) if language == "yaml"]
    first, second = re.findall(r"https?://[^\s\",}]+", text)
    return str(text).replace("base: ", f"base: {REPOSITORY}/").replace(first, large).replace(second, small)


class Model:
    """Its first `failures` programs for a task do not compile. From its answer number `hangs_after` on it waits until
    the client is killed."""

    def __init__(self, failures: int, hangs_after: int = 10**9) -> None:
        self._failures, self._hangs_after = failures, hangs_after
        self._asked, self._lock = Counter[str](), threading.Lock()
        self.hangs, self.killed = threading.Event(), threading.Event()

    def __call__(self, number: int, request: dict[str, Any]) -> Reply:
        if number >= self._hangs_after and not self.killed.is_set():
            self.hangs.set()
            self.killed.wait(HANG_SECONDS)
        prompt = request["messages"][0]["content"]
        with self._lock:
            self._asked[prompt] += 1
            asked = self._asked[prompt]
        if asked <= self._failures:
            return Reply(chat(answer(f"class ModelNew(:  # {number}")))
        reference = REFERENCE.search(prompt)
        assert reference is not None, prompt
        return Reply(chat(answer(f"{reference[1].replace('class Model(', 'class ModelNew(')}\nNUMBER = {number}")))


class Collected(NamedTuple):
    """`kept`: answers that were on the disk at the kill. `asked`: requests after it. `outputs`: of the commands."""

    run: RunDirectory
    again: RunDirectory
    endpoints: list[Endpoint]
    rows: list[dict[str, Any]]
    kept: int
    asked: int
    asked_later: int
    outputs: list[str]


def start(root: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PATH": f"{os.environ['PATH']}{os.pathsep}{root}"}
    environment |= {"LARGE_KEY": "secret"}
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        [sys.executable, *PROGRAM, *words, *SHORT], cwd=root, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=HANG_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    return output


def kill_and_go_on(root: Path) -> Collected:
    """The guide's commands: the plan, collecting, killed and given again twice, and the plan of a run that learns. Then
    a run that collects from the file, without the second measurement of what seems the fastest: which program seems so
    depends on which verdict comes first."""
    plan, collect, learn = commands()
    run, again = RunDirectory(str(root / "runs"), "coder-collect"), RunDirectory(str(root / "runs"), "again")
    large, small = Model(failures=2, hangs_after=5), Model(failures=0)
    with serving(large) as first, serving(small) as second:
        (root / "coder.yaml").write_text(configuration(first.url, second.url))
        outputs = [finish(start(root, *plan))]
        killed = start(root, *collect)
        try:
            assert large.hangs.wait(HANG_SECONDS)
            deadline = time.monotonic() + HANG_SECONDS
            while run.answers().count < 5 + 4 and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            killed.communicate(timeout=60)
        kept, before = run.answers().count, len(first.seen) + len(second.seen)
        large.killed.set()
        outputs.append(finish(start(root, *collect)))
        after = len(first.seen) + len(second.seen)
        rows = [json.loads(line) for line in (root / "lessons.jsonl").read_text().splitlines()]
        (root / "lessons.jsonl").unlink()
        outputs += [finish(start(root, *collect)), finish(start(root, *learn))]
        from_file = [word for word in learn[2:] if not word.startswith("--")]
        once = ["name=again", "evaluator.remeasure_best=0"]
        outputs.append(finish(start(root, "collect", "coder.yaml", *once, *from_file)))
        asked_later = len(first.seen) + len(second.seen) - after
    assert left_of(root) == []
    return Collected(run, again, [first, second], rows, kept, after - before, asked_later, outputs)


IN_BACKGROUND = {"collected": kill_and_go_on}


@pytest.fixture(scope="session")
def collected(in_background) -> Collected:
    found: Collected = in_background("collected")
    return found


@pytest.mark.slow
def test_a_killed_command_goes_on_and_pays_for_no_answer_twice(collected: Collected) -> None:
    answers = collected.run.answers().count
    assert collected.kept == 5 + 4
    assert collected.asked == answers - collected.kept, "only what the disk did not have is asked for"
    assert answers == 2 * (2 + 2) + 2 * 2
    assert collected.asked_later == 0, "a finished run, and one from the file, ask nobody"


@pytest.mark.slow
def test_endpoints_are_asked_as_their_names_say(collected: Collected) -> None:
    large, small = ({(one["model"], one.get("max_tokens"), one["key"]) for one in e.seen} for e in collected.endpoints)
    assert large == {("LARGE_MODEL", 16000, "Bearer secret")}
    assert {(model, limit) for model, limit, _ in small} == {("SMALL_MODEL", None)}


@pytest.mark.slow
def test_every_example_is_an_evaluated_candidate_in_the_store(collected: Collected) -> None:
    stored = {row["digest"]: row for row in collected.run.candidates.read().to_pylist()}
    judged = {row["candidate"]: row for row in collected.run.verdicts.read().to_pylist()}
    assert Counter(row["teacher"] for row in collected.rows)["large"] == 4
    assert {row["teacher"] for row in collected.rows} == {"bundled", "large", "small"}
    for row in collected.rows:
        digest = Candidate.propose(row["task_id"], row["source"], "").digest
        assert stored[digest]["source"]
        assert judged[digest]["outcome"] == row["verdict"]["outcome"] == "ok"
        assert row["prompt"]
        assert "## Code Implementation" in row["response"]
        assert row["speedup"] > 0.0
        if row["teacher"] == "large":
            assert row["cost"] == pytest.approx((100 * 3 + 40 * 15) / 1e6)
    assert "build_error" in {row["outcome"] for row in judged.values()}, "what is not right is stored, too"


@pytest.mark.slow
def test_the_table_of_teachers_stands_at_the_end_and_again_without_asking(collected: Collected) -> None:
    _, first, again, plan, _ = collected.outputs
    for output in (first, again):
        lines = {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}
        assert lines["large"] == ["2", "2", "8", "4", lines["large"][4], "0", "800", "320", "0.0072"]
        assert lines["small"][:4] == ["2", "2", "4", "4"]
        assert lines["small"][-3:] == ["400", "160", "-"]
        assert lines["bundled"][0] == "2"
        assert f"{len(collected.rows)} verified programs: lessons.jsonl" in output
    assert "lessons.jsonl" in plan


@pytest.mark.slow
def test_the_file_teaches_the_same_programs_with_the_verdicts_that_they_have(collected: Collected) -> None:
    rows = [json.loads(line) for line in collected.again.read_examples().splitlines()]

    def programs(of: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted((row["teacher"], row["task_id"], row["source"], row["speedup"]) for row in of)

    assert programs(rows) == programs(collected.rows)
