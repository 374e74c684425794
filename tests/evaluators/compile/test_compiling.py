"""An extension compiled with the thin headers behaves as one compiled with torch's own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from evaluators.runner.compiling import compile_extension
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.toolchain import CompileError, Toolchain

SOURCE = Path(__file__).with_name("compared.cpp").read_text()
REQUEST = ExtensionRequest("compared", (("main.cpp", SOURCE),))
TOOLS = Toolchain()


def imported(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def glue(compiled) -> ModuleType:
    return imported("warpsmith_glue", compiled["glue"])


@pytest.fixture(scope="module")
def thin(compiled, glue) -> Any:
    return glue.load(str(compiled["thin"]), REQUEST.module)


@pytest.fixture(scope="module")
def torchs(compiled) -> Any:
    return imported(REQUEST.module, compiled["torch"])


PROBE = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location(sys.argv[2], sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
try:
    module.scale(torch.tensor(1.0), 2.0, True, 3)
except RuntimeError as error:
    print(str(error).splitlines()[0], module.about(torch.ones(2), "")[:3])
"""


@pytest.fixture(scope="module")
def streams_work(compiled) -> bool:
    """Whether torch's own build can write numbers here. If the compiler links a C++ library of its own into it, it
    loses them or crashes."""
    command = [sys.executable, "-c", PROBE, str(compiled["torch"]), REQUEST.module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout == "x must have a dimension, has 0 [2]\n"


X = torch.randn(4, 6)
CALLS = {
    "a transposed tensor": ("scale", X.t(), 2.0, True, 3),
    "float64": ("scale", X.double(), 0.5, False, -1),
    "an int for a float": ("scale", X, 2, True, 3),
    "a type that is not dispatched": ("scale", X.int(), 2.0, True, 3),
    "a failing check": ("scale", torch.tensor(1.0), 2.0, True, 3),
    "too few arguments": ("scale", X, 2.0),
    "a str for a tensor": ("scale", "x", 2.0, True, 3),
    "a float for an int": ("scale", X, 2.0, True, 3.5),
    "a tensor for a float": ("scale", X, X, True, 3),
    "an int that is too large": ("half", 1 << 40),
    "an int that no type holds": ("half", 1 << 70),
    "strides that are a permutation": ("like", torch.randn(2, 3, 4, 5).permute(0, 2, 3, 1)),
    "a permutation with sizes of 1": ("like", torch.randn(1, 3, 1, 5).permute(3, 2, 0, 1)),
    "an empty tensor": ("like", torch.empty(0, 3)),
    "None for a tensor": ("like", None),
    "sizes from a list": ("made", [2, 3], X),
    "sizes from a tuple": ("made", (2, 3), X),
    "a negative size": ("made", [2, -3], X),
    "a str among the sizes": ("made", [2, "3"], X),
    "an optional": ("pair", X, X + 1),
    "an optional that is None": ("pair", X, None),
    "what a tensor says of itself": ("about", X.t(), "x"),
    "what a scalar tensor says": ("about", torch.tensor([3], dtype=torch.int16), "x"),
    "a dimension out of range": ("last", X),
    "the wrong type of data": ("wrong_type", X),
}


def outcome(module: Any, name: str, *arguments: Any) -> Any:
    try:
        return getattr(module, name)(*arguments)
    except Exception as error:  # noqa: BLE001  (whatever it is, both must raise it)
        return type(error), str(error).splitlines()[0]


def form(tensor: torch.Tensor) -> Any:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.device


def same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        alike = isinstance(second, torch.Tensor) and form(first) == form(second)
        return alike and torch.allclose(first, second, rtol=0.0, atol=0.0, equal_nan=True)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


@pytest.mark.slow
@pytest.mark.parametrize("case", CALLS)
def test_a_call_gives_what_torchs_own_gives(thin, torchs, streams_work, case) -> None:
    if not streams_work and CALLS[case][0] == "about":
        pytest.skip("the program itself writes to a stream")
    ours = outcome(thin, *CALLS[case])
    if not streams_work and isinstance(ours, tuple):
        pytest.skip("torch's own build crashes here when it raises")
    theirs = outcome(torchs, *CALLS[case])
    if isinstance(theirs, tuple) and theirs[0] is TypeError:  # pybind11 lists the signatures, we name the argument
        assert ours[0] is TypeError
        assert "incompatible function arguments" in ours[1]
    else:
        assert same(ours, theirs), (ours, theirs)


OPERATORS = re.findall(r'if \(name == "([\w ]+)"\)', SOURCE)


def expressions(module: Any) -> list[tuple[str, int]]:
    """The names of the groups of operators in compared.cpp, and the places in each group."""
    places = [(name, index) for name in OPERATORS for index in range(module.count(name, X))]
    assert len(places) > 100
    return places


PAIRS = {
    "float32": (X, torch.randn(4, 6)),
    "float64": (X.double(), torch.randn(4, 6).double()),
    "float16": (X.half(), torch.randn(4, 6).half()),
    "int64": (torch.randint(-5, 5, (4, 6)), torch.randint(1, 5, (4, 6))),
    "int32 and int16": (torch.randint(-5, 5, (4, 6)).int(), torch.randint(1, 5, (4, 6)).short()),
    "bool": (X > 0, torch.randn(4, 6) > 0),
    "float32 and int64": (X, torch.randint(1, 5, (4, 6))),
    "int64 and float32": (torch.randint(1, 5, (4, 6)), X),
    "no dimensions": (torch.tensor(0.7), torch.tensor(0.3)),
    "float16 and float32 without dimensions": (torch.tensor(0.7).half(), torch.tensor(0.3)),
    "int32 and int64 without dimensions": (torch.tensor(3, dtype=torch.int32), torch.tensor(4)),
    "broadcast": (X, torch.randn(6)),
    "broadcast int64": (torch.randint(0, 5, (4, 6)), torch.randint(0, 5, (4, 1))),
    "shapes that do not go together": (X, torch.randn(5, 5)),
    "strides": (torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2]),
    "empty": (torch.empty(0, 6), torch.empty(0, 6)),
    "not finite": (torch.tensor([[float("nan"), 1, -float("inf")]]), torch.tensor([[0.0, float("nan"), 2.0]])),
}


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_operators_give_what_torchs_own_give(thin, torchs, streams_work, device, pair) -> None:
    x, y = (one.to(device) for one in PAIRS[pair])
    for name, index in expressions(thin):
        if name == "accessor" and (device == "cuda" or y.shape != x.shape):  # in the host's memory, without a check
            continue
        if name == "blob" and device == "cuda":  # for a GPU torch's own headers have it
            continue
        ours = outcome(thin, "operate", name, index, x.clone(), y.clone())
        if not streams_work and isinstance(ours, tuple):
            continue  # torch's own build crashes here when it raises
        theirs = outcome(torchs, "operate", name, index, x.clone(), y.clone())
        if device == "cuda" and isinstance(theirs, tuple):  # torch before 2.12 keeps the text to itself
            assert isinstance(ours, tuple), (name, index)
        elif isinstance(theirs, tuple) and name in ("conv", "join"):  # one of another way in names them otherwise
            assert ours[0] is theirs[0], (name, index)
        else:
            assert same(ours, theirs), (name, index, ours, theirs)


