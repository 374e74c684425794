"""Times from `kill -9` of a process of a run to the next unit of work that its successor finishes, on a CPU or a GPU.

    python -m benchmarks.recovery [--config local] [--repeats 10] [--only engine driver] [key=value ...]

A unit is a verdict, a look at a program, a response with the current weights, an optimiser step after the checkpoint
was loaded, or a committed step of the run. Beside it stands the time that a new process of that kind takes to its first
unit on the same machine (`start`): what is beyond that is the time until the death is noticed and the work is given to
another. The parts are those of a run: its pools, with one member each, its learner, its command. To a pool, each actor
seems to have worked for a minute before it is lost: places whose actors are lost again and again pause before the next
one. Exits with 1 if a median is more than 10 s beyond the start.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray

from actors.evaluation import BuildRequest, EvaluationRequest
from actors.generation import GenerationRequest
from actors.learner import LearnerLost
from actors.pool import ActorPool
from actors.pool_restarts import STEADY_SECONDS
from benchmarks.learner_sync import Waiting
from configs.load import load_config
from configs.schema import RunConfig
from evaluators.records import Candidate, Task
from learners.records import Sample
from learners.tokenizing import load_tokenizer
from orchestration.commands.machine import machine_arch
from orchestration.fleet.roles import Roles
from orchestration.run.directory import RunDirectory
from orchestration.setup.policy import prepare_policy
from orchestration.setup.tasks import select_tasks

KINDS = ("evaluator", "builder", "engine", "rank", "driver")
SMALL = [
    "name=recovery",
    "tasks.include=[level1/softmax,level1/gelu_tanh]",
    "rollout.max_tokens=64",
    "evaluator.workers=1",
    "evaluator.builders=1",
    "evaluator.cpu_look=always",  # so that a builder has something to do
    "rollout.engines=1",
    "checkpoint_every=1",
    "sft.epochs=100000",
    "sft.successes=1",
    "sft.entropy_samples=0",
    "tracking.enabled=false",
    "assessment.samples=1",
]
_MOST_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of one kind. `starts`: from the order to start one to its first unit; `recoveries`: from its kill to the
    next unit."""

    kind: str
    starts: list[float]
    recoveries: list[float]

    @property
    def beyond(self) -> float:
        """The median recovery beyond the median start."""
        return statistics.median(self.recoveries) - statistics.median(self.starts)


