"""The best program of each task on each architecture, with the verdict that it got.

A stored program is only ever replaced by a faster one, or removed when it turns out to be a hack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from evaluators.records import Candidate, Verdict
from orchestration.run.errors import RunDirectoryError
from orchestration.run.storage import Storage, path_segment


@dataclass(frozen=True)
class Kernel:
    """The best program found for a task on an architecture, and its verdict."""

    task_id: str
    arch: str
    candidate: Candidate
    verdict: Verdict


class BestKernels:
    """The folder `kernels` of a run: `<task>/<arch>.json` holds program and verdict, `<arch>.py` the program alone.

    Only the JSON file is read back. The Python file is there for people.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def save(self, task_id: str, arch: str, candidate: Candidate, verdict: Verdict) -> bool:
        """Stores a correct program if it beats the stored one. Returns whether it did.

        Better means a larger speed-up over the best baseline.
        """
        path = _path(task_id, arch)
        speedup = _speedup_over_best(verdict)
        if speedup is None:
            return False
        stored = self._read(f"{path}.json") if self._storage.is_file(f"{path}.json") else None
        if stored is not None and speedup <= (_speedup_over_best(stored.verdict) or 0.0):
            return False
        row = {"task_id": task_id, "arch": arch, "candidate": asdict(candidate), "verdict": verdict.to_row()}
        self._storage.write(f"{path}.py", candidate.source.encode("utf-8", "replace"))
        self._storage.write(f"{path}.json", json.dumps(row, indent=2, default=dict).encode())
        return True

    def save_best_of(self, arch: str, judged: Iterable[tuple[Candidate, Verdict]]) -> None:
        """Stores the best of these programs for each task, if it beats the stored one."""
        best: dict[str, tuple[float, Candidate, Verdict]] = {}
        for candidate, verdict in judged:
            speedup = _speedup_over_best(verdict)
            if speedup is not None and speedup > best.get(candidate.task_id, (0.0,))[0]:
                best[candidate.task_id] = speedup, candidate, verdict
        for task_id, (_, candidate, verdict) in best.items():
            self.save(task_id, arch, candidate, verdict)

    def discard(self, candidate: Candidate, arch: str) -> None:
        """Removes a program, if it is the stored one of its task."""
        path = _path(candidate.task_id, arch)
        if self._storage.is_file(f"{path}.json") and self._read(f"{path}.json").candidate.digest == candidate.digest:
            self._storage.delete(f"{path}.json")
            self._storage.delete(f"{path}.py")

    def read(self) -> list[Kernel]:
        """The best program of every task and architecture, ordered by task."""
        return [self._read(path) for path in self._storage.files("kernels", ".json")]

    def written(self) -> dict[str, int]:
        """When each program was stored, by its path, in nanoseconds of the file system's clock."""
        return self._storage.times("kernels", ".json")

    def read_at(self, path: str) -> Kernel | None:
        """The program at a path that `written` named; None if it was removed since."""
        try:
            return self._read(path)
        except FileNotFoundError:
            return None

    def place(self, kernel: Kernel) -> str:
        """The file of a stored program, a path or a URI."""
        return self._storage.uri(f"{_path(kernel.task_id, kernel.arch)}.py")

    def _read(self, path: str) -> Kernel:
        try:
            row = json.loads(self._storage.read(path))
            return Kernel(row["task_id"], row["arch"], Candidate(**row["candidate"]), Verdict.from_row(row["verdict"]))
        except (ValueError, TypeError, KeyError) as error:
            raise RunDirectoryError(
                f"{self._storage}/{path}: another version wrote it, or it is damaged ({error!r}); use that version"
            ) from error


def _path(task_id: str, arch: str) -> str:
    return f"kernels/{path_segment(task_id)}/{path_segment(arch)}"


def _speedup_over_best(verdict: Verdict) -> float | None:
    """The speed-up over the best baseline; None for a program that did not succeed."""
    best = verdict.best_baseline
    return verdict.speedups[best].value if verdict.succeeded and best is not None else None
