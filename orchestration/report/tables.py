"""The tables of a report, as they are shown everywhere: columns, rows and cells, without any layout.

Each table answers one question. Terminal, page and published page differ only in how they draw it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from evaluators.records import Estimate
from orchestration.report import format as fmt
from orchestration.report.assemble import Group, Report, Stage
from orchestration.report.comparison import overall, overall_gain
from orchestration.report.constants import ITSELF, NEAREST, UNDER_COMPILE
from orchestration.report.observed import Variety
from orchestration.report.portability import PERCENTILES


@dataclass(frozen=True)
class Cell:
    """A figure, and its interval or another word on it, which may be empty."""

    value: str
    below: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is no such figure."""
        return self.value == fmt.NOTHING


Row = tuple[str, tuple[Cell, ...]]
"""The name of a row, and its cells."""


@dataclass(frozen=True)
class Table:
    """A table: `columns` without the first one, whose heading is `first`. A heading may have two lines. `rows` are
    pairs of a name and cells; `others` are rows to compare them with. `note` explains the columns."""

    title: str
    note: str
    first: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    others: tuple[Row, ...] = ()


INTERVALS = "Ranges are 95 % confidence intervals over tasks: they say what other tasks like these would have shown."
TEACHERS = (
    "Tasks: about which a teacher proposed a program; solved: for which one of them is a lesson. Tries are its "
    "programs, right ones of them correct, faster ones more than 1.01x as fast as eager. Lost: requests without "
    "an answer. Tokens as the endpoint counted them; the cost is in the currency of the prices."
)
RIGHT = (
    "Shares of all samples. Copies are right and the reference again. Lessons are right, and programs that the policy "
    "was taught, word for word; the next column is their share of the right samples. New are right and neither of "
    "these. Correct counts the tasks with a right sample."
)
FASTER = (
    "Shares of all samples that are right and more than 1.01x as fast as eager (faster) and as the best baseline "
    "(improved); new, faster are neither copies nor lessons. All: the geometric mean speed-up over eager of all "
    "samples, where one that is not right counts as 1x. Gain: that as a multiple of the stage before, task by task. "
    "Own kernel: the share of right samples that launched a kernel of their own."
)
RIGHT_ONES = "Speed-ups of the right samples alone, over eager and over the best baseline of each task."
PASS = (
    "The chance that at least one of k samples of a task is right (pass@k, Chen et al. 2021), and that one is faster "
    "than eager and no copy. Means over tasks."
)
BEST = (
    "The expected speed-up over eager of the fastest of k samples of a task: the geometric mean over tasks, where a "
    "sample that is not right counts as 1x."
)
ROUNDS = (
    "Phases that learn nothing. Samples: so many a task up to the round, of which some hand over the same program. "
    "Best so far: the geometric mean over tasks of the speed-up over eager of a task's fastest program, 1x without one "
    "that is faster than the reference. Faster: the share of tasks with a program that is more than 1.01x as fast."
)
VARIETY = (
    "How much samples differ. Programs: distinct ones per response with a program. Bigrams: distinct pairs of tokens, "
    "as a share of a task's pairs. Entropy: nats per token, at the temperature of the samples."
)
READING = (
    "Training responses to prompts that show exemplars. Their analysis names an exemplar by its number, or the "
    "speed-up of one. Lesson text: how much of an analysis stands in a lesson's, eight words or more in a row."
)
PORTABILITY = (
    "The best program of each task on {first}, judged on every architecture (CUDA-L1 table 6). Success: the share that "
    "is right there. Faster: more than 1.01x as fast as eager there. Speed-ups are over eager, of the right ones."
)


def intervals_note(group: Group) -> str:
    """How to read ranges and the rows below the stages."""
    if not group.constants:
        return INTERVALS
    names = {stage.label for stage in group.constants}
    policies = ["the reference itself"]
    if UNDER_COMPILE in names:
        policies.append("the reference under torch.compile, on the tasks on which it was measured")
    if NEAREST in names:
        policies.append("the fastest lesson of the task whose reference is most alike")
    return f"{INTERVALS} Below the stages stand constant policies, with one program a task: {'; '.join(policies)}."


