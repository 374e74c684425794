"""What a bundle of a run holds: all that another machine needs to go on exactly from the last commit, in bounded size.

What must travel comes first; then what the report, or a person, would like to have, as long as it fits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from configs.load import dump_config
from configs.schema import RunConfig
from orchestration.run import answers
from orchestration.run.bundle_folder import MIB, SET_ASIDE, UNTOLD, BundleWriter, Piece
from orchestration.run.bundle_tables import (
    OPTIONAL,
    REQUIRED,
    Columns,
    Committed,
    Step,
    in_chunks,
    one_file,
    path_of,
    tables_of,
)
from orchestration.run.directory import EXAMPLES, RunDirectory, state_bytes
from orchestration.run.errors import BundleError, RunDirectoryError
from orchestration.run.set_aside import FOLDER as ASIDE
from orchestration.run.snapshots import EXPORT, LISTING
from orchestration.run.spool import FOLDER as SPOOL
from orchestration.run.state import RunState

_MOST_RAW = 8  # times the bound: no checkpoint packs to an eighth, so a larger one is not even read
_NO_ROOM = "no room"
_TRIES = 5  # a run that is going on may remove a checkpoint while it is read


@dataclass(frozen=True)
class Limits:
    """Bytes of a bundle in all, and of each of its files."""

    total: int
    file: int


@dataclass(frozen=True)
class LeftOut:
    """What a bundle does not hold, and why."""

    what: str
    why: str


@dataclass
class Written:
    """A bundle that was written: its size in bytes, the state it holds, and its contents."""

    state: RunState
    size: int = 0
    pieces: list[Piece] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def write_bundle(
    run: RunDirectory, config: RunConfig, folder: Path, limits: Limits, requirements: Mapping[str, Any]
) -> Written:
    """Writes a bundle of the last commit; the run may go on meanwhile.

    `config`: the run's. `requirements`: plain JSON for the manifest, on what the other machine must have. Raises
    BundleError if what must travel does not fit, and RunDirectoryError if the run directory is not whole.
    """
    state, learner, tables = _read_last_commit(run, limits)
    writer = BundleWriter(limits.total, limits.file)
    _require(writer, "learner", learner, "weights, moments, reference, random states")
    _require(writer, "state", {**_metadata(run, config, state), **tables}, "configuration, state, buffer")
    _require(writer, "store", _store_files(run.store_of(config)), "baselines, hack cases")
    aside = _texts_of(run, ASIDE)
    _require(writer, "set aside", {SET_ASIDE: _as_json(aside)} if aside else {}, "programs that are set aside")
    committed = Committed(state)
    for part in REQUIRED:
        table, steps = tables_of(run)[part.table], _steps_of(run, part, committed)
        content = one_file(table, steps, part.columns)
        _require(writer, f"{part.table}-{part.name}", {path_of(part, 0): content}, part.note)
    written = Written(state, left_out=_export_left_out(run, state))
    untold = _texts_of(run, SPOOL)
    if untold and not writer.add("tracking", {UNTOLD: _as_json(untold)}, "what MLflow does not have yet"):
        written.left_out.append(LeftOut("what MLflow does not have yet", _NO_ROOM))
    has_room = True
    for name, files, what in _wanted_first(run, state):
        has_room = has_room and (not files or writer.add(name, files, what))
        if files and not has_room:
            written.left_out.append(LeftOut(what, _NO_ROOM))
    for part in OPTIONAL:
        steps = _steps_of(run, part, committed)
        added = _add_newest(writer, run, part, steps) if has_room else 0
        if added < len(steps):
            has_room = False
            what = f"{part.note}; the oldest {len(steps) - added} of {len(steps)} steps"
            written.left_out.append(LeftOut(what, _NO_ROOM))
    written.size = writer.write(folder, _about(run, state, limits, requirements, written.left_out))
    written.pieces = writer.pieces
    return written


def _read_last_commit(run: RunDirectory, limits: Limits) -> tuple[RunState, dict[str, bytes], dict[str, bytes]]:
    """The committed state, with the files of its checkpoint and its other snapshots."""
    for _ in range(_TRIES):
        state = run.read_state()
        if state is None:
            break
        try:
            return state, *_read_snapshot(run, state, limits)
        except (FileNotFoundError, RunDirectoryError):
            if run.read_state() == state:
                raise
    raise BundleError(f"{run} has not committed anything, or commits all the time; make the bundle later")


def _read_snapshot(run: RunDirectory, state: RunState, limits: Limits) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of the checkpoint that a state points to, and those of the buffer and of responses sampled ahead.
    Raises FileNotFoundError, RunDirectoryError or BundleError."""
    learner: dict[str, bytes] = {}
    if state.checkpoint:
        base = run.checkpoints.fetch(state.checkpoint)
        left_out = {EXPORT, LISTING}  # a resume makes both again
        paths = {
            path: path.stat().st_size
            for path in sorted(base.rglob("*"))
            if path.is_file() and path.relative_to(base).parts[0] not in left_out
        }
        if sum(paths.values()) > _MOST_RAW * limits.total:
            raise _too_large("learner", sum(paths.values()), limits.total)
        learner = {f"checkpoint/{path.relative_to(base).as_posix()}": path.read_bytes() for path in paths}
    return learner, {path: run.storage.read(path) for path in (state.buffer, state.ahead) if path}


