"""Policies on file systems that machines share by URI: each machine copies one to its own disk before it loads it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.fs as pafs
from filelock import FileLock, Timeout

from configs.addresses import without_login
from configs.cache_folder import cache_folder
from learners.patience import Patience
from learners.room import telling_full_disk
from learners.tokenizing import PolicyError

LAST = "config.json"
"""The file that is written last: a folder that has it is complete."""
_WEIGHTS = (".safetensors", ".bin")
_COPY_SECONDS = 3600.0  # for which one process waits for another that copies the same policy


def fetch_policy(model: str, *, weights: bool = True, patience: Patience | None = None) -> str:
    """The folder of a policy on this machine.

    `model`: the URI of a folder on a file system that pyarrow knows (`s3://bucket/model`), whose files are copied once
    to `cache_folder()/policies`, however many processes ask for them. A path or a Hugging Face id is returned as it is.
    Without `weights` the small files alone are copied: configuration and tokenizer. `patience`: how long to try again
    what fails; by default not at all. Raises PolicyError if there is no policy, and OSError.
    """
    if "://" not in model:
        return model
    label, patience = without_login(model).partition("?")[0], patience or Patience()
    try:
        system, base = patience("find the file system", label, lambda: pafs.FileSystem.from_uri(model))
    except pa.ArrowInvalid as error:
        raise PolicyError(f"policy.model: {label} is no place that pyarrow knows ({error})") from error
    selector = pafs.FileSelector(base, allow_not_found=True, recursive=True)
    listed = patience("list", label, lambda: system.get_file_info(selector))
    files = {str(PurePosixPath(one.path).relative_to(base)): one for one in listed if one.is_file}
    if LAST not in files or not any(name.endswith(_WEIGHTS) for name in files):
        raise PolicyError(f"policy.model: {label} holds no {LAST} with weights (*.safetensors); give a complete folder")
    wanted = {name: one for name, one in files.items() if weights or not name.endswith(_WEIGHTS)}
    known = [label, sorted((name, one.size, one.mtime_ns) for name, one in wanted.items())]
    folder = cache_folder() / "policies" / hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{folder}.lock", timeout=_COPY_SECONDS), telling_full_disk(folder.parent):
            if not folder.is_dir():
                patience("copy", label, lambda: _copy(system, base, wanted, folder))
    except Timeout as error:
        raise PolicyError(
            f"policy.model: {label} has not been copied to {folder} within {_COPY_SECONDS:.0f} s"
        ) from error
    return str(folder)


def share_policy(folder: Path, uri: str, patience: Patience | None = None) -> None:
    """Copies a policy's folder to the place that a URI of a pyarrow file system names. Raises OSError."""
    patience = patience or Patience()
    label = without_login(uri).partition("?")[0]
    system, base = patience("find the file system", label, lambda: pafs.FileSystem.from_uri(uri))
    names = sorted((str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()), key=_last)

    def attempt() -> None:
        for name in names:
            system.create_dir(str(PurePosixPath(base, name).parent), recursive=True)
            pafs.copy_files(str(folder / name), f"{base}/{name}", pafs.LocalFileSystem(), system)

    patience("write", label, attempt)


def _last(name: str) -> tuple[bool, str]:
    return name == LAST, name


def _copy(system: pafs.FileSystem, base: str, names: dict[str, pafs.FileInfo], folder: Path) -> None:
    """Copies files to a folder, which appears when all of them are there."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name in names:
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        pafs.copy_files(f"{base}/{name}", str(partial / name), system, pafs.LocalFileSystem())
    partial.replace(folder)
