"""The folder of a bundle: packed content in numbered parts of bounded size, and a manifest with checksums of all.

It appears whole or not at all. Reading it checks every part and every file, and names the one that is damaged. Knows
nothing of runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from orchestration.run.bundle_packing import ROW, pack, unpack
from orchestration.run.errors import BundleError

FORMAT = 1
"""Rises when a version of Warpsmith writes bundles that earlier versions cannot read."""

MANIFEST = "manifest.json"
UNTOLD = "tracking.json"  # the file of a bundle with what MLflow does not have yet
SET_ASIDE = "set_aside.json"  # that with the evidence on programs that are set aside
MIB = 1 << 20
_HEAD = 6144  # bytes of a manifest beside its index and parts: what the run is, and its base model's checksums
_PART = 192  # bytes of a manifest for each part


@dataclass(frozen=True)
class Piece:
    """Files that are packed together. `raw` and `packed`: bytes before and after. `note`: what the files hold."""

    name: str
    note: str
    raw: int
    packed: int


@dataclass
class BundleWriter:
    """Gathers pieces up to `limit` bytes in all, and writes them in parts of at most `part_limit` bytes."""

    limit: int
    part_limit: int
    pieces: list[Piece] = field(default_factory=list)
    _content: list[bytes] = field(default_factory=list)
    _index: list[dict[str, Any]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of the packed pieces, and no fewer than the manifest has."""
        packed = sum(piece.packed for piece in self.pieces)
        parts = packed // self.part_limit + 2  # the next piece may need another one
        return packed + len(json.dumps(self._index, indent=1)) + parts * _PART + _HEAD

    def add(self, name: str, files: Mapping[str, bytes], note: str = "") -> bool:
        """Packs files, by their paths, and adds them if they still fit. Returns whether they did."""
        joined = b"".join(content + bytes(-len(content) % ROW) for content in files.values())
        packed = pack(joined)
        entry = {
            "name": name,
            "packed_bytes": len(packed),
            "files": [
                {"path": path, "bytes": len(content), "sha256": _sha256(content)} for path, content in files.items()
            ],
        }
        if self.size + len(packed) + len(json.dumps(entry, indent=2)) > self.limit:
            return False
        self._content.append(packed)
        self._index.append(entry)
        self.pieces.append(Piece(name, note, sum(map(len, files.values())), len(packed)))
        return True

    def write(self, folder: Path, about: Mapping[str, Any]) -> int:
        """Writes the folder in place of a bundle that is there; returns the bytes of all its files.

        `about`: plain JSON for the manifest. Raises BundleError if something else is there.
        """
        if folder.exists() and not is_bundle(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise BundleError(f"{folder} is there and is no bundle; give another --output")
        staging = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        try:
            parts: list[dict[str, Any]] = []
            for number, content in enumerate(_cut(b"".join(self._content), self.part_limit)):
                name = f"part-{number:03d}.bin"
                _write(staging / name, content)
                parts.append({"name": name, "bytes": len(content), "sha256": _sha256(content)})
            manifest = {"format": FORMAT, **about, "parts": parts, "pieces": self._index}
            text = json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1)
            _write(staging / MANIFEST, text.encode())
            _replace(staging, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return sum(part["bytes"] for part in parts) + len(text.encode())


@dataclass(frozen=True)
class Bundle:
    """A bundle that was read and found whole. `files`: its content by path. `about`: its manifest."""

    folder: Path
    about: Mapping[str, Any]
    files: Mapping[str, bytes]

    def below(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """The files whose paths begin with a prefix, in their order, by the rest of their paths."""
        return ((path.removeprefix(prefix), data) for path, data in self.files.items() if path.startswith(prefix))


def is_bundle(folder: Path) -> bool:
    """Whether a folder holds a bundle, whole or not."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle. Raises BundleError without one, or for one that is damaged or of another format."""
    path = folder / MANIFEST
    if not is_bundle(folder):
        raise BundleError(f"{folder} is no bundle (no {MANIFEST}); give a folder that `warpsmith bundle` wrote")
    try:
        manifest = json.loads(path.read_bytes())
        checksum = manifest.pop("checksum")
    except (ValueError, KeyError, AttributeError) as error:
        raise BundleError(f"{path} is damaged; copy the bundle again") from error
    if manifest.get("format") != FORMAT:
        raise BundleError(
            f"{path} is of format {manifest.get('format')}, and this version reads {FORMAT}; use version "
            f"{manifest.get('warpsmith')} of Warpsmith"
        )
    if _checksum(manifest) != checksum:
        raise BundleError(f"{path} is damaged; copy the bundle again")
    return manifest


def read_bundle(folder: Path) -> Bundle:
    """Reads and checks a whole bundle. Raises BundleError that names a missing or damaged part."""
    manifest = read_manifest(folder)
    joined = b"".join(_read_part(folder, part) for part in manifest["parts"])
    files: dict[str, bytes] = {}
    at = 0
    for piece in manifest["pieces"]:
        sizes = [file["bytes"] for file in piece["files"]]
        whole = sum(size + -size % ROW for size in sizes)
        try:
            content = unpack(joined[at : at + piece["packed_bytes"]], whole)
        except ValueError as error:
            raise BundleError(f"{folder}: the piece {piece['name']} cannot be unpacked ({error})") from error
        at += piece["packed_bytes"]
        start = 0
        for file, size in zip(piece["files"], sizes, strict=True):
            files[_safe(file["path"], folder)] = content[start : start + size]
            if _sha256(content[start : start + size]) != file["sha256"]:
                raise BundleError(f"{folder}: the file {file['path']} in it is damaged; make the bundle again")
            start += size + -size % ROW
    return Bundle(folder, manifest, files)


def _read_part(folder: Path, part: Mapping[str, Any]) -> bytes:
    path = folder / _safe(part["name"], folder)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path} is missing ({error.strerror}); copy the bundle again") from error
    if len(content) != part["bytes"] or _sha256(content) != part["sha256"]:
        raise BundleError(
            f"{path} is damaged ({len(content)} of {part['bytes']} bytes, or other ones); copy the bundle again"
        )
    return content


def _safe(path: str, folder: Path) -> str:
    """The path, if it stays below the folder that it is relative to."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise BundleError(f"{folder}/{MANIFEST} names a file outside of the run ({path}); do not use this bundle")
    return path


def _cut(content: bytes, size: int) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checksum(manifest: Mapping[str, Any]) -> str:
    return _sha256(json.dumps(manifest, sort_keys=True).encode())


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _replace(staging: Path, folder: Path) -> None:
    """Puts the staged folder in the place of an earlier one. Raises BundleError if that cannot be written."""
    retired = folder.with_name(f".{folder.name}.{os.getpid()}.retired")
    if folder.exists():
        os.replace(folder, retired)
    os.replace(staging, folder)
    shutil.rmtree(retired, ignore_errors=True)