@pytest.mark.slow
def test_gradients_are_recorded_but_under_a_guard(thin, torchs) -> None:
    x = torch.ones(2, requires_grad=True)
    for module in (thin, torchs):
        assert [module.operate("gradients", index, x, x).requires_grad for index in range(3)] == [True, False, True]


@pytest.mark.slow
def test_a_function_changes_its_argument_in_place(thin) -> None:
    x = torch.ones(3)
    assert thin.fill(x) is None
    assert torch.equal(x, torch.zeros(3))


BESIDE = """
import importlib.util, os, sys
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
import torch
sys.setdlopenflags(os.RTLD_NOW)
spec = importlib.util.spec_from_file_location("warpsmith_glue", sys.argv[1])
glue = importlib.util.module_from_spec(spec)
spec.loader.exec_module(glue)
module, x = glue.load(sys.argv[2], sys.argv[3]), torch.ones(2, 3)
try:
    module.scale(torch.tensor(1.0), 2.0, True, 3)
except RuntimeError as error:
    print(error)
print(module.scale(x, 2.0, True, 3).sum().item(), len(module.pair(x, None)), module.about(x, "a")[:4])
x = torch.ones(4, 6)
assigned = module.operate("assign", 3, x, x)
print(module.operate("add", 0, x, x).sum().item(), assigned[0, 0].item(), module.count("shape", x))
"""