def stage_tables(group: Group) -> list[Table]:
    """The tables of a group of tasks. A table without columns, because nothing was recorded, is left out."""
    makers = (_right, _faster, _speeds, _passes, _best, _rounds, _variety)
    return [table for make in makers if (table := make(group)).columns]


def reading_table(report: Report) -> Table | None:
    """How answers use the exemplars that they were shown, by phase; None if no answer was read for that."""
    rows = []
    for phase, label in report.phases:
        if reading := report.readings.get(phase):
            shares = (reading.names_exemplar, reading.names_speed, reading.lesson_text)
            rows.append((label, (Cell(str(reading.answers)), *(Cell(fmt.share(value)) for value in shares))))
    columns = ("answers", "exemplar", "speed-up", "lesson text")
    return Table("Answers to contrastive prompts", READING, "phase", columns, tuple(rows)) if rows else None


def teachers_table(report: Report) -> Table | None:
    """What teachers gave, by phase; None if none was asked, or if the run is of an earlier version."""
    labels, rows = dict(report.phases), list[Row]()
    has_several = len({phase for phase, _ in report.teachers}) > 1
    for phase, row in report.teachers:
        counts = [Cell(f"{row[key]:,}") for key in ("tasks", "solved", "tries", "right", "faster", "lost")]
        tokens = row["prompt_tokens"], row["completion_tokens"]
        given = [Cell(f"{count:,}" if any(tokens) else fmt.NOTHING) for count in tokens]
        cost = Cell(fmt.NOTHING if row["cost"] is None else f"{row['cost']:,.4g}")
        name = f"{labels[phase]}: {row['name']}" if has_several else row["name"]
        rows.append((name, (*counts, *given, cost)))
    columns = ("tasks", "solved", "tries", "right", "faster", "lost", "tokens\nasked", "tokens\nanswered", "cost")
    return Table("Teachers", TEACHERS, "teacher", columns, tuple(rows)) if rows else None


def further_tables(report: Report) -> list[Table]:
    """The tables that are of no group of tasks."""
    made = teachers_table(report), reading_table(report), portability_table(report)
    return [table for table in made if table is not None]


def portability_table(report: Report) -> Table | None:
    """The best programs by architecture; None if the run judged on one alone."""
    if not report.portability:
        return None
    rows = []
    for each in report.portability:
        s, percentiles = each.summary, each.percentiles or [None] * len(PERCENTILES)
        low, high = (Cell(fmt.speed(value)) for value in percentiles)
        speeds = (speed_cell(s.over_eager.mean), Cell(fmt.speed(each.most)), high, speed_cell(s.over_eager.median), low)
        rows.append((each.arch, (Cell(str(s.tasks)), share_cell(s.success), share_cell(s.faster), *speeds)))
    columns = ("tasks", "success", "faster", "mean", "max", "75 %", "median", "25 %")
    note = PORTABILITY.format(first=report.portability[0].arch)
    return Table("Portability", note, "architecture", columns, tuple(rows))


def _right(group: Group) -> Table:
    def cells(stage: Stage) -> tuple[Cell, ...]:
        s = stage.summary
        return (
            Cell(str(s.tasks)),
            Cell(str(s.samples)),
            share_cell(s.success),
            Cell(f"{s.correct}/{s.tasks}", fmt.share(s.correct_share)),
            share_cell(s.copies),
            share_cell(s.lessons),
            Cell(fmt.share(s.lessons_of_correct)),
            share_cell(s.new),
        )

    columns = ("tasks", "samples", "success", "correct", "copies", "lessons", "lessons\nof right", "new")
    return _table("What is right", RIGHT, columns, group, cells)


def _faster(group: Group) -> Table:
    before = {stage.key: earlier for earlier, stage in pairwise(group.stages)}

    def cells(stage: Stage) -> tuple[Cell, ...]:
        s, earlier = stage.summary, before.get(stage.key)
        gain = overall_gain(earlier.rows, stage.rows) if earlier else None
        shares = (share_cell(share) for share in (s.faster, s.new_faster, s.improved))
        return *shares, speed_cell(overall(stage.rows)), speed_cell(gain), share_cell(s.own_kernel)

    columns = ("faster", "new,\nfaster", "improved", "all", "gain", "own\nkernel")
    return _table("What is faster", FASTER, columns, group, cells)


