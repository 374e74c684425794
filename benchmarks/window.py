"""One window of a run, unattended: it begins or goes on, stops in time, and leaves a bundle, a page and a table.

    python -m benchmarks.window --out first --minutes 28 h200-sft name=sft
    python -m benchmarks.window --out second --minutes 28 --from first/bundle
    python -m benchmarks.window --out arm --minutes 28 --from second/bundle --branch name=arm seed=1

The words are those of `warpsmith run`. In the folder `--out` stand afterwards: `bundle/`, from which the next window
goes on; `page.tar.gz`, what `warpsmith report --publish` writes; `window.log`, the output of all commands.

The run is bundled every few minutes. So a window that is killed at any moment leaves the bundle of some minutes before,
and the same command again goes on from that, or from the run directory if it is further. At its end a window waits for
the next commit and then interrupts the run, unless that ends by itself. `--assess-at MINUTE` sends SIGUSR1: then the
phase is complete with its step under way, and is assessed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.table import Table

from configs.load import ConfigError, load_config
from evaluators.tasks import TaskError
from orchestration.run.bundle_folder import is_bundle
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import BundleError, RunDirectoryError
from orchestration.setup.continuation import Continuation

_COMMAND = [sys.executable, "-m", "orchestration.commands.main"]
_EXIT_SECONDS = 30.0  # from the interrupt of a run to its end
_TELL_SECONDS = 5.0
_BUNDLE_SECONDS = 240.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Plan:
    """A window. Times in seconds from its start. `assess`: None without SIGUSR1. `patience`: seconds that the end waits
    for a commit. `every`: seconds from bundle to bundle."""

    out: Path
    stop: float
    patience: float
    every: float
    assess: float | None
    max_mib: float


def words_of(out: Path, source: Path | None, words: Sequence[str], *, branch: bool) -> list[str]:
    """The words for `warpsmith run`: from this window's own bundle, else from `source`, else a run of its own."""
    overrides = [word for word in words if "=" in word]
    if is_bundle(out / "bundle"):
        return ["--from-bundle", str(out / "bundle"), *overrides]
    if source is not None:
        return ["--from-bundle", str(source), *(["--branch"] if branch else []), *overrides]
    return list(words)


def prepare(words: Sequence[str]) -> RunDirectory:
    """The run directory, unpacked if the run goes on from a bundle. Raises what `warpsmith run` refuses."""
    overrides = [word for word in words if "=" in word]
    if words[:1] == ["--from-bundle"]:
        return Continuation.read(Path(words[1]), overrides, branch="--branch" in words).unpack()
    if not words:
        raise ConfigError("give a configuration, or --from BUNDLE")
    config = load_config(words[0], overrides)
    return RunDirectory(config.root, config.name)


def follow(run: RunDirectory, process: subprocess.Popen[Any], plan: Plan, log: IO[str]) -> str:
    """Waits for the run's end, or brings it about in time, and bundles it now and then. Returns how it ended."""
    began, bundled, told = time.monotonic(), 0.0, 0.0
    while process.poll() is None:
        now = time.monotonic() - began
        if plan.assess is not None and now >= max(plan.assess, told + _TELL_SECONDS):
            process.send_signal(signal.SIGUSR1)  # again and again: it is lost while the roles start
            told = now
        if now >= plan.stop:
            return _stop(run, process, plan.patience)
        if now >= bundled + plan.every and now + plan.every / 2 < plan.stop:
            bundled = now
            bundle(run, plan, log)
        time.sleep(0.5)
    return f"ended by itself, exit code {process.returncode}" + (", asked to end early" if told else "")


def _stop(run: RunDirectory, process: subprocess.Popen[Any], patience: float) -> str:
    """Interrupts the run after its next commit, or without one if none comes in time. A commit loses no work."""
    before, limit = run.read_state(), time.monotonic() + patience
    while run.read_state() == before and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.2)
    if process.poll() is not None:
        return f"ended by itself, exit code {process.returncode}"
    has_committed = run.read_state() != before
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return "stopped after a commit" if has_committed else "stopped; work since the last commit is done again"


def bundle(run: RunDirectory, plan: Plan, log: IO[str]) -> bool:
    """Bundles the last commit. If that fails, as before the first commit, the bundle before stays."""
    output = ["--output", str(plan.out / "bundle"), "--max-mib", str(plan.max_mib)]
    return _call(["bundle", str(run.local_path), *output], log)


