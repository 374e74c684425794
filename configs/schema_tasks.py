"""The configuration of a run's tasks, a part of `configs.schema`. Imports neither torch nor ray."""

from __future__ import annotations

from dataclasses import dataclass, field

from configs.fields import bounded, one_of


@dataclass
class HeldOutConfig:
    """Tasks that no phase samples, teaches or shows. Assessments measure them beside the others. They are chosen once,
    when a run begins."""

    share: float = bounded(0.0, 0.0, 0.9)  # share of the run's tasks, drawn by `seed`: the same share of each level
    tasks: list[str] = field(default_factory=list)  # task ids or patterns (`level2/*`) to hold out, instead of a share
    # Further tasks, all of them held out: a folder, a JSONL file, or several. `tasks` then chooses among these alone. A
    # run is refused if one of them has the structure of a task that it trains on.
    source: str = ""
    # What a share or names hold out: single tasks, or with each all of the run's tasks of its structure, whatever their
    # names and sizes. To find structures takes some milliseconds a task.
    unit: str = one_of("task", "task", "structure")


@dataclass
class TasksConfig:
    """Which tasks a run has."""

    # `bundled`, a folder in KernelBench's layout, a JSONL file, a Parquet file of KernelBench's data set or a folder of
    # them, `hf://datasets/OWNER/NAME`, or several of them: `bundled,tasks.jsonl`
    source: str = "bundled"
    # Sizes of tasks that have them by device (bundled and generated ones); `source` leaves them as written.
    profile: str = one_of("cpu", "cpu", "cuda", "source")
    levels: list[int] = field(default_factory=lambda: [1, 2, 3])  # levels of KernelBench (CUDA-L1 section 4.1: all)
    include: list[str] = field(default_factory=list)  # task ids or patterns (`level1/*`); empty takes all of the levels
    held_out: HeldOutConfig = field(default_factory=HeldOutConfig)
    # Tasks in which an audit found that they cannot tell a cheat from an honest program (docs/guides/guard.md).
    marked: str = one_of("leave_out", "leave_out", "keep")
    audit: str = ""  # your own audit, beside the shipped one: a file of `warpsmith audit TASKS --output FILE`
