"""Whether a long run grows: memory, file descriptors, threads, Ray's object store, and temporary folders.

    python -m benchmarks.endurance [--warm-up 50] [--steps 500] [--rows rows.parquet]
    python -m benchmarks.endurance --read rows.parquet [--warm-up 50]

Runs `warpsmith run` with a tiny policy, and looks at all of its processes every few seconds. For each figure it fits a
line over the committed steps of contrastive RL, after a warm-up, and prints growth over 500 steps with a 95 % interval
(t distribution over blocks of looks, since neighbouring looks are alike). Exits with 1 if an interval lies above what
is allowed. The engine's KV cache is small, since its pages count from the moment on in which they are first used.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import stats

from orchestration.run.directory import RunDirectory

SETTINGS = [
    "name=endurance",
    "tasks.include=[level1/softmax,level1/gelu_tanh]",
    "policy.scratch.hidden_size=64",
    "policy.scratch.intermediate_size=128",
    "policy.scratch.heads=2",
    "policy.scratch.kv_heads=1",
    "rollout.max_tokens=96",
    "rollout.kv_cache_gib=0.05",
    "sft.epochs=2",
    "sft.successes=2",
    "sft.entropy_samples=0",
    "self_supervised.max_rounds=1",
    "self_supervised.samples=2",
    "contrastive_rl.tasks_per_step=2",
    "contrastive_rl.group_size=2",
    "checkpoint_every=5",
    "assessment.samples=1",
]
ROLES = {
    "driver": "orchestration.commands.main",
    "engine": "ray::RolloutEngine",
    "engine core": "VLLM::EngineCore",
    "learner": "ray::LearnerRank",
    "evaluator": "ray::EvaluatorActor",
    "builder": "ray::BuilderActor",
}
FIGURES = [f"{role} {unit}" for role in ROLES for unit in ("MiB", "descriptors", "threads")]
FIGURES += ["temporary folders", "all processes MiB", "object store MiB"]
ALLOWED = {"MiB": 20.0, "descriptors": 2.0, "threads": 2.0, "folders": 2.0}
"""Growth over 500 steps that is taken for none, by the unit of a figure."""

_LOOKS_EVERY = 2.0
_BLOCKS = 10


class Look(NamedTuple):
    """One figure at one moment. `step`: committed steps of contrastive RL."""

    step: int
    figure: str
    value: float


class Growth(NamedTuple):
    """Growth of a figure over 500 steps, with a 95 % interval, and its median."""

    figure: str
    median: float
    growth: float
    low: float
    high: float

    @property
    def grows(self) -> bool:
        """Whether it grows by more than is allowed."""
        return self.low > ALLOWED[self.figure.rpartition(" ")[2]]


def processes_of(mark: str) -> Iterator[tuple[Path, str]]:
    """The folders in /proc of the processes whose path ends with a mark, with their titles."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{os.pathsep}{mark}\0".encode() in (folder / "environ").read_bytes():
                yield folder, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def look(mark: str, step: int, temporary: Path) -> list[Look]:
    """What all processes of the run use now. `temporary`: their folder of temporary files."""
    found = [Look(step, "temporary folders", float(len(list(temporary.iterdir()))))]
    total = 0.0
    for folder, title in processes_of(mark):
        with suppress(OSError):
            private = _private_mib(folder)
            total += private
            role = next((name for name, part in ROLES.items() if part in title), "")
            if "/raylet" in title.split(" ")[0]:
                found.append(Look(step, "object store MiB", _shared_mib(folder)))
            if role:
                found.append(Look(step, f"{role} MiB", private))
                found.append(Look(step, f"{role} descriptors", float(len(list((folder / "fd").iterdir())))))
                found.append(Look(step, f"{role} threads", float(len(list((folder / "task").iterdir())))))
    found.append(Look(step, "all processes MiB", total))
    return found