def _metadata(run: RunDirectory, config: RunConfig, state: RunState) -> dict[str, bytes]:
    """The run's own small files. State and configuration are those that were read, whatever has changed since."""
    kept = {name: run.storage.read(name) for name in ("held_out.json", "marked.json") if run.storage.is_file(name)}
    return {
        "config.yaml": dump_config(config).encode(),
        "state.json": state_bytes(state),
        "run.json": json.dumps({"id": run.identity()}).encode(),
        **kept,
    }


def _store_files(store: Path) -> dict[str, bytes]:
    baselines = {path.name: path.read_bytes() for path in sorted((store / "baselines").glob("*.json"))}
    cases = store / "hacks.parquet"
    return {
        **({"store/baselines.json": _as_json(baselines)} if baselines else {}),
        **({"store/hacks.parquet": cases.read_bytes()} if cases.is_file() else {}),
    }


def _wanted_first(run: RunDirectory, state: RunState) -> Iterator[tuple[str, dict[str, bytes], str]]:
    """What is left out last: name, files and what they hold. Answers about a phase that is complete are asked for no
    more."""
    paid = run.answers().without(state.extra.get("completed", ()))
    yield "answers", {answers.NAME: paid} if paid else {}, "teachers' answers"
    kernels = _texts_of(run, "kernels")
    yield "kernels", {"kernels.json": _as_json(kernels)} if kernels else {}, "best programs"
    examples = {EXAMPLES: run.read_examples()} if run.storage.is_file(EXAMPLES) else {}
    yield "examples", examples, "collected examples"


def _texts_of(run: RunDirectory, folder: str) -> dict[str, bytes]:
    """The JSON files of a folder. A run that is going on may remove some: a program that turned out to be a hack."""
    found = {}
    for path in run.storage.files(folder, ".json"):
        with suppress(FileNotFoundError):
            found[path] = run.storage.read(path)
    return found


def _as_json(texts: Mapping[str, bytes]) -> bytes:
    """Many small text files as one, which packs far better."""
    return json.dumps({path: content.decode() for path, content in texts.items()}).encode()


def _steps_of(run: RunDirectory, part: Columns, committed: Committed) -> list[Step]:
    """The steps whose rows belong into a bundle, from old to new."""
    steps = (step for step in tables_of(run)[part.table].steps() if _travels(part, step, committed))
    return sorted(steps, key=committed.age)


def _travels(part: Columns, step: Step, committed: Committed) -> bool:
    """Whether a step's rows belong into a bundle. What was judged of steps under way does: it is not judged again.

    Of these steps one file alone is read: the run may replace it at any time, and then columns of two would not match.
    """
    return (part.table, part.name) in (("verdicts", "keys"), ("candidates", "all")) or committed.has(step)


def _require(writer: BundleWriter, name: str, files: Mapping[str, bytes], note: str) -> None:
    if files and not writer.add(name, files, note):
        unbound = BundleWriter(1 << 62, 1 << 62)
        unbound.add(name, files)
        raise _too_large(name, unbound.pieces[0].packed, writer.limit, writer.size)


def _too_large(name: str, size: int, limit: int, taken: int = 0) -> BundleError:
    beside = f" beside {taken / MIB:.1f} MiB of other content" if taken > MIB // 10 else ""
    remedy = "train adapters (learner.lora.rank), or raise --max-mib" if name == "learner" else "raise --max-mib"
    what = "the trained weights and moments" if name == "learner" else f"{name}, which must travel,"
    return BundleError(f"{what} take {size / MIB:.1f} MiB{beside}, and --max-mib is {limit / MIB:.4g}; {remedy}")


def _export_left_out(run: RunDirectory, state: RunState) -> list[LeftOut]:
    export = run.storage.files(f"{state.checkpoint}/{EXPORT}") if state.checkpoint else []
    return [LeftOut("merged weights of the checkpoint", "a resume makes them again")] if export else []


def _add_newest(writer: BundleWriter, run: RunDirectory, part: Columns, steps: Sequence[Step]) -> int:
    """Adds columns of the newest steps first, until they no longer fit; returns of how many steps it did."""
    added = 0
    for number, (count, content) in enumerate(in_chunks(tables_of(run)[part.table], steps[::-1], part.columns)):
        if not writer.add(f"{part.table}-{part.name}-{number}", {path_of(part, number): content}, part.note):
            break
        added += count
    return added


def _about(
    run: RunDirectory,
    state: RunState,
    limits: Limits,
    requirements: Mapping[str, Any],
    left_out: list[LeftOut],
) -> dict[str, Any]:
    """The manifest's account of the bundle."""
    return {
        "warpsmith": _own_version(),
        "run": {
            "id": run.identity(),
            "name": run.name,
            "phase": state.phase,
            "step": state.step,
            "policy_version": state.policy_version,
            "finished": state.finished,
        },
        "limits": {"bytes": limits.total, "bytes_of_a_file": limits.file},
        "left_out": [item.what for item in left_out],
        **requirements,
    }


def _own_version() -> str:
    try:
        return version("warpsmith")
    except PackageNotFoundError:
        return "unknown"  # a checkout that is not installed
