"""A run directory from a bundle, for the ordinary resume to go on in. Nothing else resumes from a bundle."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from configs.load import parse_config
from configs.schema import RunConfig
from evaluators.guard.cases import HackCases, Status
from evaluators.host.whole_files import write_whole
from orchestration.run import answers
from orchestration.run.bundle_folder import SET_ASIDE, UNTOLD, Bundle, read_bundle
from orchestration.run.bundle_tables import write_tables
from orchestration.run.directory import EXAMPLES, RunDirectory
from orchestration.run.errors import BundleError
from orchestration.run.set_aside import FOLDER as ASIDE
from orchestration.run.spool import FOLDER as SPOOL
from orchestration.run.state import RunState


def config_of(bundle: Bundle) -> RunConfig:
    """The configuration of the bundled run. Raises ConfigError or BundleError."""
    stored = parse_config(bundle.files["config.yaml"].decode(), f"{bundle.folder}/config.yaml")
    if stored.losses:
        raise BundleError(
            f"{bundle.folder}: the run was started by an earlier version: {stored.losses[0]}; go on with version "
            f"{bundle.about['warpsmith']} of Warpsmith"
        )
    return stored.config


def is_in(bundle: Bundle, run: RunDirectory) -> bool:
    """Whether a run directory holds the bundled run, at the same or a later step. Raises BundleError if it holds
    another run, or the same at an earlier step."""
    if not run.storage.is_file("config.yaml"):
        return False  # nothing, or what an interrupted `restore` left
    remedy = "choose another name=..., or remove the folder"
    if run.identity() != bundle.about["run"]["id"]:
        raise BundleError(f"{run} holds another run than {bundle.folder}; {remedy}")
    present, bundled = run.read_state() or RunState(), _state_of(bundle)
    if _position(present) < _position(bundled):
        raise BundleError(
            f"{run} stands at policy version {present.policy_version}, before {bundle.folder} with "
            f"{bundled.policy_version}; {remedy}"
        )
    return True


def restore(bundle: Bundle, run: RunDirectory, begun: RunConfig) -> None:
    """Writes the bundled run into a run directory. After a kill, the same call does it again.

    `begun`: the bundle's configuration under the name that the run has here. A resume compares with it.
    """
    files = bundle.files
    state = _state_of(bundle)
    if state.checkpoint:
        name = state.checkpoint.removeprefix("checkpoints/")
        local = run.checkpoints.new_folder(name)
        for path, content in bundle.below("checkpoint/"):
            (local / path).parent.mkdir(parents=True, exist_ok=True)
            (local / path).write_bytes(content)
        run.checkpoints.publish(local, name)
    small = ("held_out.json", "marked.json", "run.json", answers.NAME, EXAMPLES)
    for path in (state.buffer or "", state.ahead or "", *small):
        if path in files:
            run.storage.write(path, files[path])
    write_tables(run, files)
    for path, text in _texts_in(bundle, "kernels.json", "kernels"):
        run.storage.write(path, text.encode())
        program = json.loads(text)["candidate"]["source"]
        run.storage.write(f"{path.removesuffix('.json')}.py", program.encode("utf-8", "replace"))
    for path, text in (*_texts_in(bundle, UNTOLD, SPOOL), *_texts_in(bundle, SET_ASIDE, ASIDE)):
        run.storage.write(path, text.encode())
    _fill_store(bundle, run.store_of(begun))
    run.storage.write("state.json", files["state.json"])
    run.write_config(begun)  # last: a folder without it counts as empty


@contextmanager
def unpacked(folder: Path) -> Iterator[RunDirectory]:
    """A run directory of a bundle to read from within this block, whatever this machine has. Raises BundleError."""
    bundle = read_bundle(folder)
    config = config_of(bundle)
    with tempfile.TemporaryDirectory() as root:
        here = replace(config, root=root, evaluator=replace(config.evaluator, store=""))
        run = RunDirectory(root, config.name)
        restore(bundle, run, here)
        yield run


def _texts_in(bundle: Bundle, name: str, folder: str) -> Iterator[tuple[str, str]]:
    """The small files below one folder that a file of the bundle holds. Raises BundleError for any other."""
    for path, text in json.loads(bundle.files.get(name, b"{}")).items():
        place = PurePosixPath(path)
        if ".." in place.parts or PurePosixPath(folder) not in place.parents:
            raise BundleError(f"{bundle.folder}: {name} holds a file outside of {folder} ({path}); do not use it")
        yield path, text


def _fill_store(bundle: Bundle, store: Path) -> None:
    """Adds baselines and hack cases to the store, which may have some already."""
    for name, text in json.loads(bundle.files.get("store/baselines.json", b"{}")).items():
        path = store / "baselines" / Path(name).name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
    if content := bundle.files.get("store/hacks.parquet"):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "hacks.parquet").write_bytes(content)
            cases = HackCases(Path(folder) / "hacks.parquet").all()
        HackCases(store / "hacks.parquet").add([case for case in cases if case.status is not Status.SEED])


def _state_of(bundle: Bundle) -> RunState:
    return RunState(**json.loads(bundle.files["state.json"]))


def _position(state: RunState) -> tuple[int, int]:
    """Sorts the states of one run by how far they are."""
    return state.policy_version, sum(len(state.extra.get(name, ())) for name in ("completed", "assessed"))
