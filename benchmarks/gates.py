"""What calls behind gates cost, how much they vary, and whether they agree with the runner's events.

    python -m benchmarks.gates [--pairs 3] [--out FILE.json]

For references of one kernel and of many, with and without a wait for the GPU in the call: microseconds of a call by the
runner's own clock, and behind its gate less what the shortest kernel takes there; what that kernel takes behind both
gates, with the middle half of its values; and milliseconds of the judge's work for a pair of processes. Needs a GPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from cuda.bindings import driver

from benchmarks.tables import print_table
from configs.schema import LimitsConfig
from evaluators.compile.run_settings import runner_limits
from evaluators.host.device import Device
from evaluators.host.open_device import open_device
from evaluators.host.runner_handle import RunnerHandle
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.judge.calibration import Calibration, calibrate
from evaluators.judge.pair import RunnerPair
from evaluators.records import Task
from evaluators.tasks import TaskProgram
from evaluators.timing.supported import TINY_SECONDS

_SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        {body}
        return x


def get_inputs():
    return [torch.randn({elements})]


def get_init_inputs():
    return []
"""
_CASES = {
    "one kernel, 4 KB": ("x = torch.relu(x)", 1 << 10),
    "one kernel, 64 MB": ("x = torch.relu(x)", 1 << 24),
    "50 kernels, 4 KB": ("for _ in range(50): x = torch.relu(x)", 1 << 10),
    "200 kernels, 4 KB": ("for _ in range(200): x = torch.relu(x)", 1 << 10),
    "12 kernels, 64 MB": ("for _ in range(12): x = torch.relu(x)", 1 << 24),
    "40 kernels, 256 MB": ("for _ in range(40): x = torch.relu(x)", 1 << 26),
    "a wait, 2 kernels": ("x = torch.relu(x); x = x + x.sum().item()", 1 << 10),
}
_TIMEOUT, _STOPS = 60.0, 50


@contextmanager
def _pair(device: Device, zygote: ZygoteHandle, task: Task) -> Iterator[RunnerPair]:
    """Two processes on the device, started."""
    slot = device.acquire(_TIMEOUT)
    runners = [RunnerHandle(zygote, device, slot, side, runner_limits(LimitsConfig())) for side in range(2)]
    try:
        for runner in runners:
            runner.begin_start()
        for runner in runners:
            runner.end_start(_TIMEOUT)
        yield RunnerPair(device, runners[0], runners[1], task.id)
    finally:
        for runner in runners:
            runner.close()
        device.release()


def _measure(device: Device, zygote: ZygoteHandle, case: str) -> dict[str, Any]:
    """One pair of processes: its calibration, and milliseconds of the judge's work for it."""
    body, elements = _CASES[case]
    task = Task("test/gates", 1, "gates", _SOURCE.format(body=body, elements=elements))
    program = TaskProgram(task, device.torch_device)
    example, seconds = program.inputs(1), {}
    spec = program.output_spec(1, program.init_inputs(1), example)
    with _pair(device, zygote, program.task) as pair:
        start = time.perf_counter()
        pair.bind(example, spec, _TIMEOUT)
        seconds["bind"] = time.perf_counter() - start
        start = time.perf_counter()
        pair.bind_gates(_TIMEOUT)
        seconds["bind gates"] = time.perf_counter() - start
        pair.runners[0].load(program.source, "Model", _TIMEOUT)
        device.warm_up()
        start = time.perf_counter()
        found = calibrate(pair, program, program.init_inputs(1), device, _TIMEOUT)
        seconds["calibrate"] = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(_STOPS):
            pair.run_tiny(_TIMEOUT)
        seconds["gated call"] = (time.perf_counter() - start) / _STOPS
        end = time.perf_counter()
    seconds["close"] = time.perf_counter() - end
    return {"case": case, **_figures(found), "milliseconds": {name: 1e3 * value for name, value in seconds.items()}}


def _figures(found: Calibration) -> dict[str, Any]:
    reference, candidate = (np.array(seconds) * 1e6 for seconds in found.tiny)
    own = 1e6 * median(found.reference)
    gated = np.array(found.behind_gate) * 1e6
    return {
        "own": own,
        "behind gate": float(np.median(gated) - np.median(reference)) + 1e6 * TINY_SECONDS,
        "gated spread": float(np.subtract(*np.quantile(gated, [0.75, 0.25]))),
        "shortest": [float(np.median(side)) for side in (reference, candidate)],
        "shortest spread": [float(np.subtract(*np.quantile(side, [0.75, 0.25]))) for side in (reference, candidate)],
    }


def _driver() -> None:
    """What resetting the lines of the L2 cache that persist costs, and whether the driver does it."""
    status = driver.cuCtxResetPersistingL2Cache()[0]
    start = time.perf_counter()
    for _ in range(100):
        driver.cuCtxResetPersistingL2Cache()
    print(f"cuCtxResetPersistingL2Cache: {status.name}, {(time.perf_counter() - start) * 1e4:.1f} us a call\n")


def main(
    pairs: Annotated[int, typer.Option(help="Pairs of processes for each reference.")] = 3,
    out: Annotated[Path | None, typer.Option(help="JSON file for all figures.")] = None,
) -> None:
    """Prints what calls behind gates cost and how much they vary."""
    device = open_device("auto")
    zygote = ZygoteHandle(device)
    try:
        rows = [_measure(device, zygote, case) for case in _CASES for _ in range(pairs)]
    finally:
        zygote.close()
    if out is not None:
        out.write_text(json.dumps(rows))
    _driver()
    print_table(
        "Calls behind gates, microseconds",
        ["reference", "own clock", "behind gate", "middle half", "shortest", "middle half"],
        [
            [
                row["case"],
                *(f"{row[name]:.1f}" for name in ("own", "behind gate", "gated spread")),
                *(" / ".join(f"{one:.1f}" for one in row[name]) for name in ("shortest", "shortest spread")),
            ]
            for row in rows
        ],
    )
    names = list(rows[0]["milliseconds"])
    print_table(
        "The judge's work for a pair of processes, milliseconds",
        ["reference", *names],
        [[row["case"], *(f"{row['milliseconds'][name]:.1f}" for name in names)] for row in rows],
    )


if __name__ == "__main__":
    typer.run(main)
