"""A trace tells the candidate's own kernels from others, and how long a call kept the GPU busy."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.guard.hidden_work import hidden_work
from evaluators.judge.witness import OwnKernels, busy_seconds, trace_of
from evaluators.records import Trace
from evaluators.shared.kernel_record import MARKS

CUDA = """
source = r'''
#include <torch/extension.h>
__device__ float twice(float x) { return 2 * x; }
__global__ void scaled_relu(const float* x, float* y, long n) {
    y[0] = twice(fmaxf(x[0], 0.f));
}
template <typename T, int N>
__global__ void __launch_bounds__(256, 2)
    reduced(T* x) { x[0] = T(N); }
static __global__ __launch_bounds__(128) void plain(float* x) { *x = 0; }
namespace inner { __global__ void nested(float* x) { *x = 1; } }
torch::Tensor forward(torch::Tensor x) { scaled_relu<<<1, 1>>>(nullptr, nullptr, 0); return x; }
'''
"""
TRITON = """
import triton
import triton.language as tl
from triton import jit

@triton.autotune(configs=[], key=["n"])
@triton.jit
def fused_kernel(x, n, BLOCK: tl.constexpr):
    pass

@jit
def short_form(x):
    pass

@triton.jit(do_not_specialize=["n"])
def with_options(x, n):
    pass

def launcher(x):
    fused_kernel[(1,)](x, 1, BLOCK=2)