def _shared_mib(folder: Path) -> float:
    """Shared memory that the process has touched: of Ray's raylet, the object store."""
    lines = (folder / "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssShmem")) / 1024


def _private_mib(folder: Path) -> float:
    """Memory that the process shares with no other."""
    lines = (folder / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))) / 1024


def growths(looks: Sequence[Look], warm_up: int) -> list[Growth]:
    """A line for each figure, over blocks of steps after the warm-up."""
    found = []
    for figure in dict.fromkeys(one.figure for one in looks):
        rows = np.array([(one.step, one.value) for one in looks if one.figure == figure and one.step > warm_up])
        if len(rows) < 3 * _BLOCKS:
            continue
        edges = np.linspace(rows[:, 0].min(), rows[:, 0].max() + 1, _BLOCKS + 1)
        blocks = [rows[(rows[:, 0] >= low) & (rows[:, 0] < high)] for low, high in itertools.pairwise(edges)]
        means = np.array([block.mean(axis=0) for block in blocks if len(block)])
        fit = stats.linregress(means[:, 0], means[:, 1])
        half = float(stats.t.ppf(0.975, len(means) - 2)) * fit.stderr
        found.append(
            Growth(
                figure,
                float(np.median(rows[:, 1])),
                *(500 * float(one) for one in (fit.slope, fit.slope - half, fit.slope + half)),
            )
        )
    return found


def watch(steps: int, folder: Path) -> list[Look]:
    """Runs the steps, and looks from time to time. Raises RuntimeError if the run fails."""
    temporary = folder / "tmp"
    temporary.mkdir(mode=0o777)
    temporary.chmod(0o1777)
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}{os.pathsep}{folder}", "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "orchestration.commands.main", "run", "local", *SETTINGS]
    run, looks, log = RunDirectory(str(folder), "endurance"), list[Look](), folder / "log"
    with open(log, "wb") as output:
        driver = subprocess.Popen(
            [*command, f"contrastive_rl.steps={steps}", f"root={folder}"], env=environment, stdout=output, stderr=output
        )
    try:
        while driver.poll() is None:
            time.sleep(_LOOKS_EVERY)
            state = run.read_state()
            if state is not None and state.phase == "contrastive_rl" and 0 < state.step < steps:
                looks += look(str(folder), state.step, temporary)
    finally:
        driver.kill()
    if driver.returncode:
        raise RuntimeError(f"the run ended with code {driver.returncode}: {log.read_text()[-2000:]}")
    return looks


def watch_anew(steps: int) -> list[Look]:
    """`watch` in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        return watch(steps, folder)


def read(path: Path) -> list[Look]:
    """The looks that `--rows` wrote."""
    return [Look(**row) for row in pq.read_table(path).to_pylist()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm-up", type=int, default=50, help="steps before those that count")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rows", type=Path, help="a Parquet file of all looks")
    parser.add_argument("--read", type=Path, help="such a file, of a run that is over")
    options = parser.parse_args()
    looks = read(options.read) if options.read else watch_anew(options.warm_up + options.steps)
    if options.rows:
        pq.write_table(pa.Table.from_pylist([one._asdict() for one in looks]), options.rows)
    found = growths(looks, options.warm_up)
    print(f"{'figure':28} {'median':>9} {'growth in 500 steps':>20} {'95 % interval':>22}")
    for one in found:
        mark = "  grows" if one.grows else ""
        print(f"{one.figure:28} {one.median:9.1f} {one.growth:20.2f} {one.low:10.2f} to {one.high:8.2f}{mark}")
    print(f"{len(looks)} figures read over {max((one.step for one in looks), default=0)} steps")
    if missing := {figure for figure in FIGURES if figure not in {one.figure for one in found}}:
        print(f"too few looks at {', '.join(sorted(missing))}: take more steps")
        return 1
    return int(any(one.grows for one in found))


if __name__ == "__main__":
    sys.exit(main())
