"""Removes what killed processes left half-written in a run's folder. None of it counts as anything while it is there.

The caller holds the run's lock, and has written nothing yet.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from orchestration.run.snapshots import LISTING
from orchestration.run.storage import Storage

_log = logging.getLogger(__name__)

_FILE = re.compile(r"\.(?P<name>.+)\.(?P<pid>[0-9]+)\.partial")
_FOLDER = re.compile(r"\.(?P<name>.+)\.(?P<kind>partial|retired)")
_OF_OTHERS = ("store", "policy")
"""Folders with writers of their own, which sweep them themselves."""


def sweep(storage: Storage, committed: str | None) -> list[str]:
    """Removes partial files, and checkpoints that were not finished; returns their relative paths. `committed`: the
    checkpoint that the state points to, which stays whatever it looks like. Raises OSError."""
    local = storage.local_path
    if local is None:
        removed = _sweep_remote(storage, committed)
    else:
        removed = storage.patience("remove half-written files", storage, lambda: _sweep_local(local))
    if removed:
        _log.warning("%s: %d half-written files and folders of a killed process are removed", storage, len(removed))
    return removed


def _sweep_remote(storage: Storage, committed: str | None) -> list[str]:
    """A checkpoint's list is written last. One that is older than the state and has none is of an earlier version."""
    committed_at = storage.written_at("state.json")
    unfinished = [
        path
        for path in storage.folders("checkpoints")
        if path != committed and not storage.is_file(f"{path}/{LISTING}") and storage.modified(path)[0] >= committed_at
    ]
    for path in unfinished:
        storage.delete(path)
    return unfinished


def _sweep_local(root: Path) -> list[str]:
    removed = []
    for place, folders, files in os.walk(root):
        here, inside = Path(place), []
        for name in folders:
            found = _FOLDER.fullmatch(name)
            if found is None:
                inside.append(name)
            elif found["kind"] == "retired" and not (here / found["name"]).exists():
                os.replace(here / name, here / found["name"])  # what was to replace it never came
            else:
                shutil.rmtree(here / name)
                removed.append(here / name)
        folders[:] = [] if here.parent == root and here.name == "checkpoints" else inside
        if here == root:
            folders[:] = [name for name in folders if name not in _OF_OTHERS]
        for name in files:
            found = _FILE.fullmatch(name)
            if found is not None and not _is_at_work(int(found["pid"])):
                with suppress(FileNotFoundError):
                    (here / name).unlink()
                removed.append(here / name)
    return [path.relative_to(root).as_posix() for path in removed]


def _is_at_work(pid: int) -> bool:
    """Whether another process of this machine may still write, as one that makes a report: it needs no lock."""
    return pid != os.getpid() and Path(f"/proc/{pid}").exists()
