"""The baselines beside eager: their programs, and the store of their measured speed-ups over eager.

A baseline is a program made of the task's own. It is measured once per task, sizes and versions
(`evaluators.stored.measuring`). If it fails on a task, or does not exist on an architecture, it is absent. It must
never count as 1.0 then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluators.compile.locks import locked
from evaluators.host.whole_files import remove_abandoned, write_whole
from evaluators.records import Estimate, Task, digest_of
from evaluators.tasks import program_source

_log = logging.getLogger(__name__)
_EVERYWHERE = ("eager", "torch_compile", "torch_compile_reduce_overhead")
_ON_CUDA = ("cuda_graph", "cudnn")

_COMPILED = """

class ModelNew(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.compiled = torch.compile(super().forward{options})

    def forward(self, *inputs):
        return self.compiled(*inputs)
"""
_CUDA_GRAPH = """

class ModelNew(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.graph = None

    def forward(self, *inputs):
        if self.graph is None:
            self.static = [one.clone() if torch.is_tensor(one) else one for one in inputs]
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    super().forward(*self.static)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.result = super().forward(*self.static)
            self.graph = graph
        for target, value in zip(self.static, inputs):
            if torch.is_tensor(target):
                target.copy_(value)
        self.graph.replay()
        return self.result
"""
_CUDNN = """

class ModelNew(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        torch.backends.cudnn.benchmark = True
"""
_PROGRAMS = {
    "torch_compile": _COMPILED.format(options=""),
    "torch_compile_reduce_overhead": _COMPILED.format(options=', mode="reduce-overhead"'),
    "cuda_graph": _CUDA_GRAPH,
    "cudnn": _CUDNN,
}


def existing_baselines(arch: str) -> tuple[str, ...]:
    """The names of the baselines that an architecture has: CUDA-L1's five on a GPU, three of them on `cpu`."""
    return _EVERYWHERE if arch == "cpu" else _EVERYWHERE + _ON_CUDA


def baseline_source(task: Task, name: str) -> str:
    """The program of a baseline as a candidate's source. Raises ValueError for `eager` and unknown names."""
    if name not in _PROGRAMS:
        raise ValueError(f"baseline {name} has no program")
    return "import torch\n" + program_source(task) + _PROGRAMS[name]


@dataclass(frozen=True)
class BaselineResult:
    """The speed-up of a baseline over eager, or the `reason` why there is none.

    `eager_seconds`: seconds per call of eager in the same measurement; None if the store is older than this field.
    """

    speedup: Estimate | None
    reason: str = ""
    eager_seconds: float | None = None


class BaselineStore:
    """One small JSON file per (task, sizes, baseline, versions), which several processes may write. It is replaced as a
    whole: readers see no half. `locks`: a lock for each, so that a baseline is measured once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "baselines"
        self.locks = folder / "locks"

    def _path(self, task: Task, name: str, versions: Mapping[str, str]) -> Path:
        key = digest_of(json.dumps([task.digest, name, sorted(versions.items())]))
        return self.folder / f"{key}.json"

    @contextmanager
    def measuring(self, task: Task, name: str, versions: Mapping[str, str], timeout: float) -> Iterator[None]:
        """Within this block no other process measures the baseline. If another keeps it locked for `timeout` seconds,
        both measure it, and the last result counts."""
        self.locks.mkdir(parents=True, exist_ok=True)
        with locked(self.locks / f"{self._path(task, name, versions).stem}.lock", timeout, "measuring"):
            yield

    def get(self, task: Task, name: str, versions: Mapping[str, str]) -> BaselineResult | None:
        """The stored result, or None if it has to be measured. A damaged one has to be measured, and the log says
        so."""
        path = self._path(task, name, versions)
        try:
            entry = json.loads(path.read_text())
            speedup = Estimate(**entry["speedup"]) if entry["speedup"] else None
            return BaselineResult(speedup, entry["reason"], entry.get("eager_seconds"))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("%s: baseline %s is measured again: %s is damaged (%r)", task.id, name, path, error)
            return None

    def put(self, task: Task, name: str, versions: Mapping[str, str], result: BaselineResult) -> None:
        """Stores a result, together with the names and versions that it belongs to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.folder)
        entry = {"task": task.id, "baseline": name, "versions": dict(versions), **asdict(result)}
        write_whole(self._path(task, name, versions), json.dumps(entry, indent=1))
