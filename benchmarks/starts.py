"""What the start and the end of a judgement's processes on a GPU consist of.

    python -m benchmarks.starts [--repeats 10] [--out FILE.json]

The first table has milliseconds from the fork of contained processes to their answer that they hold the device: of one
or of two side by side, with or without the libraries that many programs use, and while the two before end; and of that
end itself, also of processes that held memory. The second has the steps of a start within a process that is not
contained: of one, and of the slower one of two side by side. The third has the first two of these steps of plain
processes that start side by side on all GPUs of the host in turns: with all GPUs to be seen, with their own alone by
CUDA_VISIBLE_DEVICES, and with the device files of the others hidden, as a contained process has it. Needs a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from cuda.bindings import driver

from benchmarks.tables import print_table
from configs.schema import LimitsConfig
from evaluators.compile.run_settings import runner_limits
from evaluators.host.device import Device, Slot
from evaluators.host.nvml import Nvml
from evaluators.host.open_device import open_device
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.runner.cuda import CudaRunner

_TIMEOUT = 60.0
_Milliseconds = dict[str, list[float]]


class _Processes:
    """Starts and ends contained processes on a device."""

    def __init__(self, device: Device, slot: Slot) -> None:
        self._device, self._slot = device, slot
        self._zygote = ZygoteHandle(device)

    def fork(self, number: int) -> list[RunnerHandle]:
        limits = runner_limits(LimitsConfig())
        return [RunnerHandle(self._zygote, self._device, self._slot, side, limits) for side in range(number)]

    def start(self, runners: Sequence[RunnerHandle], *, loads_libraries: bool) -> None:
        for runner in runners:
            runner.begin_start(loads_libraries=loads_libraries)
        for runner in runners:
            runner.end_start(_TIMEOUT)

    def close(self) -> None:
        self._zygote.close()


def _end(runners: Sequence[RunnerHandle]) -> None:
    for runner in runners:
        runner.process.kill()
    for runner in runners:
        runner.end()


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    value = call()
    return value, 1e3 * (time.perf_counter() - start)


def measure_processes(device: Device, repeats: int) -> _Milliseconds:
    """Milliseconds of starts and ends of contained processes, by case."""
    found: _Milliseconds = {}
    processes = _Processes(device, device.acquire(_TIMEOUT))
    try:
        _end(processes.fork(1))  # starts the zygote
        for _ in range(repeats):
            for number, libraries in ((1, False), (1, True), (2, False), (2, True)):
                case = f"{number} process{'es' * (number > 1)}{', libraries too' * libraries}"
                runners, forked = _timed(lambda number=number: processes.fork(number))
                _, started = _timed(lambda: processes.start(runners, loads_libraries=libraries))  # noqa: B023
                found.setdefault(f"{case}: fork", []).append(forked)
                found.setdefault(f"{case}: start", []).append(started)
                _, ended = _timed(lambda: _end(runners))  # noqa: B023
                found.setdefault(f"{case}: end", []).append(ended)
            before = processes.fork(2)
            processes.start(before, loads_libraries=True)

            def turn(before: list[RunnerHandle] = before) -> list[RunnerHandle]:
                for runner in before:
                    runner.process.kill()
                after = processes.fork(2)
                for runner in after:
                    runner.begin_start(loads_libraries=True)
                for runner in before:
                    runner.end()
                for runner in after:
                    runner.end_start(_TIMEOUT)
                return after

            after, milliseconds = _timed(turn)
            found.setdefault("2 processes, libraries too, as 2 others end", []).append(milliseconds)
            _end(after)
    finally:
        processes.close()
        device.release()
    return found


def _steps() -> Iterator[tuple[str, Callable[[], Any]]]:
    """The steps of a start, in a process that has imported torch and has no context."""
    yield "cuInit", lambda: driver.cuInit(0)
    yield "context", lambda: driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    yield "torch.cuda.init", torch.cuda.init
    yield "first tensor", lambda: torch.zeros(1, device="cuda")
    runner = CudaRunner(1, 64 << 20)
    yield "the rest of start", runner.start
    rows = torch.zeros(64, 64, device="cuda")
    images, filters = (torch.zeros(size, 16, 16, 16, device="cuda") for size in (2, 16))
    yield "first product", lambda: (rows @ rows).sum().item()
    yield "first convolution", lambda: torch.nn.functional.conv2d(images, filters, padding=8).sum().item()
    yield "the rest of the libraries", runner.load_libraries
    yield "the same again", runner.load_libraries


def _profile(pipe: int) -> None:
    with os.fdopen(pipe, "w") as file:
        json.dump({name: _timed(step)[1] for name, step in _steps()}, file)


def profile_starts(repeats: int, number: int) -> _Milliseconds:
    """Milliseconds of each step of a start, of the slowest of `number` processes side by side."""
    found: _Milliseconds = {}
    for _ in range(repeats):
        pipes, children = [], []
        for _ in range(number):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.close(reading)
                    _profile(writing)
                finally:
                    os._exit(0)
            os.close(writing)
            pipes.append(reading)
            children.append(child)
        steps = [json.loads(Path(f"/dev/fd/{pipe}").read_text()) for pipe in pipes]
        for pipe, child in zip(pipes, children, strict=True):
            os.close(pipe)
            os.waitpid(child, 0)
        for name in steps[0]:
            found.setdefault(name, []).append(max(one[name] for one in steps))
    return found


_CONTEXT = """
import ctypes, time
driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
begin = time.perf_counter()
assert driver.cuInit(0) == 0
between = time.perf_counter()
assert driver.cuDeviceGet(ctypes.byref(device), 0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
print(1e3 * (between - begin), 1e3 * (time.perf_counter() - between))
"""
_WITHOUT_FILES = 'for file; do mount --bind /dev/null "$file" || exit; done; exec "$PYTHON" -c "$PROGRAM"'
_SEEN = {"all GPUs": (False, False), "its own alone": (True, False), "its own file alone": (True, True)}


def measure_beside(repeats: int, number: int, *, only_own: bool, hides: bool) -> _Milliseconds:
    """Milliseconds of `cuInit` and of a context, of each of so many processes that start side by side."""
    gpus = [
        Nvml(f"GPU-{torch.cuda.get_device_properties(ordinal).uuid}") for ordinal in range(torch.cuda.device_count())
    ]
    found: _Milliseconds = {"cuInit": [], "context": []}
    for _ in range(repeats):
        children = []
        for place in range(number):
            gpu = gpus[place % len(gpus)]
            environment = {**os.environ, "PYTHON": sys.executable, "PROGRAM": _CONTEXT}
            environment |= {"CUDA_VISIBLE_DEVICES": gpu.uuid} if only_own else {}
            hidden = gpu.other_gpus() if hides else ()
            words = [*(("unshare", "--mount") if hidden else ()), "sh", "-c", _WITHOUT_FILES, "sh", *hidden]
            children.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
        for child in children:
            for name, milliseconds in zip(found, child.communicate()[0].split(), strict=True):
                found[name].append(float(milliseconds))
    return found


def _rows(found: _Milliseconds) -> list[list[str]]:
    return [[name, f"{median(values):.0f}", f"{max(values):.0f}"] for name, values in found.items()]


def main(
    repeats: Annotated[int, typer.Option(help="Starts of each case.")] = 10,
    out: Annotated[Path | None, typer.Option(help="JSON file for all figures.")] = None,
) -> None:
    """Prints what starts and ends of processes on a GPU take."""
    profiles = {number: profile_starts(repeats, number) for number in (1, 2)}  # before this process has a context
    device = open_device("auto")
    device.warm_up()
    found = measure_processes(device, repeats)
    print_table("Contained processes, ms", ["what", "median", "most"], _rows(found))
    for number, profile in profiles.items():
        print_table(f"Steps of a start, {number} at a time, ms", ["step", "median", "most"], _rows(profile))
    beside = {
        f"{number}, {seen}": measure_beside(repeats, number, only_own=only_own, hides=hides)
        for number in (1, 2, 4, 8)
        for seen, (only_own, hides) in _SEEN.items()
    }
    rows = [[name, *(f"{median(one[step]):.0f}" for step in ("cuInit", "context"))] for name, one in beside.items()]
    print_table("Processes side by side, each sees, ms", ["what", "cuInit", "context"], rows)
    if out is not None:
        out.write_text(json.dumps({"processes": found, "profiles": profiles, "beside": beside}))


if __name__ == "__main__":
    typer.run(main)
