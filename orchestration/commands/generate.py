"""`warpsmith tasks --generate`: writes generated tasks, and prints what was drawn and dropped."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluators.generator.generate import FIRST_NUMBER, Generated, GenerateError, generate, rows_of, write_rows
from evaluators.tasks import TaskError, load_tasks
from orchestration.commands.refusal import refuse


def generate_tasks(number: int, seed: int, output: Path, keep_out: Sequence[str], jobs: int, first: int | None) -> None:
    """Generates tasks into a file. Refuses a source that cannot be read, and a file that cannot be written."""
    start = time.perf_counter()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        lists = {name: load_tasks(name) for name in dict.fromkeys(["bundled", *keep_out])}
        generated = generate(number, seed, lists, jobs=jobs, progress=_tell)
        rows = list(rows_of(generated, first or FIRST_NUMBER))
        write_rows(rows, output)
    except (TaskError, GenerateError, OSError) as error:
        raise refuse(error) from None
    print(summary(generated, rows))
    print(f"{len(rows)} tasks in {output}, {time.perf_counter() - start:.0f} s with {jobs} processes")


def _tell(generated: Generated) -> None:
    print(f"{generated.draws} draws, {len(generated.tasks)} tasks", file=sys.stderr, flush=True)


def summary(generated: Generated, rows: Sequence[Mapping[str, Any]]) -> str:
    """Tables as text: accepted tasks by level and family, dropped draws by reason, variants by rule and device."""
    families = Counter((row["level_id"], row["family"]) for row in rows)
    structures = len({row["structure"] for row in rows})
    lines = [f"{generated.draws} draws, {len(rows)} tasks of {structures} structures"]
    lines += [f"  level {level} {family:<20} {count:>5}" for (level, family), count in sorted(families.items())]
    for name, (total, traced) in generated.kept_out.items():
        lines.append(f"kept out: {name}, {traced} of {total} tasks traced")
    lines.append(f"dropped: {sum(generated.dropped.values())}")
    lines += [f"  {reason:<58} {count:>5}" for reason, count in generated.dropped.most_common()]
    rules = Counter((variant["rule"], " ".join(variant["profiles"])) for row in rows for variant in row["variants"])
    lines.append(f"variants: {sum(rules.values())}")
    lines += [f"  {rule:<20} {devices:<10} {count:>6}" for (rule, devices), count in sorted(rules.items())]
    for device in ("cpu", "cuda"):
        without = sum(not any(device in variant["profiles"] for variant in row["variants"]) for row in rows)
        lines.append(f"  tasks without a variant for {device}: {without}")
    return "\n".join(lines)
