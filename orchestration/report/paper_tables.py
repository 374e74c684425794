"""Tables with the statistics of CUDA-L1 (arXiv 2507.14111, table 4): success, more than 1.01x, mean, max, percentiles.

CUDA-L1's rows are of one program a task. These are of all samples of a stage, on tasks that it may not have trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluators.records import Estimate
from orchestration.report import format as fmt
from orchestration.report.assemble import Group, Stage
from orchestration.report.constants import ITSELF, UNDER_COMPILE
from orchestration.report.side_by_side import GroupOfRuns, SideBySide
from orchestration.report.tables import Cell, Row, Table, plain_cell, share_cell, speed_cell

COLUMNS = ("tasks", "success", "> 1.01x", "mean", "max", "75 %", "50 %", "25 %")
NOTE = (
    "Success and > 1.01x are shares of all samples. Mean, max and percentiles are of the right samples' speed-ups over "
    "{baseline}."
)
OVERS = (("eager", "eager"), ("best", "the best baseline of each task"))
GAINS = (
    "The last stage of each run beside that of {against}, on the tasks that both were assessed on. All: how many times "
    "as fast all samples are, where one that is not right counts as 1x. The others are differences."
)


@dataclass(frozen=True)
class SectionedTable:
    """A table with a section for each run: its name, the rows of its stages, and rows to compare them with."""

    title: str
    note: str
    first: str
    columns: tuple[str, ...]
    sections: tuple[tuple[str, tuple[Row, ...], tuple[Row, ...]], ...]


def statistics_tables(group: Group) -> list[Table]:
    """The statistics of a group's stages: over eager, and over the best baseline."""
    return [
        Table(
            f"CUDA-L1's statistics over {name}", NOTE.format(baseline=baseline), "stage", COLUMNS, *_rows(group, name)
        )
        for name, baseline in OVERS
    ]


def compared_tables(compared: SideBySide, group: GroupOfRuns) -> list[SectionedTable]:
    """The same with a section for each run that has the group."""
    pairs = [(name, of_run) for name, of_run in zip(compared.names, group.of_runs, strict=True) if of_run]
    return [
        SectionedTable(
            f"Over {over}",
            NOTE.format(baseline=baseline),
            "stage",
            COLUMNS,
            tuple((name, *_rows(of_run, over)) for name, of_run in pairs),
        )
        for over, baseline in OVERS
    ]


def gains_table(group: GroupOfRuns) -> Table | None:
    """What each run gains over the first; None without a run to compare."""
    if not group.gains:
        return None
    rows = []
    for gain in group.gains:
        of = gain.difference
        cells = (
            Cell(gain.stage),
            Cell(str(gain.tasks)),
            speed_cell(gain.overall),
            _points(of.success if of else None),
            _signed(of.mean_over_eager if of else None),
            _signed(of.mean_over_best if of else None),
        )
        rows.append((gain.run, cells))
    columns = ("stage", "tasks", "all", "success,\npoints", "mean\nvs eager", "mean\nvs best")
    note = GAINS.format(against=group.gains[0].against)
    return Table(f"Against {group.gains[0].against}", note, "run", columns, tuple(rows))


def differences_table(compared: SideBySide, width: int = 32) -> Table | None:
    """The settings in which the runs differ; None if they differ in none. A longer value is cut to `width`."""
    if not compared.differences:
        return None
    rows = tuple(
        (each.key, tuple(Cell(fmt.NOTHING if value is None else _cut(value, width)) for value in each.values))
        for each in compared.differences
    )
    note = "Every setting in which the runs differ, but for their names and folders."
    return Table("What differs", note, "setting", compared.names, rows)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _rows(group: Group, over: str) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    def cells(stage: Stage) -> Sequence[Cell]:
        s = stage.summary
        speeds, faster = (s.over_eager, s.faster) if over == "eager" else (s.over_best, s.improved)
        estimates = (speeds.upper, speeds.median, speeds.lower)
        made = [Cell(str(s.tasks)), share_cell(s.success), share_cell(faster)]
        made += [speed_cell(speeds.mean), Cell(fmt.speed(speeds.most))]
        made += map(speed_cell, estimates)
        return [plain_cell(cell) for cell in made] if stage.key in (ITSELF, UNDER_COMPILE) else made

    of_stages = tuple((stage.label, tuple(cells(stage))) for stage in group.stages)
    return of_stages, tuple((stage.label, tuple(cells(stage))) for stage in group.constants)


def _points(estimate: Estimate | None) -> Cell:
    if estimate is None:
        return Cell(fmt.NOTHING)
    return Cell(f"{100 * estimate.value:+.1f}", f"{100 * estimate.low:+.1f} to {100 * estimate.high:+.1f}")


def _signed(estimate: Estimate | None) -> Cell:
    if estimate is None:
        return Cell(fmt.NOTHING)
    return Cell(f"{estimate.value:+.2f}", f"{estimate.low:+.2f} to {estimate.high:+.2f}")
