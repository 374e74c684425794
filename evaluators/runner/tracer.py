"""Records the kernels of one call by CUPTI.

Runs in the candidate's process (untrusted): its records are claims.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver

from evaluators.shared.kernel_record import MARKS, KernelRecord

_BYTES = 8 << 20
_MOST_RECORDS = 5000


class Tracer:
    """CUPTI, from the moment at which it is made until `records` is called."""

    def __init__(self, scratch: int) -> None:
        """`scratch`: the address of device memory of which nothing is needed. Raises ImportError without CUPTI."""
        from cupti import cupti

        self._cupti, self._scratch = cupti, scratch
        self._kinds = {
            cupti.ActivityKind.CONCURRENT_KERNEL: "",
            cupti.ActivityKind.MEMCPY: "[memory copy]",
            cupti.ActivityKind.MEMSET: "[memory set]",
        }
        self._values = random.SystemRandom().sample(range(1, 1 << 31), len(MARKS))
        self._marks = dict(zip(self._values, MARKS, strict=True))
        self._records: list[KernelRecord] = []
        cupti.activity_register_callbacks(lambda: (_BYTES, 0), self._completed)
        for kind in self._kinds:
            cupti.activity_enable(kind)

    def mark(self, index: int) -> None:
        """Sets one of MARKS on the default stream."""
        driver.cuMemsetD32Async(self._scratch, self._values[index], 1, driver.CUstream(0))

    def records(self) -> list[KernelRecord]:
        """All that ran, once the device is idle; the marks come first. Times count from the first mark's end."""
        self._cupti.activity_flush_all(1)
        for kind in self._kinds:
            self._cupti.activity_disable(kind)
        records = sorted(self._records, key=lambda record: record[0] not in MARKS)
        first = min((start for _, _, start, _ in records), default=0)
        return [(name, stream, (start - first) * 1e-9, (end - first) * 1e-9) for name, stream, start, end in records][
            :_MOST_RECORDS
        ]

    def _completed(self, activities: Sequence[Any]) -> None:
        for activity in activities:
            # For a memory set in a graph CUPTI does not fill in the value: the field holds whatever stood there.
            is_set = activity.kind == self._cupti.ActivityKind.MEMSET and not activity.graph_node_id
            mark = self._marks.get(activity.value) if is_set else None
            name = mark or self._kinds[activity.kind] or activity.name
            self._records.append((name, activity.stream_id, activity.start, activity.end))
