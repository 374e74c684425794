"""What a candidate's speed is compared with beyond eager: measured once per task, sizes and versions, and stored.

A baseline is a program made of the task's own; it is judged like any candidate, so its speed-up over eager is a
measured, checked figure. One that fails on a task, or does not exist on an architecture, is absent, never 1.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluators.records import Estimate, Task, digest_of
from evaluators.tasks import program_source

EXISTING = {"cpu": ("eager", "torch_compile", "torch_compile_reduce_overhead")}

_COMPILED = """

class ModelNew(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.compiled = torch.compile(super().forward{options})

    def forward(self, *inputs):
        return self.compiled(*inputs)
"""
_OPTIONS = {"torch_compile": "", "torch_compile_reduce_overhead": ', mode="reduce-overhead"'}


def baseline_source(task: Task, name: str) -> str:
    """The program of a baseline as a candidate's source. Raises ValueError for `eager` and unknown names."""
    if name not in _OPTIONS:
        raise ValueError(f"baseline {name} has no program")
    return "import torch\n" + program_source(task) + _COMPILED.format(options=_OPTIONS[name])


@dataclass(frozen=True)
class BaselineResult:
    """The speed-up of a baseline over eager, or why there is none."""

    speedup: Estimate | None
    reason: str = ""


class BaselineStore:
    """One small JSON file per (task, sizes, baseline, versions); replaced whole, so readers see no halves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "baselines"

    def _path(self, task: Task, name: str, versions: Mapping[str, str]) -> Path:
        key = digest_of(json.dumps([task.digest, name, sorted(versions.items())]))
        return self.folder / f"{key}.json"

    def get(self, task: Task, name: str, versions: Mapping[str, str]) -> BaselineResult | None:
        """The stored result, or None when it has to be measured."""
        path = self._path(task, name, versions)
        if not path.is_file():
            return None
        entry = json.loads(path.read_text())
        return BaselineResult(Estimate(**entry["speedup"]) if entry["speedup"] else None, entry["reason"])

    def put(self, task: Task, name: str, versions: Mapping[str, str], result: BaselineResult) -> None:
        """Stores a result beside what it belongs to."""
        path = self._path(task, name, versions)
        path.parent.mkdir(parents=True, exist_ok=True)
        entry = {"task": task.id, "baseline": name, "versions": dict(versions), **asdict(result)}
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(entry, indent=1))
        partial.replace(path)
