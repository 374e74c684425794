"""A kernel of one thread that keeps a context awake until a gate opens (`evaluators.host.gate`).

It is translated once, by the judge, for the GPU at hand: every runner would take tens of milliseconds for that.
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MODULE.html
"""

from __future__ import annotations

import ctypes

from cuda.bindings import driver

from evaluators.shared.cuda_memory import checked

AWAKE_NAME = b"stay_awake"
"""The kernel's name. Its parameters: the address of a word (64 bits), the number that ends it once the word has it (32
bits), and after how many nanoseconds it ends anyway (64 bits)."""

_PTX = b"""
.version 7.0
.target sm_70
.address_size 64

.visible .entry stay_awake(.param .u64 word, .param .u32 ticket, .param .u64 most_ns)
{
    .reg .pred %is_open, %is_late;
    .reg .u32 %wanted, %seen;
    .reg .u64 %address, %begin, %now, %most;
    ld.param.u64 %address, [word];
    ld.param.u32 %wanted, [ticket];
    ld.param.u64 %most, [most_ns];
    mov.u64 %begin, %globaltimer;
LOOK:
    ld.volatile.global.u32 %seen, [%address];
    setp.eq.u32 %is_open, %seen, %wanted;
    @%is_open bra DONE;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.gt.u64 %is_late, %now, %most;
    @%is_late bra DONE;
    bra LOOK;
DONE:
    ret;
}
\0"""


def translate_awake() -> bytes:
    """The kernel's code for the GPU of the current context. Raises CudaMemoryError if the driver refuses."""
    state = checked(driver.cuLinkCreate(0, [], []))
    try:
        kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
        checked(driver.cuLinkAddData(state, kind, _PTX, len(_PTX), AWAKE_NAME, 0, [], []))
        status, address, size = driver.cuLinkComplete(state)
        checked((status,))
        return ctypes.string_at(int(address), int(size))
    finally:
        driver.cuLinkDestroy(state)