"""


def is_own(name: str, source: str, compiled: bytes = b"") -> bool:
    return OwnKernels(source, compiled).hold(name)


@pytest.mark.parametrize(
    "name",
    [
        "_Z11scaled_reluPKfPfl",
        "scaled_relu",
        "_Z7reducedIfLi4EEvPT_",
        "_ZN5inner6nestedEPf",
        "void reduced<float, 4>(float*)",
        "_Z5plainPf",
    ],
)
def test_a_cuda_kernel_of_the_source_is_own(name) -> None:
    assert is_own(name, CUDA)
    assert not is_own(name, TRITON)


@pytest.mark.parametrize("name", ["fused_kernel", "short_form", "with_options"])
def test_a_triton_kernel_of_the_source_is_own(name) -> None:
    assert is_own(name, TRITON)
    assert not is_own(name, CUDA)


@pytest.mark.parametrize(
    "name",
    [
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
        "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 5>(float*, float const*)",
        "_ZN7cutlass6KernelI61cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4E18GemmXEEvNT_6ParamsE",
        "cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4",
        "ampere_sgemm_128x64_tn",
        "triton_poi_fused_x",
        "_Z5twicef",  # a device function, not a kernel
        "scaled",  # only the beginning of a kernel's name
        "relu",
        "forward",
        "",
        "(weird)",
        "[memset]",
    ],
)
def test_a_kernel_of_a_library_is_not_own(name) -> None:
    assert not is_own(name, CUDA)
    assert not is_own(name, TRITON)


def test_an_inductor_kernel_is_own_if_the_source_defines_it() -> None:
    written = "@triton.jit\ndef triton_poi_fused_x(in_ptr0, out_ptr0, xnumel):\n    pass\n"
    assert is_own("triton_poi_fused_x", written)
    assert not is_own("triton_poi_fused_x", "@torch.compile\ndef triton_poi_fused_x(x):\n    return x\n")


def test_a_kernel_that_the_candidate_compiled_is_own() -> None:
    generated = "_Z14generated_namePf"
    assert is_own(generated, "source = make()", b"\0\x7fELF" + generated.encode() + b"\0")
    assert not is_own(generated, "source = make()", b"\x7fELF")
    assert not is_own("ampere_sgemm_128x64_tn", "", b"ampere_sgemm_128x64_tn")


@pytest.mark.parametrize("compiled", [b"", b"_ZN12_GLOBAL__N_16hiddenEPf"])
def test_a_kernel_in_an_anonymous_namespace_is_own(compiled) -> None:
    source = "" if compiled else "namespace { __global__ void hidden(float* x) { *x = 1; } }"
    assert is_own("_ZN12_GLOBAL__N_16hiddenEPf", source, compiled)


@pytest.mark.parametrize("name", ["f", "x", "v"])
def test_a_kernel_with_a_short_name_is_own(name) -> None:
    assert is_own(name, f"@triton.jit\ndef {name}(pointer):\n    pass\n")


def test_a_library_kernel_is_not_own_because_of_a_name_in_the_source() -> None:
    source = "# __global__ void vectorized_elementwise_kernel(int n) {}"
    assert not is_own("_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi", source)


BOMB = "_Z1f1AIiiE" + "".join(f"S_IS{digit}_S{digit}_E" for digit in "0123456789ABCDEFGHIJKLMNOPQRSTUV")


@pytest.mark.parametrize("name", [BOMB, "_Z", "_ZN", "_Z9999f", "_ZN9999f", "_Z" + "9" * 5000, "_ZN1a" + "1a" * 10**6])
def test_a_name_that_grows_without_end_is_not_written_out(name) -> None:
    """A program can claim that kernels of any name ran."""
    assert not is_own(name, CUDA)
    trace = trace_of([(name, 7, 0.0, 1e-3)], CUDA, [])
    assert trace.kernels[0].name == name[:200]


# Traces


LIBRARY = "_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi"


def test_a_trace_tells_own_kernels_from_others() -> None:
    records = [
        ("_Z11scaled_reluPKfPfl", 7, 1.0, 1.003),
        (LIBRARY, 7, 1.003, 1.004),
        ("_Z11scaled_reluPKfPfl", 7, 1.004, 1.007),
        ("_Z11scaled_reluPKfPfl", 9, 1.008, 1.010),
    ]
    trace = trace_of(records, CUDA, [])
    assert trace is not None
    assert [(use.own, use.stream, use.calls) for use in trace.kernels] == [(True, 7, 2), (True, 9, 1), (False, 7, 1)]
    assert [use.seconds for use in trace.kernels] == pytest.approx([0.006, 0.002, 0.001])
    assert trace.kernels[0].name.startswith("scaled_relu(")
    assert trace.own_kernel_share == pytest.approx(8 / 9)
    assert trace.gpu_seconds == pytest.approx(0.009)
    assert trace.streams == 2


def test_a_kernel_of_a_compiled_extension_is_own_in_a_trace(tmp_path) -> None:
    library = tmp_path / "one.so"
    library.write_bytes(b"..._Z14generated_namePf...")
    records = [("_Z14generated_namePf", 7, 0.0, 1e-3)]
    assert trace_of(records, "", [library]).own_kernel_share == 1.0
    assert trace_of(records, "", []).own_kernel_share == 0.0


def test_a_call_without_kernels_has_an_empty_trace() -> None:
    assert trace_of([], CUDA, []) == Trace((), 0.0, 0.0, 0, 0.0)


def test_a_trace_keeps_the_longest_kernels_and_counts_all() -> None:
    records = [(f"kernel_{index}", index, float(index), index + 1e-3 * (index + 1)) for index in range(300)]
    trace = trace_of(records, "", [])
    assert len(trace.kernels) == 200
    assert trace.kernels[0].name == "kernel_299"
    assert all(one.seconds >= other.seconds for one, other in pairwise(trace.kernels))
    assert trace.streams == 300
    assert trace.gpu_seconds == pytest.approx(1e-3 * 300 * 301 / 2)


def test_a_long_name_is_cut() -> None:
    assert len(trace_of([("k" * 5000, 7, 0.0, 1.0)], "", []).kernels[0].name) == 200


spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda one: ("k", 7, float(one[0]), float(sum(one)))),
    max_size=20,
)


@given(spans)
def test_busy_seconds_are_those_in_which_any_kernel_ran(records) -> None:
    covered = {second for _, _, start, end in records for second in range(int(start), int(end))}
    assert busy_seconds(records) == len(covered)


ORDERED = [("[begin]", 7, 0.0, 100e-6), ("[end]", 7, 150e-6, 151e-6)]


@pytest.mark.parametrize(
    ("kernels", "outside"),
    [
        ([("k", 7, 100e-6, 150e-6)], 0.0),
        ([("k", 9, 40e-6, 90e-6)], 50e-6),
        ([("k", 9, 80e-6, 120e-6)], 20e-6),
        ([("k", 9, 140e-6, 170e-6)], 20e-6),
        ([("k", 9, 151e-6, 170e-6), ("l", 13, 160e-6, 180e-6)], 29e-6),
        ([("k", 9, 0.0, 200e-6)], 150e-6),
    ],
)
def test_kernels_outside_of_a_calls_time_are_counted(kernels, outside) -> None:
    trace = trace_of([*ORDERED, *kernels], "", [])
    assert trace.outside_seconds == pytest.approx(outside)
    assert {use.name for use in trace.kernels} <= {"k", "l"}
    finding = hidden_work(trace, 1.0)
    assert (finding is not None) == (outside > 0)
    if finding:
        assert (finding.kind, finding.severity) == ("hidden_work", "suspect")
        assert f"{1e6 * outside:.0f} µs before" in finding.message


def test_without_its_marks_all_of_a_trace_is_outside() -> None:
    trace = trace_of([ORDERED[0], ("k", 7, 100e-6, 150e-6)], "", [])
    assert trace.outside_seconds == pytest.approx(50e-6)


def test_a_call_that_kept_the_gpu_busy_for_longer_than_it_took_hid_work() -> None:
    finding = hidden_work(Trace((), 300e-6, 1.0, 2), 100e-6)
    assert finding is not None
    assert (finding.kind, finding.severity) == ("hidden_work", "suspect")
    assert "300 µs" in finding.message
    assert "100 µs" in finding.message
    for busy, call in ((100e-6, 100e-6), (110e-6, 100e-6), (6e-6, 2e-6), (0.0, 100e-6), (50e-6, 100e-6)):
        assert hidden_work(Trace((), busy, 1.0, 1), call) is None


def test_copies_of_outputs_behind_a_call_are_listed_and_take_none_of_its_time() -> None:
    """A program that returns its input runs no kernel, and the runner copies its output."""
    marks = [(MARKS[0], 7, 0.0, 1e-6), (MARKS[1], 7, 2e-6, 3e-6)]
    trace = trace_of([*marks, ("[memory copy]", 7, 4e-6, 34e-6)], "", [])
    assert [kernel.name for kernel in trace.kernels] == ["[memory copy]"]
    assert (trace.gpu_seconds, trace.outside_seconds) == (0.0, 0.0)
    elsewhere = trace_of([*marks, ("work", 8, 4e-6, 34e-6)], "", [])
    assert elsewhere.outside_seconds == pytest.approx(30e-6), "work on another stream is no copy"