def _speeds(group: Group) -> Table:
    def cells(stage: Stage) -> tuple[Cell, ...]:
        return tuple(
            speed_cell(estimate)
            for over in (stage.summary.over_eager, stage.summary.over_best)
            for estimate in (over.mean, over.median, over.geometric_mean)
        )

    columns = tuple(f"{mean}\nvs {over}" for over in ("eager", "best") for mean in ("mean", "median", "geo-mean"))
    return _table("How fast right samples are", RIGHT_ONES, columns, group, cells)


def _passes(group: Group) -> Table:
    sizes = _sizes(group)

    def cells(stage: Stage) -> tuple[Cell, ...]:
        draws = {summary.k: summary for summary in stage.draws}
        right = (share_cell(draws[k].correct) if k in draws else Cell(fmt.NOTHING) for k in sizes)
        faster = (share_cell(draws[k].faster) if k in draws else Cell(fmt.NOTHING) for k in sizes)
        return *right, *faster

    columns = tuple(f"{what}\n@{k}" for what in ("right", "faster") for k in sizes)
    return _table("At least one of k samples", PASS, columns, group, cells, with_constants=False)


def _best(group: Group) -> Table:
    sizes = [k for k in _sizes(group) if k > 1]  # the best of one is `all`

    def cells(stage: Stage) -> tuple[Cell, ...]:
        draws = {summary.k: summary for summary in stage.draws}
        return tuple(speed_cell(draws[k].best) if k in draws else Cell(fmt.NOTHING) for k in sizes)

    columns = tuple(f"best\nof {k}" for k in sizes)
    return _table("The best of k samples", BEST, columns, group, cells, with_constants=False)


def _rounds(group: Group) -> Table:
    rows = tuple(
        (f"{point.phase} {point.round}", (Cell(f"{point.samples:g}"), speed_cell(point.best), share_cell(point.faster)))
        for point in group.rounds
    )
    columns = ("samples", "best\nso far", "faster") if rows else ()
    return Table("The best programs, round by round", ROUNDS, "round", columns, rows)


def _variety(group: Group) -> Table:
    def cells(stage: Stage) -> tuple[Cell, ...]:
        v = stage.variety or Variety(None, None, None)
        entropy = Cell(fmt.NOTHING if v.entropy is None else f"{v.entropy:.2f}")
        return Cell(fmt.share(v.programs)), Cell(fmt.share(v.bigrams)), entropy

    columns = ("programs", "bigrams", "entropy") if any(stage.variety for stage in group.stages) else ()
    return _table("Variety of the samples", VARIETY, columns, group, cells, with_constants=False)


def _table(
    title: str,
    note: str,
    columns: tuple[str, ...],
    group: Group,
    cells: Callable[[Stage], tuple[Cell, ...]],
    *,
    with_constants: bool = True,
) -> Table:
    rows = tuple((stage.label, cells(stage)) for stage in group.stages)
    others = tuple(
        (stage.label, tuple(map(plain_cell, cells(stage))) if stage.key in (ITSELF, UNDER_COMPILE) else cells(stage))
        for stage in (group.constants if with_constants else ())
    )
    return Table(title, note, "stage", columns, rows, others)


def plain_cell(cell: Cell) -> Cell:
    """A cell without its interval if it can be nothing else: the reference is always right."""
    return Cell(cell.value) if cell.value in (fmt.share(0.0), fmt.share(1.0)) else cell


def _sizes(group: Group) -> list[int]:
    """The numbers of samples of which some stage has a summary."""
    return sorted({summary.k for stage in group.stages for summary in stage.draws})


def share_cell(estimate: Estimate | None) -> Cell:
    """A share with its interval."""
    return Cell(fmt.share(fmt.value_of(estimate)), fmt.share_interval(estimate))


def speed_cell(estimate: Estimate | None) -> Cell:
    """A speed-up with its interval; without it if it has no width: the figure is of one task, or the same on all."""
    if estimate is None or math.isclose(estimate.low, estimate.high):
        return Cell(fmt.speed(fmt.value_of(estimate)))
    return Cell(fmt.speed(estimate.value), fmt.speed_interval(estimate))
