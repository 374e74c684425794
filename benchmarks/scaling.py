"""What the driver and its pools cost beside up to 1,000 evaluators and 64 engines, which are simulated.

    python -m benchmarks.scaling [--members 1 8 64 256 1000] [--seconds 10] [--out FILE.parquet]
    python -m benchmarks.scaling --members 8 64 --seconds 3 --only steady withdraw

The pool and the driver's calls are the real ones, through Ray. A simulated evaluator (`scaling_members.py`) only
waits, so that one machine holds 1,000. How long it waits is drawn from the seconds of measured verdicts, scaled to a
mean of `--service` seconds. The sections:

- `steady`: more items wait than members can take. Busy: the share of the time in which a member works on an item.
- `arrivals`: items come at random times, at 80 % of what the members can do, so that the wait (from submission until a
  member begins) says something.
- `engines`: as `steady`, but each item comes from one of 64 engines before, which work on 32 at once.
- `ceiling`: as `steady`, but evaluators answer at once, so that the driver is what takes time.
- `withdraw`: 500 items among 18,000 that wait are taken back, by key and by what they are; and one poll beside them.
- `reading`: what the driver does itself with a response: it finds the program in it, and its digest. The responses are
  those of a published run.

The driver's share is the processor time of its process, Ray's threads in it included, in cores. What else runs on the
machine takes part in every figure, so its load average is printed below.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from actors.pool import ActorPool, wait_any
from benchmarks.scaling_members import Done, Hosts, Item, Service
from benchmarks.tables import print_table
from evaluators.records import Candidate
from prompts.parse import parse_response

MEMBERS = (1, 8, 64, 256, 1000)
SECTIONS = ("steady", "arrivals", "engines", "ceiling", "withdraw", "reading")
RESPONSES = Path(__file__).parents[1] / "docs/results/hour/samples.parquet"
QUEUED, WITHDRAWN = 18_000, 500
ENGINES, AT_ONCE = 64, 32
_HOSTS = 4
_WARM_UP = 3.0  # mean times of service
_TEXT = "x" * 2048
_LOAD = 0.8


@dataclass(frozen=True)
class Row:
    """Figures of a section: seconds that it was looked at for, items that ended in them, the share of the time in which
    a member worked, the driver's cores, the 95th percentile of the seconds that items waited, and the driver's memory
    in MiB."""

    section: str
    members: int
    seconds: float
    items: int
    busy: float
    driver: float
    waited: float
    memory: float


class Trial:
    """A pool of simulated evaluators, and what is measured of it."""

    def __init__(self, members: int, mean: float) -> None:
        """`mean`: seconds that an item takes; 0: none."""
        self.members, self._service = members, Service(mean)
        self._hosts = Hosts(min(members, _HOSTS)) if mean else Hosts(min(members, 2), at_once=0)
        self.pool = ActorPool(
            "evaluator",
            self._hosts.member,
            members,
            ahead=1,
            timeout=600.0,
            start_timeout=120.0,
            key=lambda item: item.submitted,
        )
        self.pool.wait_ready()
        self.waited: list[float] = []

    def item(self) -> Item:
        """One more item, which is submitted now."""
        return Item(self._service.draw(), time.monotonic(), _TEXT)

    def fill(self) -> None:
        """Queues so many items that members are given some ahead."""
        while self.pool.queued < 8 * self.members:
            self.pool.submit(self.item(), "work")

    def measure(self, section: str, warm_up: float, seconds: float, step: Callable[[], int]) -> Row:
        """Repeats a step of the driver, which returns how many items ended in it, for some seconds after others."""
        _repeat(warm_up, step)
        self.waited = []
        began, busy, used = time.monotonic(), self._hosts.busy_seconds(), time.process_time()
        items = _repeat(seconds, step)
        used = time.process_time() - used
        busy, passed = self._hosts.busy_seconds() - busy, time.monotonic() - began
        waited = float(np.quantile(self.waited, 0.95)) if self.waited else float("nan")
        return Row(
            section, self.members, passed, items, busy / (passed * self.members), used / passed, waited, _memory()
        )

    def receive(self, timeout: float) -> int:
        """Takes what was done, and counts it."""
        done = self.pool.poll(timeout)
        for _, result in done:
            if not isinstance(result, Done):
                raise RuntimeError(f"a simulated evaluator failed: {result}")
            self.waited.append(result.waited)
        return len(done)

    def stop(self) -> None:
        """Ends the members."""
        self._hosts.stop()


def steady(members: int, mean: float, seconds: float, section: str = "steady") -> Row:
    """Members that always have a next item."""
    with _trial(members, mean) as trial:

        def step() -> int:
            trial.fill()
            return trial.receive(0.1)

        return trial.measure(section, _WARM_UP * mean if mean else 1.0, seconds, step)


def arrivals(members: int, mean: float, seconds: float) -> Row:
    """Items that come at random times."""
    with _trial(members, mean) as trial:
        random, due = np.random.default_rng(1), time.monotonic()

        def step() -> int:
            nonlocal due
            while due <= time.monotonic():
                trial.pool.submit(trial.item(), "work")
                due += float(random.exponential(mean / (_LOAD * members)))
            return trial.receive(min(max(due - time.monotonic(), 0.0), 0.1))

        return trial.measure("arrivals", _WARM_UP * mean, seconds, step)


def engines(members: int, mean: float, seconds: float) -> Row:
    """Items that come from engines, in pace with the evaluators."""
    with _trial(members, mean) as trial:
        hosts, service = Hosts(_HOSTS, AT_ONCE), Service(mean, seed=2)
        pool = ActorPool("rollout", hosts.member, ENGINES, max_in_flight=AT_ONCE, timeout=600.0, start_timeout=120.0)
        pool.wait_ready()

        def step() -> int:
            while trial.pool.pending + pool.pending < 8 * members:
                pool.submit(Item(service.draw(), time.monotonic(), _TEXT), "work")
            responses = pool.poll(0.0)
            for _ in responses:
                trial.pool.submit(trial.item(), "work")
            done = trial.receive(0.0)
            if not responses and not done:
                wait_any((pool, trial.pool), 0.02)
            return done

        row = trial.measure("engines", 2 * _WARM_UP * mean, seconds, step)
        hosts.stop()
    return row


def withdraw(members: int) -> list[tuple[str, float, float]]:
    """(what, seconds, seconds of this thread's processor time) of calls beside many items that wait."""
    with _trial(members, 3600.0) as trial:
        times = []
        for number in range(QUEUED):
            trial.pool.submit(Item(3600.0, float(number), _TEXT), "work")
        for name, call, expected in (
            ("poll", lambda: trial.pool.poll(0.0), 0),
            ("withdraw_keys of 500", lambda: trial.pool.withdraw_keys(range(9000, 9000 + WITHDRAWN)), WITHDRAWN),
            ("withdraw of 500", lambda: trial.pool.withdraw(lambda item: 5000 <= item.submitted < 5500), WITHDRAWN),
        ):
            began, worked = time.perf_counter(), time.thread_time()
            taken = call()
            times.append((name, time.perf_counter() - began, time.thread_time() - worked))
            if len(taken) != expected:
                raise RuntimeError(f"{name}: {len(taken)} items came back, not {expected}")
    return times


def reading(rows: Path = RESPONSES) -> tuple[int, float, float]:
    """Characters of a response, and seconds of processor time for its program and for the program's digest, on
    average."""
    table = pq.read_table(rows, columns=["task_id", "response", "finish_reason"]).to_pylist()
    given = [row for row in table if row["response"]]
    began = time.process_time()
    codes = [parse_response(row["response"], row["finish_reason"]).code for row in given]
    parsed = time.process_time()
    for row, code in zip(given, codes, strict=True):
        if code is not None:
            Candidate.propose(row["task_id"], code, "")
    proposed = time.process_time()
    characters = sum(len(row["response"]) for row in given) // len(given)
    return characters, (parsed - began) / len(given), (proposed - parsed) / len(given)


@contextmanager
def _trial(members: int, mean: float) -> Iterator[Trial]:
    trial = Trial(members, mean)
    try:
        yield trial
    finally:
        trial.stop()


def _repeat(seconds: float, step: Callable[[], int]) -> int:
    """The sum of what a step returns in so many seconds."""
    end, total = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        total += step()
    return total


def _memory() -> float:
    """MiB that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def print_rows(rows: list[Row], mean: float) -> None:
    """Prints a table for each section."""
    titles = {
        "steady": f"{mean:g} s an item on average, more items than members can take",
        "arrivals": f"{mean:g} s an item, arriving at {_LOAD:.0%} of what members can do",
        "engines": f"{mean:g} s an item, each from one of {ENGINES} engines",
        "ceiling": "evaluators that answer at once: what the driver can hand out",
    }
    columns = ("evaluators", "busy", "items/s", "driver, cores", "ms of driver/item", "waited, p95", "driver, MiB")
    for section, title in titles.items():
        own = [row for row in rows if row.section == section]
        cells = [
            (
                row.members,
                f"{row.busy:.1%}" if row.busy else "-",
                f"{row.items / row.seconds:,.1f}",
                f"{row.driver:.3f}",
                f"{1e3 * row.driver * row.seconds / row.items:.2f}" if row.items else "-",
                f"{row.waited:.2f} s" if section == "arrivals" else "-",
                f"{row.memory:.0f}",
            )
            for row in own
        ]
        if cells:
            print_table(title, columns, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=list(MEMBERS))
    parser.add_argument("--service", type=float, default=1.0, help="mean seconds of an item")
    parser.add_argument("--seconds", type=float, default=10.0, help="that each figure is measured for")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--out", type=Path, help="a Parquet file for the rows")
    options = parser.parse_args()
    mean, seconds = options.service, options.seconds
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}},
    )  # fmt: skip
    rows = []
    most = max(options.members)
    for section, measure in (("steady", steady), ("arrivals", arrivals)):
        rows += [measure(members, mean, seconds) for members in options.members if section in options.only]
    if "engines" in options.only:
        rows.append(engines(most, mean, seconds))
    if "ceiling" in options.only:
        rows.append(steady(most, 0.0, seconds, "ceiling"))
    print_rows(rows, mean)
    if "withdraw" in options.only:
        times = [(name, f"{1e3 * took:.2f}") for name, took, _ in withdraw(most)]
        print_table(f"beside {QUEUED:,} items that wait", ("call", "ms"), times)
    if "reading" in options.only:
        characters, parsed, proposed = reading()
        work = [("its program", f"{1e3 * parsed:.2f}"), ("the digest of that", f"{1e3 * proposed:.2f}")]
        print_table(f"the driver reads a response of {characters:,} characters", ("what", "ms"), work)
    print("load average:", *(f"{load:.2f}" for load in os.getloadavg()))
    ray.shutdown()
    if options.out:
        pq.write_table(pa.Table.from_pylist([asdict(row) for row in rows]), options.out)


if __name__ == "__main__":
    main()
