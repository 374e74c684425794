"""How much the time of the same small kernel differs between processes on one GPU, and which kernels differ together.

    python -m benchmarks.process_offsets [--processes 14]

Several forked processes time the same kernels, each time after emptying the cache. Prints for each kernel the mean over
the processes, the standard deviation between them, and its correlation with the kernel `relu`. Needs a GPU.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

_CALLS = 250


def _measure(kernel: Callable[[], Any], flush: torch.Tensor, events: Sequence[Any], stream: Any) -> float:
    """Microseconds of a call: the mean of the middle half of many calls."""
    seconds = []
    for call in range(_CALLS):
        begin, end = events[call % len(events)]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            flush.zero_()
            begin.record(stream)
            kernel()
            end.record(stream)
        torch.cuda.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e3)
    ordered = np.sort(seconds[5:])
    cut = len(ordered) // 4
    return float(np.mean(ordered[cut:-cut]))


def _kernels() -> dict[str, Callable[[], Any]]:
    places = [torch.randn(1 << 19, device="cuda")[:1024] for _ in range(4)]
    left, right = (torch.randn(64, 64, device="cuda") for _ in range(2))
    large = torch.randn(1 << 18, device="cuda")
    kernels: dict[str, Callable[[], Any]] = {"nothing": lambda: None, "spin": lambda: torch.cuda._sleep(1)}
    kernels["relu"] = lambda: torch.relu(places[0])
    for index, place in enumerate(places[1:], start=1):
        kernels[f"relu, place {index}"] = lambda place=place: torch.relu(place)  # type: ignore[misc]
    kernels["sigmoid"] = lambda: torch.sigmoid(places[0])
    kernels["exp"] = lambda: torch.exp(places[0])
    kernels["matmul 64"] = lambda: left @ right
    kernels["relu 1 MB"] = lambda: torch.relu(large)
    return kernels


def _one_process(core: int) -> dict[str, float]:
    os.sched_setaffinity(0, {core})
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(100)]
    default = torch.cuda.default_stream()
    times = {name: _measure(kernel, flush, pairs[:1], default) for name, kernel in _kernels().items()}
    relu = _kernels()["relu"]
    times["relu, many events"] = _measure(relu, flush, pairs, default)
    times["relu, another stream"] = _measure(relu, flush, pairs[:1], torch.cuda.Stream())
    return times


def main(
    processes: Annotated[int, typer.Option(help="How many processes, one after the other.")] = 14,
    out: Annotated[Path | None, typer.Option(help="JSON file for the microseconds.")] = None,
) -> None:
    """Prints how kernels differ between processes, and how these differences correlate."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # without it no forked child could use CUDA
    core = max(os.sched_getaffinity(0))
    rows = []
    for _ in range(processes):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, json.dumps(_one_process(core)).encode())
            os._exit(0)
        os.close(writing)
        with open(reading) as pipe:
            rows.append(json.loads(pipe.read()))
        os.wait()
    if out is not None:
        out.write_text(json.dumps(rows))
    reference = np.array([row["relu"] for row in rows])
    print(f"{'kernel':22s} mean us   sd ns   correlation with relu")
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        print(f"{name:22s} {values.mean():7.3f} {1e3 * values.std():7.1f} {np.corrcoef(reference, values)[0, 1]:7.2f}")


if __name__ == "__main__":
    typer.run(main)
