"""A CUDA GPU from inside a runner: shared memory mapped, caches emptied, one call timed by events.

Runs in the candidate's process (untrusted): its seconds and its kernels are claims. The functions that measure are
bound before the candidate is imported, and are C code of torch and the driver's own API: a candidate that replaces
`torch.cuda.synchronize` or `torch.cuda.Event` changes nothing here.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from cuda.bindings import driver
from torch import Tensor, nn
from torch.nn import functional

from evaluators.runner.tracer import Tracer
from evaluators.runner.turns import launches_before
from evaluators.shared.construct import construct
from evaluators.shared.cuda_memory import attach

_Event = torch._C._CudaEventBase  # there is no Python above it that could be replaced

_FLUSHES = 20  # take longer than a launch in a process that has just waited
_COVERING = 4  # take longer than some launches in a process that has just launched the same


class CudaRunner:
    """The runner's half of the first visible GPU (`RunnerDevice`). `start` makes a CUDA context, so only a runner may
    use it."""

    def __init__(self, threads: int, flush_bytes: int, memory_bytes: int = 0) -> None:
        """`memory_bytes` limits torch's allocator in this process; 0 leaves it alone."""
        self.threads = threads
        self._flush_bytes = flush_bytes
        self._memory_bytes = memory_bytes

    def start(self) -> None:
        torch.set_num_threads(self.threads)
        torch.cuda.init()
        if self._memory_bytes:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, self._memory_bytes / total))
        scratch = torch.empty(self._flush_bytes // 4, dtype=torch.int32, device="cuda")
        self._flush, self._launch = scratch.zero_, scratch[:1].zero_
        self._scratch = scratch.data_ptr()
        self._stream = torch.cuda.default_stream()
        self._begin, self._end = _Event(enable_timing=True), _Event(enable_timing=True)
        self._record, self._elapsed = _Event.record, _Event.elapsed_time
        self._wait, self._reset_persisting = driver.cuCtxSynchronize, driver.cuCtxResetPersistingL2Cache
        self._empty, self._device = torch.empty, torch.device("cuda")
        self._empty_cache = torch._C._cuda_emptyCache
        self._draw = random.Random(self._flush_bytes).randint
        self._success = driver.CUresult.CUDA_SUCCESS
        self._seeds = (torch.default_generator.manual_seed, torch.cuda.default_generators[0].manual_seed)
        self._set_flags = {
            "cudnn.allow_tf32": (torch._C._get_cudnn_allow_tf32, torch._C._set_cudnn_allow_tf32, False),
            "matmul.allow_tf32": (torch._C._get_cublas_allow_tf32, torch._C._set_cublas_allow_tf32, False),
            "matmul.allow_fp16_reduced_precision": (
                torch._C._get_cublas_allow_fp16_reduced_precision_reduction,
                torch._C._set_cublas_allow_fp16_reduced_precision_reduction,
                True,
            ),
            "matmul.allow_bf16_reduced_precision": (
                torch._C._get_cublas_allow_bf16_reduced_precision_reduction,
                torch._C._set_cublas_allow_bf16_reduced_precision_reduction,
                True,
            ),
        }
        self.enforce_flags()
        self.timed(lambda: None, ())

    def load_libraries(self) -> None:
        rows = torch.zeros(64, 64, device=self._device)
        images, filters = (torch.zeros(size, 16, 16, 16, device=self._device) for size in (2, 16))
        first_calls = (
            lambda: functional.linear(rows @ rows, rows, rows[0]),
            lambda: functional.conv2d(images, filters, padding=8),
            lambda: functional.layer_norm(functional.relu(rows), (64,)).softmax(-1).sum(),
            lambda: functional.max_pool2d(functional.group_norm(images, 4), 2),
        )
        # The first product takes longest, and the first convolution as long; side by side all take hardly longer.
        with ThreadPoolExecutor(len(first_calls)) as threads:
            for done in [threads.submit(call) for call in first_calls]:
                with contextlib.suppress(RuntimeError):  # a library may be missing, and no program may need it
                    done.result()
        self.finish()
        self.tidy()

    def flags(self) -> dict[str, str]:
        values = {}
        for name, (get, _, _) in self._set_flags.items():
            try:
                values[name] = str(get())
            except RuntimeError:  # torch refuses if its two ways of setting TF32 have been mixed
                values[name] = "mixed"
        return values

    def enforce_flags(self) -> None:
        for _, set_flag, value in self._set_flags.values():
            with contextlib.suppress(RuntimeError):
                set_flag(value)

    def map(self, descriptor: int, size: int) -> Tensor:
        return attach(descriptor, size, 0)

    def construct(self, make: Callable[[], nn.Module], seed: int, on_host: bool) -> nn.Module:
        return construct(make, torch.device("cuda"), lambda: self.seed(seed), on_host)

    def seed(self, seed: int) -> None:
        for set_seed in self._seeds:
            set_seed(seed)

    def timed(
        self, model: Callable[..., Any], inputs: Sequence[Any], *, place: int = 0, is_alone: bool = False
    ) -> tuple[Any, float]:
        spacers = [self._empty(size, dtype=torch.uint8, device=self._device) for size in self._random_sizes()]
        self._reset_persisting()
        self.finish()
        for _ in range(launches_before(place)):
            self._launch()
        for _ in range(_FLUSHES if is_alone else _COVERING):  # a process that has just waited takes longer to launch
            self._flush()  # still runs when the call's first kernel is launched, so that the launch takes no time
        self._record(self._begin, self._stream)
        output = model(*inputs)
        self._record(self._end, self._stream)
        self.finish()
        spacers.clear()
        return output, self._elapsed(self._begin, self._end) * 1e-3

    def tidy(self) -> None:
        self._empty_cache()

    def _random_sizes(self) -> tuple[int, int]:
        """Bytes to allocate before a call, in the small and the large pool of torch's allocator. How fast a small
        kernel writes depends on where its output lies, so the place differs from call to call, on both sides alike.
        (The idea is Stabilizer's: Curtsinger and Berger, ASPLOS 2013.)"""
        return 512 * self._draw(1, 1024), (2 << 20) * self._draw(1, 8)

    def tracer(self) -> Tracer | None:
        try:
            return Tracer(self._scratch)
        except ImportError:
            return None

    def finish(self) -> None:
        (status,) = self._wait()
        if status != self._success:
            raise RuntimeError(f"CUDA error: {status.name}")
