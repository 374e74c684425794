"""Tables of KernelBench's `fast_p` (`orchestration.report.fast_p`): of the stages of one run, and of several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestration.report import format as fmt
from orchestration.report.assemble import Group, Stage
from orchestration.report.fast_p import ALL, THRESHOLDS, baselines_in, fast_p
from orchestration.report.paper_tables import SectionedTable
from orchestration.report.side_by_side import GroupOfRuns, SideBySide
from orchestration.report.statistics import AssessmentRow
from orchestration.report.tables import Cell, Row, Table, share_cell

BASELINES = ("eager", "torch_compile")
"""Those over which tables are made; `warpsmith compare --json` has every baseline of the run."""
NOTE = (
    "KernelBench's fast_p: the share of all tasks that are right and more than p times as fast as {baseline}; p = 0 is "
    "the share that is right. With several samples a task, what one of them gives on average."
)


def fast_p_tables(group: Group, *, short: bool = False) -> list[Table]:
    """A table for each of `BASELINES` over which a sample of the group has a speed-up: a row for each stage and level,
    or if it is `short` for each stage and for each level of the last one."""
    return [
        Table(
            _title(baseline),
            NOTE.format(baseline=baseline),
            "stage",
            columns(),
            tuple(_rows(group.stages, baseline, short=short)),
        )
        for baseline in _shown(group.stages)
    ]


def compared_fast_p(compared: SideBySide, group: GroupOfRuns, *, short: bool = False) -> list[SectionedTable]:
    """The same with a section for each run that has the group."""
    pairs = [(name, of_run) for name, of_run in zip(compared.names, group.of_runs, strict=True) if of_run]
    return [
        SectionedTable(
            _title(baseline),
            NOTE.format(baseline=baseline),
            "stage",
            columns(),
            tuple((name, tuple(_rows(of_run.stages, baseline, short=short)), ()) for name, of_run in pairs),
        )
        for baseline in _shown([stage for _, of_run in pairs for stage in of_run.stages])
    ]


def _title(baseline: str) -> str:
    return f"KernelBench's fast_p over {baseline}"


def columns() -> tuple[str, ...]:
    """Of every table of `fast_p`."""
    return ("tasks", *(f"p = {p:g}" for p in THRESHOLDS))


def rows_of(name: str, samples: Sequence[AssessmentRow], baseline: str, *, only_all: bool = False) -> Iterable[Row]:
    """The rows of some samples: all levels, and then each level unless `only_all`."""
    for level, by_p in fast_p(samples, baseline).items():
        if level == ALL or not only_all:
            tasks = next(iter(by_p.values())).n
            cells = (share_cell(by_p[p]) if p in by_p else Cell(fmt.NOTHING) for p in THRESHOLDS)
            yield (name if level == ALL else f"{name}, {level}"), (Cell(str(tasks)), *cells)


def _shown(stages: Sequence[Stage]) -> list[str]:
    known = baselines_in(row for stage in stages for row in stage.rows)
    return [name for name in BASELINES if name in known]


def _rows(stages: Sequence[Stage], baseline: str, *, short: bool) -> Iterable[Row]:
    for stage in stages:
        yield from rows_of(stage.label, stage.rows, baseline, only_all=short and stage is not stages[-1])
