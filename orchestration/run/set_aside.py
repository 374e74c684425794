"""What a run has set aside: programs that lost too many builders or evaluators, each with the evidence.

One JSON file a program and preset in the folder `set_aside`. It appears whole or not at all, and stays until somebody
removes it: until then no resume tries the program again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from actors.pool_records import Loss
from evaluators.records import Candidate, Task
from orchestration.run.errors import RunDirectoryError
from orchestration.run.storage import Storage, path_segment

FOLDER = "set_aside"


@dataclass(frozen=True)
class Evidence:
    """Why a program was set aside. `method`: what its workers did, `prepare` (build) or `evaluate`. `task_digest`: of
    the task as it was then. `time`: of the last loss, in seconds since 1970. `arch`: the further architecture that it
    was judged on, empty for `evaluator.arch`."""

    task: str
    task_digest: str
    candidate: str
    preset: str
    author: str
    method: str
    reason: str
    time: float
    losses: tuple[Loss, ...]
    source: str
    arch: str = ""

    @classmethod
    def of(
        cls, task: Task, candidate: Candidate, preset: str, method: str, error: Exception, arch: str = ""
    ) -> Evidence:
        """The evidence in a pool's `ItemGivenUp`."""
        losses: Sequence[Loss] = getattr(error, "losses", ())
        return cls(
            task=task.id,
            task_digest=task.digest,
            candidate=candidate.digest,
            preset=preset,
            author=candidate.author,
            method=method,
            reason=str(error),
            time=max((loss.time for loss in losses), default=0.0),
            losses=tuple(losses),
            source=candidate.source,
            arch=arch,
        )

    def to_row(self) -> dict[str, Any]:
        """Plain JSON. Times of the monotonic clock mean nothing to others, and are left out."""
        losses = [{name: value for name, value in asdict(loss).items() if name != "at"} for loss in self.losses]
        return {**asdict(self), "losses": losses}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Evidence:
        """The evidence in plain JSON. Raises TypeError or KeyError."""
        return cls(**{**row, "losses": tuple(Loss(**{**loss, "at": 0.0}) for loss in row["losses"])})


class SetAside:
    """The folder of a run. Without a `storage` nothing is kept."""

    def __init__(self, storage: Storage | None = None) -> None:
        self._storage = storage

    def add(self, evidence: Evidence) -> None:
        """Keeps evidence: it is on the disk when this returns. Raises OSError."""
        if self._storage is not None:
            name = path_segment("-".join(filter(None, (evidence.candidate, evidence.preset, evidence.arch))))
            self._storage.write(f"{FOLDER}/{name}.json", json.dumps(evidence.to_row(), indent=2).encode())

    def count(self) -> int:
        """How many programs are set aside."""
        return len(self._files())

    def all(self) -> Iterator[Evidence]:
        """All that was kept. Raises RunDirectoryError for a file that is something else."""
        for path in self._files():
            assert self._storage is not None
            try:
                yield Evidence.from_row(json.loads(self._storage.read(path)))
            except (ValueError, TypeError, KeyError) as error:
                raise RunDirectoryError(
                    f"{self._storage}/{path}: no evidence of a program that was set aside ({error}); remove it to have "
                    f"the program judged again"
                ) from error

    def _files(self) -> list[str]:
        return [] if self._storage is None else self._storage.files(FOLDER, ".json")
