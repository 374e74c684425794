"""Reads what stands on a leaderboard: judged programs in a file, the verdicts of a published run, a run's best ones."""

from __future__ import annotations

from pathlib import Path

from configs.load import ConfigError
from orchestration.kernelbench.layout import LayoutError
from orchestration.kernelbench.rows import Judged, read_judged
from orchestration.report.leaderboard import Entrant
from orchestration.report.published import is_published
from orchestration.report.sources import opened
from orchestration.run.errors import BundleError, RunDirectoryError


def split_source(text: str) -> tuple[str, str]:
    """Name and place of a source: `NAME=PLACE`, or a place alone, whose last part is then its name."""
    name, equals, place = text.partition("=")
    if equals and name and "/" not in name:
        return name, place
    path = Path(text.rstrip("/"))
    return path.stem if path.suffix == ".parquet" else path.name, text


def read_entrants(name: str, place: str) -> list[Entrant]:
    """The programs of a source with their verdicts.

    `place`: a Parquet file of `warpsmith kernelbench judge` or of verdicts, the folder of a published run, or a run's
    directory or bundle, of which the best program of each task counts. Raises LayoutError for anything else.
    """
    path = Path(place)
    if path.suffix == ".parquet":
        return [_entrant(name, each) for each in read_judged(path)]
    if "://" not in place and is_published(path):
        return [_entrant(name, each) for each in read_judged(path / "verdicts.parquet")]
    try:
        with opened(place) as source:
            source.run.read_config()
            return [
                Entrant(name, each.verdict, each.candidate.source, each.candidate.author)
                for each in source.run.kernels.read()
            ]
    except (RunDirectoryError, BundleError, ConfigError, OSError) as error:
        raise LayoutError(
            f"{place}: neither a run nor a Parquet file of verdicts ({' '.join(str(error).split())[:120]})"
        ) from error


def _entrant(name: str, judged: Judged) -> Entrant:
    label = f"sample {judged.sample}" if judged.program else ""
    return Entrant(name, judged.verdict, judged.program, label, judged.theirs.words if judged.theirs else "")