def publish(run: RunDirectory, plan: Plan, log: IO[str]) -> bool:
    """Packs the run's page of results."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / run.name
        if not _call(["report", str(run.local_path), "--publish", str(page)], log):
            return False
        partial = plan.out / ".page.tar.gz"
        with tarfile.open(partial, "w:gz") as archive:
            archive.add(page, run.name)
        partial.replace(plan.out / "page.tar.gz")
    return True


def _call(words: Sequence[str], log: IO[str]) -> bool:
    try:
        done = subprocess.run([*_COMMAND, *words], stdout=log, stderr=log, timeout=_BUNDLE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def table_of(run: RunDirectory, since: float) -> Table:
    """A row for each phase and assessment of which the run logged steps since a time: steps, responses, minutes."""
    table = Table("phase", "steps", "responses", "minutes", "a step, s", box=box.SIMPLE_HEAD, pad_edge=False)
    phases: dict[str, dict[str, dict[int, float]]] = {}
    for row in run.metrics.read().to_pylist():
        if row["time"] >= since and row["name"] in ("step_seconds", "pipeline_seconds", "rollouts"):
            phases.setdefault(row["phase"], {}).setdefault(row["name"], {})[row["step"]] = row["value"]
    for phase, metrics in phases.items():
        seconds = list((metrics.get("step_seconds") or metrics.get("pipeline_seconds") or {}).values())
        responses = sum(metrics.get("rollouts", {}).values())
        total, steps = sum(seconds), len(seconds)
        a_step = f"{total / steps:.1f}" if steps else ""
        table.add_row(phase, str(steps), f"{responses:.0f}", f"{total / 60:.1f}", a_step)
    return table


def _in_run() -> None:
    """In the run's process before it begins. If the window is killed, the run is interrupted: else it would go on
    unseen, and hold its GPU. SIGUSR1 does nothing until the run handles it: else it would be a kill."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def take(plan: Plan, words: Sequence[str], console: Console) -> int:
    """The whole window; returns the exit code. Raises what `prepare` raises."""
    started, began = time.time(), time.monotonic()
    run = prepare(words)
    judged = len(run.verdicts.read(columns=["candidate"]))
    plan.out.mkdir(parents=True, exist_ok=True)
    with open(plan.out / "window.log", "a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*_COMMAND, "run", *words],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            preexec_fn=_in_run,
        )
        how = follow(run, process, plan, log)
        is_bundled, is_published = bundle(run, plan, log), publish(run, plan, log)
    console.print(table_of(run, started))
    state = run.read_state()
    at = f"{state.cycle}-{state.phase} step {state.step}" if state and state.phase else "the start"
    lines = [
        f"{run.name}: {how}; at {at}{', finished' if state and state.finished else ''}",
        f"{len(run.verdicts.read(columns=['candidate'])) - judged} verdicts more; "
        f"{(time.monotonic() - began) / 60:.1f} minutes in all",
        f"bundle: {plan.out / 'bundle'}" if is_bundled else "no bundle was made at the end; one of before may be there",
        f"page: {plan.out / 'page.tar.gz'}" if is_published else "no page was made",
    ]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    failed = process.returncode not in (0, -signal.SIGKILL, 128 + signal.SIGINT)
    return 1 if failed or not is_bundled else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="for `warpsmith run`: a configuration, and key=value ...")
    parser.add_argument("--out", type=Path, required=True, help="folder for bundle, page and log")
    parser.add_argument("--minutes", type=float, default=28.0, help="of the whole window")
    parser.add_argument("--reserve", type=float, default=4.0, help="minutes of it to stop, bundle and publish")
    parser.add_argument("--patience", type=float, default=1.5, help="minutes of the reserve to wait for a commit")
    parser.add_argument("--every", type=float, default=6.0, help="minutes from bundle to bundle")
    parser.add_argument("--assess-at", type=float, help="the minute at which the phase is ended and assessed")
    parser.add_argument("--from", dest="source", type=Path, help="a bundle of the run, or with --branch of another")
    parser.add_argument("--branch", action="store_true", help="begin another run where the bundled one ended a phase")
    parser.add_argument("--max-mib", type=float, default=60.0, help="of the bundle")
    given = parser.parse_args()
    assess = None if given.assess_at is None else 60 * given.assess_at
    stop = 60 * (given.minutes - given.reserve)
    plan = Plan(given.out, stop, 60 * given.patience, 60 * given.every, assess, given.max_mib)
    words = words_of(given.out, given.source, given.words, branch=given.branch)
    try:
        code = take(plan, words, Console(width=120))
    except (ConfigError, TaskError, BundleError, RunDirectoryError) as error:
        parser.error(str(error))
    sys.exit(code)


if __name__ == "__main__":
    main()
