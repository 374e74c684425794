"""`warpsmith serve` with the real evaluator on the CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluators.records import Outcome
from orchestration.client import Rewards, ServiceError, Verdicts
from tests.folders import open_folder
from tests.orchestration.serving.served import call

REPOSITORY = Path(__file__).parents[3]
VARIANTS = REPOSITORY / "evaluators/tasks/bundled/level1/softmax/variants"
TOKEN = "anna-has-this-token"
# Leaks what a candidate can see of the service's secrets through its verdict's message.
SPY = """
import os
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise ValueError("seen:" + ",".join(sorted(name for name in os.environ if "TOKEN" in name)) + ":end")
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of the service, which runners may enter: they are other users."""
    with open_folder() as made:
        yield made


def serve(folder: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "orchestration.commands.main", "serve", "--folder", str(folder / "served")]
    known = {**os.environ, "PYTHONPATH": str(REPOSITORY), "WARPSMITH_TOKENS": f"anna {TOKEN}", **environment}
    known.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        [*command, *options], cwd=folder, env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def started(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = serve(folder, "--arch", "cpu", "--port", "0", "evaluator.remeasure_best=0")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "verdicts of 1 evaluator(s) on cpu at http://127.0.0.1:" in line, process.communicate()
    yield process, line.split()[-1]
    process.kill()
    process.wait()


@pytest.mark.slow
def test_programs_are_judged_as_by_warpsmith_evaluate_and_see_no_token(
    started: tuple[subprocess.Popen[str], str], folder: Path
) -> None:
    process, url = started
    client = Verdicts(url, TOKEN)
    right, wrong = ((VARIANTS / f"{name}.py").read_text() for name in ("reciprocal", "wrong_axis"))
    verdict = client.judge("softmax", right)
    assert (verdict.outcome, verdict.task) == (Outcome.OK, "level1/softmax"), verdict.message
    assert verdict.speedup is not None
    assert verdict.speedups["eager"].low <= verdict.speedup
    assert client.judge("softmax", wrong).outcome is Outcome.WRONG
    spied = client.judge("softmax", SPY)
    assert spied.outcome is Outcome.RUNTIME_ERROR
    assert "seen::end" in spied.message
    texts = [f"```python\n{right}```", "nothing"]
    rewards = Rewards(url, TOKEN).trl(prompts=["p"] * 2, completions=texts, task=["softmax"] * 2)
    assert rewards == [verdict.speedup, 0.0], "the verdict that is known"
    assert client.get("/v1/health")["status"] == "ok"
    assert client.get("/v1/queue")["verdicts"] == {"ok": 1, "wrong": 1, "runtime_error": 1}
    with pytest.raises(ServiceError, match="no client has this token"):
        Verdicts(url, "another-token-of-nobody").get("/v1/queue")
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert TOKEN not in output + errors
    assert (folder / "served" / "ledger").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_a_second_service_in_the_folder_and_a_taken_port_are_refused_in_one_line(
    started: tuple[subprocess.Popen[str], str], folder: Path
) -> None:
    _, url = started
    second = serve(folder, "--arch", "cpu", "--port", "0")
    _, errors = second.communicate(timeout=120)
    assert (second.returncode, len(errors.strip().splitlines())) == (2, 1), errors
    assert "is running in it; stop that one" in errors
    port = url.rpartition(":")[2]
    third = serve(folder, "--arch", "cpu", "--port", port, "--folder", str(folder / "other"))
    _, errors = third.communicate(timeout=120)
    assert third.returncode == 2, errors
    assert f"error: --host 127.0.0.1 --port {port}: cannot listen there" in errors.splitlines()[-1]
    assert call(f"{url}/v1/health")[0] == 200
