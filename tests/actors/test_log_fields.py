"""JSON log lines with their fields: of a driver, and of real actors; text stays as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

_DRIVER = """
import logging, sys
from actors.log_fields import JsonLogs, log_fields, put_log_fields
from configs.load import load_config

logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
logs = JsonLogs.of(load_config("local", ["name=first", *sys.argv[1:]]))
if logs:
    logs.begin()
own, library = logging.getLogger("orchestration.session"), logging.getLogger("some.library")
own.info("begins")
put_log_fields(phase="1-sft", step=3)
with log_fields(candidate="abc", step=4):
    own.warning("doubted")
library.info("chatter")
library.warning("careful")
try:
    1 / 0
except ZeroDivisionError:
    own.exception("failed")
"""

_ACTORS = """
import json, sys
import ray
from actors.builder import BuilderActor
from actors.evaluation import BuildRequest
from actors.log_fields import JsonLogs
from configs.schema import EvaluatorConfig, RayConfig
from evaluators.records import Candidate
from evaluators.tasks import find_task
from orchestration.fleet.ray_cluster import connect
import logging

logs = JsonLogs("info", "first") if sys.argv[2] == "json" else None
if logs:
    logs.begin()
connect(RayConfig(), 1, logs)
logging.getLogger("orchestration.driver").warning("after ray.init")
task = find_task("level1/softmax", "cpu")
candidate = Candidate.propose(task.id, "class ModelNew: pass", "policy:0")
builder = BuilderActor.remote(EvaluatorConfig(), sys.argv[1])
request = BuildRequest(task, candidate, "fast", log_fields={"phase": "1-contrastive_rl", "step": 7})
assert ray.get(builder.prepare.remote(request), timeout=300) is None
print(json.dumps([ray._private.worker._global_node.get_logs_dir_path(), candidate.digest]))
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_of_a_driver_are_objects_with_the_fields_of_their_place() -> None:
    begins, doubted, careful, failed = lines(run(_DRIVER, "logging.format=json").stderr)
    assert (begins["message"], begins["levelname"], begins["name"]) == ("begins", "INFO", "orchestration.session")
    assert (begins["run"], begins["role"]) == ("first", "driver")
    assert "phase" not in begins
    assert (doubted["phase"], doubted["step"], doubted["candidate"]) == ("1-sft", 4, "abc")
    assert (careful["message"], careful["step"]) == ("careful", 3), "and libraries' INFO lines are left out"
    assert "candidate" not in careful
    assert "ZeroDivisionError" in failed["exc_text"]


def test_the_level_is_that_of_our_own_lines() -> None:
    found = lines(run(_DRIVER, "logging.format=json", "logging.level=warning").stderr)
    assert [line["message"] for line in found] == ["doubted", "careful", "failed"]


def test_text_is_the_default_and_has_no_fields() -> None:
    assert run(_DRIVER).stderr.splitlines()[:2] == [
        "WARNING orchestration.session: doubted",
        "WARNING some.library: careful",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "text"])
def test_lines_of_an_actor_say_run_role_step_and_candidate(tmp_path: Path, form: str) -> None:
    done = run(_ACTORS, str(tmp_path), form)
    folder, digest = json.loads(done.stdout.splitlines()[-1])
    texts = [file.read_text() for file in Path(folder).glob("worker-*.err")]
    prepared = [line for text in texts for line in text.splitlines() if "prepared: nothing to build" in line]
    if form == "text":
        assert prepared == []
        assert "after ray.init" in done.stderr
        return
    (line,) = map(json.loads, prepared)
    assert (line["run"], line["role"], line["arch"]) == ("first", "builder", "cpu")
    assert (line["phase"], line["step"], line["candidate"]) == ("1-contrastive_rl", 7, digest)
    assert line["task"] == "level1/softmax"
    assert len(line["actor_id"]) > 0, "Ray's own fields"
    assert not [line for line in lines(done.stderr) if line["levelname"] == "INFO"], "none of Ray's"
    (after,) = [line for line in lines(done.stderr) if line["message"] == "after ray.init"]
    assert (after["run"], after["role"]) == ("first", "driver")
