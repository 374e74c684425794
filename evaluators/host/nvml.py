"""The state of one GPU as NVML tells it: clocks, reasons for throttling, temperature, memory in use.

Runs in the judge's process (trusted).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pynvml

from evaluators.host.device import gpu_files
from evaluators.records import ClockSample

# Reasons that make a kernel slower. An idle GPU and clocks chosen by an application are not among them.
_THROTTLING = {
    "power": pynvml.nvmlClocksEventReasonSwPowerCap,
    "hardware": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hardware_thermal": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "power_brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
}


class Nvml:
    """One GPU, by its UUID (`GPU-...`). A figure that this GPU or its driver does not tell reads 0."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self._origin = time.perf_counter()

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(self._handle, *arguments)
        except pynvml.NVMLError:
            return 0

    def sample(self) -> ClockSample:
        """The state now; takes well under a millisecond."""
        reasons = int(self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons))
        return ClockSample(
            seconds=time.perf_counter() - self._origin,
            sm_mhz=int(self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM)),
            memory_mhz=int(self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM)),
            celsius=int(self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)),
            throttled_by=" ".join(name for name, bit in _THROTTLING.items() if reasons & bit),
        )

    def highest_sm_mhz(self) -> int:
        """The highest clock that the multiprocessors of this GPU reach, in MHz."""
        return int(self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM))

    def highest_bytes_a_second(self) -> float:
        """The bytes a second that its memory can take at its highest clock, with two transfers a cycle."""
        width = self._ask(pynvml.nvmlDeviceGetMemoryBusWidth)
        return float(2e6 * self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_MEM) * width / 8)

    def memory_in_use(self) -> int:
        """Bytes in use by every process together."""
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        return int(memory.used) if memory else 0

    def driver_version(self) -> str:
        version = pynvml.nvmlSystemGetDriverVersion()
        return version if isinstance(version, str) else version.decode()

    def index(self) -> int:
        """The number of this GPU on the host."""
        return int(self._ask(pynvml.nvmlDeviceGetIndex))

    def other_gpus(self) -> tuple[str, ...]:
        """The device files of the host's other GPUs. A program that cannot open these starts sooner, too: on a host of
        four H200, `cuInit` of two programs at once took 325 ms, and 172 ms without (of eight: 996 and 435 ms). Empty if
        NVML does not say which file is this GPU's."""
        try:
            own = f"/dev/nvidia{pynvml.nvmlDeviceGetMinorNumber(self._handle)}"
        except pynvml.NVMLError:
            return ()
        files = gpu_files()
        return tuple(file for file in files if file != own) if own in files else ()

    def cores(self) -> set[int]:
        """The host's cores that are near the GPU; empty if NVML does not say."""
        words = self._ask(pynvml.nvmlDeviceGetCpuAffinity, 16) or ()
        return {64 * index + bit for index, word in enumerate(words) for bit in range(64) if word >> bit & 1}