class Fleet:
    """The actors of a run, and units of work for them."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.config = config
        tasks = select_tasks(config.tasks)
        policy = prepare_policy(config, tasks, folder / "policy")
        self.roles = Roles(config, policy, RunDirectory(str(folder), config.name))
        self.roles.start()
        self.roles.push_weights(0, Waiting(self.roles.engines))
        self._task: Task = tasks[0]
        self._tokens = tuple(load_tokenizer(policy)("import torch", add_special_tokens=False)["input_ids"])
        (folder / "checkpoint").mkdir()
        self._place = str(folder / "checkpoint")
        self._files = self.roles.learner.save(self._place)
        self._numbers = iter(range(10**6))

    def pool_of(self, kind: str) -> ActorPool:
        pools = {"evaluator": self.roles.evaluators, "builder": self.roles.builders, "engine": self.roles.engines}
        return pools[kind]

    def submit(self, kind: str) -> None:
        """Gives a pool a unit that it has not seen."""
        number = next(self._numbers)
        source = f"{self._task.source.replace('class Model(', 'class ModelNew(')}\nNUMBER = {number}\n"
        candidate = Candidate.propose(self._task.id, source, "benchmark")
        preset = self.config.evaluator.preset
        if kind == "evaluator":
            self.roles.evaluators.submit(EvaluationRequest(self._task, candidate, preset), "evaluate")
        elif kind == "builder":
            self.roles.builders.submit(BuildRequest(self._task, candidate, preset), "prepare")
        else:
            request = GenerationRequest(str(number), self._tokens, 1, 16, 1.0, ignore_eos=True)
            self.roles.engines.submit(request, "generate")

    def unit(self, kind: str) -> None:
        """Waits for one unit of a pool. Raises what its actor raised."""
        self.submit(kind)
        deadline = time.monotonic() + _MOST_SECONDS
        while not (results := self.pool_of(kind).poll(0.05)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{kind}: no unit of work within {_MOST_SECONDS:.0f} s")
        ((_, result),) = results
        if error := getattr(result, "error", None):
            raise error

    def train(self) -> None:
        """An optimiser step."""
        sample = Sample((*self._tokens,), (*self._tokens,))
        self.roles.learner.train_cross_entropy([sample] * 4, 1e-5)

    def reload(self) -> None:
        """Puts a new learner to the checkpoint."""
        self.roles.learner.load(self._place, self._files)


def of_pool(fleet: Fleet, kind: str, repeats: int) -> Times:
    """Kills the only actor of a pool, while it works."""
    pool = fleet.pool_of(kind)
    fleet.unit(kind)
    starts, recoveries = [], []
    for _ in range(repeats):
        ((number, _),) = pool.members.items()
        _make_steady(pool)
        began = time.monotonic()
        pool.members.replace(number, "the benchmark ends it")  # noticed at once, so this is the start alone
        fleet.unit(kind)
        starts.append(time.monotonic() - began)
        (actor,) = pool.members.healthy()
        pid = ray.get(actor.apply.remote(_own_pid))
        fleet.submit(kind)
        while pool.poll(0.0):  # it was done before it could be killed
            fleet.submit(kind)
        _make_steady(pool)
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        _next_result(pool)
        recoveries.append(time.monotonic() - began)
    return Times(kind, starts, recoveries)


def _make_steady(pool: ActorPool) -> None:
    """Lets the actors of a pool seem to have worked for a minute."""
    for member in pool.members:
        member.ready_since = time.monotonic() - STEADY_SECONDS


def _own_pid(actor: Any) -> int:
    return os.getpid()


def _next_result(pool: ActorPool) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while not pool.poll(0.05):
        if time.monotonic() > deadline:
            raise TimeoutError(f"pool {pool.name}: no unit of work within {_MOST_SECONDS:.0f} s")


def of_rank(fleet: Fleet, repeats: int) -> Times:
    """Kills a rank of the learner. Its group is made anew and goes on from the checkpoint, as the driver does it."""
    fleet.train()
    starts, recoveries = [], []
    for _ in range(repeats):
        began = time.monotonic()
        fleet.roles.restart_learner()
        fleet.reload()
        fleet.train()
        starts.append(time.monotonic() - began)
        pid = ray.get(fleet.roles.learner._ranks[0].__ray_call__.remote(_own_pid))
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        with suppress(LearnerLost):
            fleet.train()
            raise RuntimeError("the learner answers after its rank was killed")
        fleet.roles.restart_learner()
        fleet.reload()
        fleet.train()
        recoveries.append(time.monotonic() - began)
    return Times("rank", starts, recoveries)


def of_driver(arguments: list[str], folder: Path, repeats: int) -> Times:
    """Kills the driver of a whole run after a commit, and gives its command again."""
    log = folder / "driver.log"
    run = RunDirectory(str(folder), "recovery")

    def commits() -> Iterator[int]:
        seen = -1
        while True:
            state = run.read_state()
            if state is not None and state.policy_version > seen:
                seen = state.policy_version
                yield seen
            time.sleep(0.02)

    def start() -> subprocess.Popen[bytes]:
        with open(log, "ab") as output:
            command = [sys.executable, "-m", "orchestration.commands.main", "run", *arguments, f"root={folder}"]
            return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    starts, recoveries, driver = [], [], start()
    try:
        seen = commits()
        while next(seen) < 3:
            pass
        for _ in range(repeats):
            for times, number in ((starts, signal.SIGTERM), (recoveries, signal.SIGKILL)):
                os.kill(driver.pid, number)
                began = time.monotonic()
                driver.wait(_MOST_SECONDS)
                if number == signal.SIGTERM:
                    began = time.monotonic()  # it has ended by itself: what follows is a start alone
                    before = run.read_state()
                    assert before is not None
                    seen = commits()
                    while next(seen) < before.policy_version:
                        pass
                driver = start()
                next(seen)
                times.append(time.monotonic() - began)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
    return Times("driver", starts, recoveries)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="local")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--output", type=Path, help="a Parquet file of all times")
    parser.add_argument("settings", nargs="*")
    options = parser.parse_args()
    arguments = [options.config, *SMALL, *options.settings]
    config = load_config(arguments[0], arguments[1:])
    if config.evaluator.arch == "auto":
        config.evaluator.arch = machine_arch()
    found: list[Times] = []

    def told(times: Times) -> None:
        """Prints a row at once: the rest takes minutes, and may be interrupted."""
        if not found:
            print(
                f"{'killed':10} {'start':>8} {'to the next unit':>17} {'most':>7} {'beyond the start':>17} {'times':>6}"
            )
        found.append(times)
        print(
            f"{times.kind:10} {statistics.median(times.starts):7.1f}s {statistics.median(times.recoveries):16.1f}s "
            f"{max(times.recoveries):6.1f}s {times.beyond:16.1f}s {len(times.recoveries):6}",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        if set(options.only) - {"driver"}:
            fleet = Fleet(config, folder)
            for kind in options.only:
                if kind in ("evaluator", "builder", "engine"):
                    told(of_pool(fleet, kind, options.repeats))
                elif kind == "rank":
                    told(of_rank(fleet, options.repeats))
            fleet.roles.stop()
        if "driver" in options.only:
            told(of_driver(arguments, folder, options.repeats))
    if options.output:
        rows = [dataclasses.asdict(one) for one in found]
        pq.write_table(pa.Table.from_pylist(rows), options.output)
    return int(any(one.beyond > 10.0 for one in found))


if __name__ == "__main__":
    sys.exit(main())
