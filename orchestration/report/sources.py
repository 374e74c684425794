"""Opens whatever holds a run for a report: a run directory, a bundle of a run, or the folder of a published run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestration.report.published import is_published, restore
from orchestration.run.bundle_folder import is_bundle
from orchestration.run.bundle_restore import unpacked
from orchestration.run.directory import RunDirectory, root_and_name


@dataclass(frozen=True)
class Source:
    """A run to read. `place`: as it was given, without a login. `is_original`: false for a temporary copy of a bundle
    or of published rows, into which nothing is worth writing."""

    run: RunDirectory
    place: str
    is_original: bool


@contextmanager
def opened(place: str) -> Iterator[Source]:
    """The run in a folder, a path or a URI, to read from within this block.

    Raises BundleError for a damaged bundle and OSError for published rows that cannot be read. Whether a run directory
    holds a run shows when its configuration is read.
    """
    folder = Path(place)
    if "://" not in place and is_bundle(folder):
        with unpacked(folder) as run:
            yield Source(run, place, is_original=False)
    elif "://" not in place and is_published(folder):
        with tempfile.TemporaryDirectory() as root:
            yield Source(restore(folder.absolute(), Path(root)), place, is_original=False)
    else:
        run = RunDirectory(*root_and_name(place))
        yield Source(run, str(run), is_original=True)
