"""Injects faults at random moments into a run of all real parts, lets it end by itself, and compares it with a run that
nobody disturbed.

    python -m tests.chaos --faults 60 --seed 1 [key=value ...]

Prints a row for each fault, then what was verified; exits with 1 if the run hangs, ends without a reason, loses or
changes anything that it had committed, or differs from the undisturbed run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.faults import KINDS, Kind, Scene, draw
from tests.chaos.supervisor import Broken, Supervisor
from tests.chaos.verify import copy_of_run, run_undisturbed, verify
from tests.chaos.world import World

Row = dict[str, Any]
MOST_WAIT = 5.0


def inject_all(
    world: World, faults: list[Kind], rng: Random, settings: list[str], pause: float, rows: list[Row]
) -> None:
    """Starts the run, injects the faults one after the other, and waits until the run has ended by itself. Adds a row
    for each fault. Raises Broken if the run does not keep its promise, or is over before all faults are injected."""
    supervisor = Supervisor(world, settings, world.folder / "driver.log")
    scene, left, since = Scene(world, supervisor, rng), list(faults), 0.0
    try:
        while left:
            supervisor.watch(rng.uniform(0.0, pause))
            if supervisor.is_finished:
                raise Broken(f"the run was over after {len(rows)} of {len(faults)} faults; give it more --steps")
            kind = next_of(left, scene, supervisor.seconds - since)
            if kind is None:
                continue
            since = supervisor.seconds
            left.remove(kind)
            row: Row = {"second": round(supervisor.seconds, 1), "at": supervisor.place, "kind": kind.name}
            supervisor.may_end |= kind.ends
            supervisor.was_set_back |= kind.sets_back
            row["what"] = kind.inject(scene)
            rows.append(row)
            print(f"{row['second']:6.1f} s  {row['at']:26}  {kind.name:28}  {row['what']}", flush=True)
        while not supervisor.is_finished:
            supervisor.watch(0.5)
        supervisor.check_rows()
        print(
            f"{supervisor.seconds:6.1f} s  the run has ended; its command was given {supervisor.starts} times",
            flush=True,
        )
    finally:
        supervisor.end()


def next_of(left: list[Kind], scene: Scene, waited: float) -> Kind | None:
    """The fault that comes now, None if all must wait: one that would meet something now, else the first in order. The
    others come before that one only after `MOST_WAIT` seconds without any."""
    now = [kind for kind in left if kind.may_come(scene)]
    meeting = [kind for kind in now if kind.applies is not None]
    first = now[:1] if waited > MOST_WAIT or now[:1] == left[:1] else []
    return next(iter([*meeting, *first]), None)


def keep(folder: Path, rows: list[Row], output: Path) -> None:
    """Writes the rows and copies the logs."""
    output.mkdir(parents=True, exist_ok=True)
    (output / "faults.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for log in folder.glob("*.log"):
        shutil.copy(log, output)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=60, help="how many are injected")
    parser.add_argument(
        "--seed", type=int, default=None, help="of their order and moments (default: drawn, and printed)"
    )
    parser.add_argument("--steps", type=int, default=9, help="of contrastive RL, in each of two cycles")
    parser.add_argument("--pause", type=float, default=2.0, help="most seconds between two faults")
    parser.add_argument("--kinds", nargs="*", default=[], help="only kinds whose name has one of these texts")
    parser.add_argument("settings", nargs="*", default=[], metavar="key=value", help="settings of both runs")
    parser.add_argument("--output", type=Path, help="a folder for the rows and the logs")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves nothing behind
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    kinds = [kind for kind in KINDS if not options.kinds or any(text in kind.name for text in options.kinds)]
    folder = Path(tempfile.mkdtemp(prefix="warpsmith-chaos-"))
    folder.chmod(0o755)
    began = time.monotonic()
    print(f"seed {seed}, {options.faults} faults of {len(kinds)} kinds", flush=True)
    try:
        with World(folder) as world:
            rows: list[Row] = []
            rng = Random(seed)
            settings = [f"contrastive_rl.steps={options.steps}", *options.settings]
            try:
                inject_all(world, draw(options.faults, kinds, rng), rng, settings, options.pause, rows)
                undisturbed = run_undisturbed(world, settings, folder / "undisturbed.log")
                verified = verify(copy_of_run(world), undisturbed)
            finally:
                if options.output:
                    keep(folder, rows, options.output)
        print(f"{len(rows)} faults of {len({row['kind'] for row in rows})} kinds in {time.monotonic() - began:.0f} s")
        print(
            f"as without faults: {verified.steps} steps and assessments, {verified.rollouts} samples, "
            f"{verified.verdicts} programs with one verdict each, {verified.buffer} of them in the buffer"
        )
        print(f"the same to the bit: {verified.identical} of {verified.steps} steps and assessments")
        for difference in verified.differences:
            print(f"  {difference}")
        return int(bool(verified.differences))
    except Broken as error:
        print(f"FAILED (seed {seed}) after {time.monotonic() - began:.0f} s: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
