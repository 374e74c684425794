"""How a runner reports the kernels of one call."""

from __future__ import annotations

KernelRecord = tuple[str, int, float, float]  # name, stream, and the seconds at which it started and ended
MARKS = ("[begin]", "[end]")  # names that no kernel can have
