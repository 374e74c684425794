"""What the service costs beside the evaluators' own time, and what a kill of it costs.

    python -m benchmarks.serving [--requests 1000] [--clients 32] [--evaluators 16] [--mean 0.5] [--kill]

Evaluators are simulated (`serving_members.py`): they only wait, for seconds that are drawn from those of measured
verdicts. All else is real: processes, HTTP, the disk, Ray, the pools. The same programs are judged in two ways:

- alone: a pool of these evaluators is given all programs at once, in this process.
- served: so many clients, each with a token, ask a service in another process, each for its next program as soon as it
  has a verdict.

With `--kill` the service is killed (SIGKILL, and all that Ray started with it) when half of the verdicts are there, and
started again on the same folder; the seconds in which it did not answer are printed beside the throughput, which is
then over the others.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tables import print_table
from evaluators.records import Candidate, Verdict
from evaluators.tasks import find_task
from orchestration.client import ServiceError, Verdicts

_ROOT = Path(__file__).resolve().parents[1]
TASK = "level1/softmax"
_START_SECONDS = 300.0


def programs(number: int) -> list[str]:
    """So many programs, all different."""
    return [f"class ModelNew:\n    number = {index}\n" for index in range(number)]


class Process:
    """A service over simulated evaluators, which can be killed and started again."""

    def __init__(self, folder: Path, tokens: Path, evaluators: int, mean: float) -> None:
        self._options = ["--folder", str(folder), "--tokens", str(tokens), "--evaluators", str(evaluators)]
        self._options += ["--mean", str(mean)]
        self.port = 0
        self.url = ""

    def start(self) -> None:
        """Returns once it answers, at the same port as before."""
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        for name in ("RAY_ADDRESS", "RAY_JOB_ID"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "benchmarks.serving_process", *self._options, "--port", str(self.port)]
        self._process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"the service did not start: exit code {self._process.wait(_START_SECONDS)}")
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """Kills it at once, with SIGKILL. Its Ray, which lost its driver, ends by itself."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ends it as an operator does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)


@dataclass(frozen=True)
class Served:
    """What clients got. `verdicts`: by program. `seconds`: until the last one had its last. `away`: of them, those in
    which the service did not answer. `before`: the programs whose verdicts clients had when it was killed."""

    verdicts: dict[str, Verdict]
    seconds: float
    away: float
    before: frozenset[str] = frozenset()


def write_tokens(file: Path, clients: int) -> list[str]:
    """A file of tokens, one for each of so many clients; the tokens."""
    tokens = [secrets.token_hex(16) for _ in range(clients)]
    file.write_text("".join(f"client-{number} {token}\n" for number, token in enumerate(tokens)))
    file.chmod(0o600)
    return tokens


def ask_all(process: Process, tokens: Sequence[str], wanted: Sequence[str], *, kill_at: int = 0) -> Served:
    """Asks for the verdicts on all programs, a client for each token. `kill_at`: verdicts after which the service is
    killed and started again; 0: never. Raises ServiceError if one is missing."""
    found: dict[str, Verdict] = {}
    rest, lock, reached = list(reversed(wanted)), threading.Lock(), threading.Event()

    def ask(token: str) -> None:
        client = Verdicts(process.url, token, patience=_START_SECONDS)
        while True:
            with lock:
                if not rest:
                    return
                program = rest.pop()
            verdict = client.judge(TASK, program)
            with lock:
                found[program] = verdict
                if len(found) >= kill_at:
                    reached.set()

    begun, away, before = time.monotonic(), 0.0, frozenset[str]()
    with ThreadPoolExecutor(len(tokens)) as pool:
        asking = [pool.submit(ask, token) for token in tokens]
        if kill_at:
            reached.wait(_START_SECONDS)
            with lock:
                before = frozenset(found)
            killed = time.monotonic()
            process.kill()
            process.start()
            away = time.monotonic() - killed
        for each in asking:
            each.result()
    if missing := set(wanted) - found.keys():
        raise ServiceError(f"{len(missing)} programs have no verdict")
    return Served(found, time.monotonic() - begun, away, before)


def alone(wanted: Sequence[str], evaluators: int, mean: float, log: Path) -> float:
    """Seconds in which the evaluators judge all programs without a service."""
    import ray

    from actors.evaluation import EvaluationRequest
    from benchmarks.serving_members import SimulatedPools
    from configs.schema import RayConfig
    from orchestration.fleet.ray_cluster import connect

    connect(RayConfig(), 1)
    pool, task = SimulatedPools(evaluators, mean, log).pools.evaluators, find_task(TASK)
    begun = time.monotonic()
    for program in wanted:
        pool.submit(EvaluationRequest(task, Candidate.propose(task.id, program, ""), "fast"), "evaluate")
    while pool.pending:
        pool.poll()
    seconds = time.monotonic() - begun
    ray.shutdown()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--evaluators", type=int, default=16)
    parser.add_argument("--mean", type=float, default=0.5, help="seconds of a verdict")
    parser.add_argument("--kill", action="store_true", help="kill the service half-way, and start it again")
    options = parser.parse_args()
    wanted = programs(options.requests)
    with tempfile.TemporaryDirectory(prefix="warpsmith-serving-") as name:
        folder = Path(name)
        tokens = write_tokens(folder / "tokens", options.clients)
        own = alone(wanted, options.evaluators, options.mean, folder / "alone.log")
        process = Process(folder, folder / "tokens", options.evaluators, options.mean)
        process.start()
        served = ask_all(process, tokens, wanted, kill_at=len(wanted) // 2 if options.kill else 0)
        process.stop()
    through = served.seconds - served.away
    rows = [
        ("alone", f"{own:.1f}", "", f"{len(wanted) / own:.1f}", ""),
        (
            "served",
            f"{served.seconds:.1f}",
            f"{served.away:.1f}",
            f"{len(wanted) / through:.1f}",
            f"{own / through:.1%}",
        ),
    ]
    columns = ["", "seconds", "of them away", "verdicts a second", "of alone"]
    title = f"{len(wanted)} verdicts, {options.clients} clients, {options.evaluators} evaluators of {options.mean} s"
    print_table(f"{title}, load {os.getloadavg()[0]:.1f}", columns, rows)


if __name__ == "__main__":
    main()