@pytest.mark.slow
def test_torchs_libraries_in_the_global_scope_do_not_mix_with_the_thin_headers(compiled) -> None:
    """They define classes and functions of the same names."""
    command = [sys.executable, "-c", BESIDE, str(compiled["glue"]), str(compiled["thin"]), REQUEST.module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    raised, *results = done.stdout.splitlines()
    assert raised == "x must have a dimension, has 0", done.stderr[-500:]
    assert results == ["42.0 2 a[2,", "48.0 2.5 15"], done.stderr[-500:]


@pytest.mark.slow
def test_messages_are_whole_if_the_compiler_links_a_cxx_library_of_its_own(tmp_path, glue) -> None:
    """Some compilers are set up so. Torch's own headers then lose the numbers, or crash."""
    source = """#include <torch/extension.h>
void f(torch::Tensor x) {
  TORCH_CHECK(false, "dim ", x.dim(), ' ', 0.5, " ", 1e-9, " ", x.sizes(), x.dtype(), x.scalar_type(), x.device(),
              std::string("."));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }
"""
    request = ExtensionRequest("static", (("main.cpp", source),), ldflags=("-static-libstdc++", "-static-libgcc"))
    module = glue.load(str(compile_extension(request, TOOLS, tmp_path, thin=True)), request.module)
    with pytest.raises(RuntimeError, match=r"dim 2 0\.5 1e-09 \[2, 3\]floatFloatcpu\."):
        module.f(torch.ones(2, 3))


THREADS = """#include <torch/extension.h>
#include <ATen/Parallel.h>
torch::Tensor f(torch::Tensor x, int64_t bad) {
  at::parallel_for(0, x.numel(), 10, [&](int64_t from, int64_t to) {
    TORCH_CHECK_INDEX(bad < from || bad >= to, "in a thread: ", bad);
    for (int64_t i = from; i < to; ++i) x.data_ptr<int64_t>()[i] += 1 + at::get_thread_num();
  });
  return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }
"""


@pytest.mark.slow
def test_a_loop_over_threads_visits_each_index_once(tmp_path, glue) -> None:
    """Each of torch's threads has a share of the indices; an exception of any thread is raised."""
    request = ExtensionRequest("threads", (("main.cpp", THREADS),), cflags=("-fopenmp",), ldflags=("-fopenmp",))
    module = glue.load(str(compile_extension(request, TOOLS, tmp_path, thin=True)), request.module)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert module.f(torch.zeros(100, dtype=torch.int64), -1).tolist() == [1] * 50 + [2] * 50
        with pytest.raises(IndexError, match="in a thread: 70"):
            module.f(torch.zeros(100, dtype=torch.int64), 70)
        torch.set_num_threads(1)
        assert module.f(torch.zeros(100, dtype=torch.int64), -1).tolist() == [1] * 100
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_calls_leave_no_tensor_behind(thin) -> None:
    x = torch.ones(3)
    before = sys.getrefcount(x)
    for _ in range(50):
        thin.pair(x, x)
        thin.like(x)
        outcome(thin, "scale", x, "y", True, 3)
        outcome(thin, "wrong_type", x)
    square, held = torch.ones(4, 6), []
    for _ in range(3):
        for name, index in expressions(thin):
            outcome(thin, "operate", name, index, square, square)
        held.append((square._use_count(), torch._C._storage_Use_Count(square.untyped_storage()._cdata)))
    assert held[0] == held[1] == held[2]
    assert sys.getrefcount(x) == before
    assert thin.pair(x, x)[0].data_ptr() == x.data_ptr()


@pytest.mark.slow
def test_a_module_of_another_name_cannot_be_imported(tmp_path, glue) -> None:
    source = SOURCE.replace("PYBIND11_MODULE(TORCH_EXTENSION_NAME", "PYBIND11_MODULE(another")
    library = compile_extension(ExtensionRequest("this", (("main.cpp", source),)), TOOLS, tmp_path, thin=True)
    with pytest.raises(ImportError, match="PyInit_extension"):
        glue.load(str(library), "extension")


def test_the_compilers_complaint_is_raised(tmp_path) -> None:
    request = ExtensionRequest("broken", (("main.cpp", "#include <torch/extension.h>\nint f() { return oops; }\n"),))
    with pytest.raises(CompileError, match="oops"):
        compile_extension(request, TOOLS, tmp_path, thin=True)


def test_a_call_that_torch_has_removed_does_not_compile(tmp_path) -> None:
    """`tensor.type()` in place of a scalar type is from torch 1. Torch's own headers refuse it, too."""
    source = """#include <torch/extension.h>
void f(torch::Tensor x) { AT_DISPATCH_FLOATING_TYPES(x.type(), "f", ([&] { (void)sizeof(scalar_t); })); }
"""
    with pytest.raises(CompileError, match="DeprecatedTypeProperties"):
        compile_extension(ExtensionRequest("old", (("main.cpp", source),)), TOOLS, tmp_path, thin=True)


CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
template <typename scalar_t> __global__ void relu(const scalar_t* x, scalar_t* y, int64_t n) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] > scalar_t(0) ? x[i] : scalar_t(0);
}
torch::Tensor apply(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous());
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "relu", [&] {
    relu<scalar_t><<<(x.numel() + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""
DECLARED = """#include <torch/extension.h>
torch::Tensor apply(torch::Tensor x);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("apply", torch::wrap_pybind_function(apply), "apply"); }
"""


@pytest.mark.slow
@pytest.mark.skipif(not TOOLS.nvcc, reason="needs nvcc")
def test_host_and_device_code_become_one_library(tmp_path) -> None:
    request = ExtensionRequest("relu", (("main.cpp", DECLARED), ("cuda.cu", CUDA)), cuda_cflags=("-O3",))
    library = compile_extension(request, Toolchain(capability="9.0"), tmp_path, thin=True)
    assert f"warpsmith_module_{request.module}".encode() in library.read_bytes()
    assert b".nv_fatbin" in library.read_bytes()


def test_a_function_that_this_torch_lacks_is_a_compile_error(tmp_path) -> None:
    source = (
        '#include <torch/extension.h>\nextern "C" int aoti_torch_nothing();\nint f() { return aoti_torch_nothing(); }\n'
    )
    with pytest.raises(CompileError, match="aoti_torch_nothing"):
        compile_extension(ExtensionRequest("a", (("main.cpp", source),)), TOOLS, tmp_path, thin=True)


def test_compiling_ends_at_its_time_limit(tmp_path) -> None:
    with pytest.raises(TimeoutError):
        compile_extension(REQUEST, TOOLS, tmp_path, thin=False, seconds=0.5)


def test_a_digest_changes_with_anything_that_a_compiler_sees() -> None:
    plain = ExtensionRequest("a", (("main.cpp", "int x;"),))
    others = [
        ExtensionRequest("a", (("main.cpp", "int y;"),)),
        ExtensionRequest("a", (("main.cu", "int x;"),)),
        ExtensionRequest("a", (("main.cpp", "int x;"), ("cuda.cu", ""))),
        ExtensionRequest("a", (("main.cpp", "int x;"),), cflags=("-O3",)),
        ExtensionRequest("a", (("main.cpp", "int x;"),), cuda_cflags=("-O3",)),
        ExtensionRequest("a", (("main.cpp", "int x;"),), ldflags=("-lm",)),
        ExtensionRequest("x", (("main.cpp", "int x;"),)),  # the name becomes part of the source
    ]
    digests = {request.digest("tools") for request in (plain, *others)} | {plain.digest("others")}
    assert len(digests) == len(others) + 2
    assert ExtensionRequest("b", plain.sources).digest("tools") == plain.digest("tools")
