"""Compares a run in which faults were injected with one that nobody disturbed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from benchmarks.same_run import Step, StepRecord, compare_runs, read_steps
from evaluators.records import Verdict
from orchestration.run.directory import RunDirectory
from tests.chaos.supervisor import Broken
from tests.chaos.world import NAME, World

_MOST_SECONDS = 900.0


@dataclass(frozen=True)
class Verified:
    """What the comparison found. `identical`: steps and assessments whose rollouts, losses and metrics are the same to
    the bit, of `steps`."""

    steps: int
    identical: int
    rollouts: int
    verdicts: int
    buffer: int
    differences: tuple[str, ...]


def copy_of_run(world: World) -> RunDirectory:
    """The run on the object store, copied to a local folder."""
    folder = world.folder / "copied" / NAME
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pafs.copy_files(f"bucket/{NAME}", str(folder), source_filesystem=world.files)
    return RunDirectory(str(folder.parent), NAME)


def run_undisturbed(world: World, settings: list[str], log: Path) -> RunDirectory:
    """The same run without any fault, on a Ray of its own. It gets the answers of the teacher and the verdicts of the
    first one, since no two measurements are equal, and measures none again: which program seems the fastest of its task
    depends on which verdict comes first. Raises Broken if it does not end well."""
    disturbed = copy_of_run(world)
    answers = (world.disk / "runs" / NAME / "answers.jsonl").read_bytes()
    root = world.disk / "undisturbed"
    (root / NAME).mkdir(parents=True)
    (root / NAME / "answers.jsonl").write_bytes(answers)
    world.clock.set(0)
    verdicts = [f"evaluator.verdicts_of=[{disturbed.local_path}]", "evaluator.remeasure_best=0"]
    driver = world.driver([*settings, f"root={root}", *verdicts, "tracking.enabled=false"], log)
    try:
        code = driver.wait(_MOST_SECONDS)
    except subprocess.TimeoutExpired as error:
        driver.kill()
        raise Broken(f"the undisturbed run has not ended after {_MOST_SECONDS:.0f} s: {log}") from error
    if code:
        raise Broken(f"the undisturbed run ended with code {code}: {log}")
    return RunDirectory(str(root), NAME)


def verify(disturbed: RunDirectory, undisturbed: RunDirectory) -> Verified:
    """Compares the two. Raises Broken if a count differs, or if a program has two verdicts."""
    for run in (disturbed, undisturbed):
        state = run.read_state()
        if state is None or not state.finished:
            raise Broken(f"{run}: it is not finished")
    verdicts = single_verdicts(disturbed)
    steps = [_read(run) for run in (disturbed, undisturbed)]
    if steps[0].keys() != steps[1].keys():
        odd = sorted(steps[0].keys() ^ steps[1].keys())
        raise Broken(f"{len(odd)} steps are in one run alone, the first is {odd[0]}")
    for key, record in steps[0].items():
        if len(record.rollouts) != len(steps[1][key].rollouts):
            raise Broken(f"{key}: {len(record.rollouts)} samples, {len(steps[1][key].rollouts)} without faults")
    compared = compare_runs(*steps)
    buffers = [_buffer(run) for run in (disturbed, undisturbed)]
    if len(buffers[0]) != len(buffers[1]):
        raise Broken(f"the buffer has {len(buffers[0])} rows, {len(buffers[1])} without faults")
    differences = [f"{one.phase} step {one.step}: {one.differences[0]}" for one in compared if one.differences]
    if not buffers[0].equals(buffers[1]):
        differences.append("the buffers differ")
    return Verified(
        steps=len(compared),
        identical=sum(not one.differences for one in compared),
        rollouts=sum(one.rollouts for one in compared),
        verdicts=verdicts,
        buffer=len(buffers[0]),
        differences=tuple(differences),
    )


def _read(run: RunDirectory) -> dict[Step, StepRecord]:
    """The steps of a run, without what asking teachers cost: the undisturbed run asks nobody."""
    steps = read_steps(run.local_folder)
    for key, record in steps.items():
        kept = {name: value for name, value in record.metrics.items() if not name.startswith("teacher/")}
        steps[key] = replace(record, metrics=kept)
    return steps


def single_verdicts(run: RunDirectory) -> int:
    """How many programs have a verdict. Raises Broken if one has two that differ."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in run.verdicts.read().to_pylist():
        verdict = Verdict.from_row(row)
        key = verdict.candidate, str(verdict.evaluator.get("preset", ""))
        found[key].add(json.dumps([str(verdict.outcome), verdict.message, repr(verdict.speedups)]))
    for (candidate, preset), verdicts in found.items():
        if len(verdicts) > 1:
            raise Broken(f"candidate {candidate} has {len(verdicts)} verdicts at preset {preset!r}: {sorted(verdicts)}")
    return len(found)


def _buffer(run: RunDirectory) -> pa.Table:
    state = run.read_state()
    assert state is not None
    assert state.buffer is not None
    return run.buffers.read(state.buffer)
