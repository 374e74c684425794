"""The turns in which a GPU's driver makes launches, and how the calls of a burst go through all of them.

Runs in the candidate's process (untrusted).
"""

from __future__ import annotations

LAUNCH_TURNS = 4


def launches_before(place: int) -> int:
    """How many launches more come before the call at this place of a burst.

    A GPU's driver makes launches in turns of four that are not alike: on one H200 the same four kernels took 9.8 µs or
    10.7 µs by the number of launches before them (`python -m benchmarks.launches`). If a call's own launches are a
    multiple of four, all calls of a process have the same turn. The launches added here sum up to the triangular
    numbers, so that eight calls in a row have each turn twice, however many launches a call has.
    """
    return place % LAUNCH_TURNS
