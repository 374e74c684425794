"""The form in which a runner reports the kernels of one call: a claim, of which the judge believes only the types."""

from __future__ import annotations

KernelRecord = tuple[str, int, float, float]  # name, stream, and the times at which it started and ended, in seconds
MARKS = ("[begin]", "[end]")  # names that no kernel can have
