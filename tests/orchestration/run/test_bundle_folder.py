"""A bundle's folder stays within its bounds, appears whole, and says in one line what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from orchestration.run.bundle_folder import MANIFEST, BundleWriter, read_bundle
from orchestration.run.errors import BundleError

NOISE = np.random.default_rng(0).bytes(200_000)
FILES = {"state.json": b"{}", "checkpoint/a/weights.pt": NOISE, "empty": b""}
ABOUT = {"warpsmith": "0.1.0"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle of some files, in parts of 64 KiB."""
    writer = BundleWriter(1 << 20, 1 << 16)
    assert writer.add("all", FILES)
    writer.write(tmp_path / "bundle", ABOUT)
    return tmp_path / "bundle"


def test_files_come_back_as_they_were(folder: Path) -> None:
    bundle = read_bundle(folder)
    assert bundle.files == FILES
    assert bundle.about["warpsmith"] == "0.1.0"
    assert dict(bundle.below("checkpoint/")) == {"a/weights.pt": NOISE}


def test_no_file_is_larger_than_its_bound_and_nothing_else_is_left(folder: Path, tmp_path: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert sorted(sizes) == [MANIFEST, *(f"part-00{number}.bin" for number in range(4))]
    assert max(sizes.values()) == 1 << 16
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.parametrize("limit", [30_000, 100_000, 300_000])
def test_all_files_together_stay_within_the_bound(tmp_path: Path, limit: int) -> None:
    writer = BundleWriter(limit, 1 << 14)
    added = [writer.add(f"piece {number}", {f"{number}": NOISE[: 10_000 + number]}) for number in range(60)]
    assert True in added
    assert False in added
    written = writer.write(tmp_path / "bundle", ABOUT)
    size = sum(path.stat().st_size for path in (tmp_path / "bundle").iterdir())
    assert size == written <= limit


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [Path.unlink, lengthen, shorten, flip])
@pytest.mark.parametrize("name", [MANIFEST, "part-000.bin", "part-003.bin"])
def test_a_missing_or_damaged_file_is_named_in_one_line(
    folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(folder / name)
    with pytest.raises(BundleError, match=name) as caught:
        read_bundle(folder)
    assert "\n" not in str(caught.value)


def changed(folder: Path, old: str, new: str) -> None:
    """Changes a bundle's manifest together with its checksum, as somebody does who means it."""
    from orchestration.run.bundle_folder import _checksum

    manifest = json.loads((folder / MANIFEST).read_text().replace(old, new))
    del manifest["checksum"]
    (folder / MANIFEST).write_text(json.dumps({**manifest, "checksum": _checksum(manifest)}))


def test_another_format_is_refused_with_the_version_that_reads_it(folder: Path) -> None:
    changed(folder, '"format": 1', '"format": 2')
    with pytest.raises(BundleError, match=r"of format 2, .* use version 0\.1\.0"):
        read_bundle(folder)


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "checkpoint/../../outside"])
def test_a_path_outside_of_the_run_is_refused(folder: Path, path: str) -> None:
    changed(folder, "state.json", path)
    with pytest.raises(BundleError, match="outside of the run"):
        read_bundle(folder)


def test_a_new_bundle_takes_the_place_of_an_old_one_and_of_nothing_else(folder: Path, tmp_path: Path) -> None:
    writer = BundleWriter(1 << 20, 1 << 20)
    writer.add("small", {"state.json": b"[]"})
    writer.write(folder, ABOUT)
    assert read_bundle(folder).files == {"state.json": b"[]"}
    assert len(list(folder.iterdir())) == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(BundleError, match="is no bundle"):
        writer.write(tmp_path / "mine", ABOUT)
    assert (tmp_path / "mine" / "notes").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "mine"]
