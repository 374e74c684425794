"""The form in which a runner reports the kernels of one call: a claim, of which the judge believes only the types."""

from __future__ import annotations

KernelRecord = tuple[str, int, float, float]  # name, stream, and the times at which it started and ended, in seconds
MARKS = ("[begin]", "[end]")
"""Names that no kernel can have: of what is set right before a call and right after it on the stream by which calls are
timed. A kernel that is ordered with this stream begins after the first has ended and ends before the second begins."""
