"""Whether a host gives the containment that is demanded of it, found out before any program comes.

Runs in the judge's process (trusted).
"""

from __future__ import annotations

from evaluators.host.device import Device, Slot
from evaluators.host.exchange import Exchange
from evaluators.host.runner_process import RunnerLimits, RunnerProcess
from evaluators.host.zygote_handle import ZygoteHandle

_START_SECONDS = 60.0


def check_host(zygote: ZygoteHandle, device: Device, slot: Slot, limits: RunnerLimits) -> None:
    """Forks one runner that is contained as a candidate's on this device, and ends it. It loads nothing, and takes no
    hold of a GPU.

    Raises ContainmentError if the host does not give what the zygote's runners must have, and InfraError."""
    process = RunnerProcess(zygote, device, slot, 1, limits, on_device=False)
    try:
        exchange = Exchange(process, None)
        exchange.begin_start({})
        exchange.end_start(_START_SECONDS)
    finally:
        process.close()
