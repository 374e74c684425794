"""The scored candidates of each task, from which exemplars are drawn, for one architecture (CUDA-L1 section 2.4.3).

Only successful verdicts enter. Never judges a candidate itself, and never mixes timings of different architectures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from configs.schema import BufferConfig
from evaluators.records import CANDIDATE_SCHEMA, Candidate, Verdict
from prompts.owner import OwnThread
from prompts.render import Exemplar
from prompts.selection import ScoredCandidate, bucket_of, make_selection

BUFFER_SCHEMA = pa.schema([*CANDIDATE_SCHEMA, ("speedup", pa.float64()), ("step", pa.int64())])
"""One row per candidate. The metadata under `METADATA_KEY` holds architecture, baseline and random state, as JSON."""

METADATA_KEY = b"warpsmith.buffer"


class ExemplarBuffer:
    """Scored candidates by task, at most `config.capacity` of each, and the random generator that draws exemplars.

    `baseline`: what speed-ups are over, `eager` or `best` (as `reward.baseline`). Raises ValueError for another
    baseline or an unknown strategy.

    It belongs to the thread that makes it: in any other, everything here raises RuntimeError.
    """

    def __init__(self, config: BufferConfig, arch: str, seed: int, baseline: str = "eager") -> None:
        if baseline not in ("eager", "best"):
            raise ValueError(f"baseline must be eager or best, got {baseline!r}")
        self.arch = arch
        self.baseline = baseline
        self._config = config
        self._own = OwnThread("the buffer")
        self._selection = make_selection(config)
        self._rng = np.random.default_rng(seed)
        self._tasks: dict[str, dict[str, ScoredCandidate]] = {}

    def add(self, candidate: Candidate, verdict: Verdict, step: int) -> bool:
        """Adds a candidate, and returns whether the buffer now holds this measurement.

        It refuses verdicts that are not `ok`, that are of another architecture or that have no positive finite
        speed-up, and measurements that are older than the one it holds of the same candidate. Raises ValueError if the
        verdict is on another candidate.
        """
        self._own.check()
        if verdict.candidate != candidate.digest:
            raise ValueError(
                f"verdict is on candidate {verdict.candidate}, not {candidate.digest}; pass its own verdict"
            )
        speedup = verdict.speedup_over(self.baseline)
        if not verdict.succeeded or verdict.arch != self.arch or speedup is None:
            return False
        if not (math.isfinite(speedup) and speedup > 0):
            return False
        held = self._tasks.get(candidate.task_id, {}).get(candidate.digest)
        if held is not None and held.step > step:
            return False
        self._insert(ScoredCandidate(candidate, speedup, step))
        return candidate.digest in self._tasks[candidate.task_id]

    def discard(self, candidate: Candidate) -> None:
        """Removes a candidate whose speed-up turned out to be undeserved."""
        self._own.check()
        self._tasks.get(candidate.task_id, {}).pop(candidate.digest, None)

    def exemplars(self, task_id: str, reference: str, *, below: float = math.inf) -> list[Exemplar]:
        """`config.exemplars` exemplars for one prompt on a task, from slow to fast.

        If the strategy draws fewer, the reference at 1.0 comes first, once. If more are missing, other candidates of
        the task fill up. If there are not enough different programs, fewer are returned. All exemplars, the reference
        included, are slower than the speed-up `below`.
        """
        self._own.check()
        wanted = self._config.exemplars
        scored = [member for member in self.candidates(task_id) if member.speedup < below]
        drawn = self._selection.select(scored, wanted, self._rng)
        first: list[Exemplar] = []
        if len(drawn) < wanted:
            if below > 1.0 and all(member.candidate.source.strip() != reference.strip() for member in drawn):
                first = [Exemplar(reference, 1.0)]
            shown = {member.candidate.digest for member in drawn} | {
                member.candidate.digest for member in scored if member.candidate.source.strip() == reference.strip()
            }
            spare = [member for member in scored if member.candidate.digest not in shown]
            for index in self._rng.permutation(len(spare))[: wanted - len(drawn) - len(first)]:
                drawn.append(spare[index])
            drawn.sort(key=lambda member: (member.speedup, member.candidate.digest))
        return first + [Exemplar(member.candidate.source, member.speedup) for member in drawn]

    def best(self, task_id: str) -> ScoredCandidate | None:
        """The fastest candidate of a task; of two that are equally fast, the older one."""
        return max(self.candidates(task_id), key=lambda member: (member.speedup, -member.step), default=None)

    def candidates(self, task_id: str) -> list[ScoredCandidate]:
        """The candidates of a task, in the order of their last measurement."""
        self._own.check()
        return list(self._tasks.get(task_id, {}).values())

    def __len__(self) -> int:
        self._own.check()
        return sum(len(held) for held in self._tasks.values())

    def to_table(self) -> pa.Table:
        """The whole buffer, with its random state, as a table of `BUFFER_SCHEMA`."""
        self._own.check()
        rows = [
            {**asdict(member.candidate), "speedup": member.speedup, "step": member.step}
            for held in self._tasks.values()
            for member in held.values()
        ]
        state = {"arch": self.arch, "baseline": self.baseline, "generator": self._rng.bit_generator.state}
        return pa.Table.from_pylist(rows, schema=BUFFER_SCHEMA.with_metadata({METADATA_KEY: json.dumps(state)}))

    @classmethod
    def from_table(cls, table: pa.Table, config: BufferConfig, seed: int) -> ExemplarBuffer:
        """The inverse of `to_table`. The new buffer draws the exemplars that the stored one would have drawn next.

        `seed` is used if the table's metadata has no random state. `config` may differ from that of the stored buffer;
        a smaller capacity evicts candidates. Raises ValueError for a table that `to_table` did not make.
        """
        metadata = table.schema.metadata or {}
        missing = [name for name in BUFFER_SCHEMA.names if name not in table.column_names]
        if METADATA_KEY not in metadata or missing:
            lacking = f"columns {', '.join(missing)}" if missing else f"metadata {METADATA_KEY.decode()}"
            raise ValueError(f"buffer table lacks {lacking}; read one that ExemplarBuffer.to_table wrote")
        state = json.loads(metadata[METADATA_KEY])
        buffer = cls(config, state["arch"], seed, state["baseline"])
        if state.get("generator"):
            buffer._rng.bit_generator.state = state["generator"]
        for row in table.select(BUFFER_SCHEMA.names).to_pylist():
            speedup, step = row.pop("speedup"), row.pop("step")
            buffer._insert(ScoredCandidate(Candidate(**row), speedup, step))
        return buffer

    def _insert(self, member: ScoredCandidate) -> None:
        held = self._tasks.setdefault(member.candidate.task_id, {})
        held.pop(member.candidate.digest, None)  # a candidate that is measured again becomes the newest
        held[member.candidate.digest] = member
        while len(held) > self._config.capacity:
            del held[self._evicted(list(held.values())).candidate.digest]

    def _evicted(self, members: Sequence[ScoredCandidate]) -> ScoredCandidate:
        """The oldest candidate of the fullest bucket, so that slow and fast ones remain; never the best."""
        best = max(members, key=lambda member: (member.speedup, -member.step))
        buckets: dict[int, list[ScoredCandidate]] = {}
        for member in members:
            buckets.setdefault(bucket_of(member.speedup, self._config.bucket_width), []).append(member)
        fullest = max(len(bucket) for bucket in buckets.values())
        crowded = [member for bucket in buckets.values() if len(bucket) == fullest for member in bucket]
        return min((member for member in crowded if member is not best), key=lambda member: member.step)
