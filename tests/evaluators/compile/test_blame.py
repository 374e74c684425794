"""An error that has nothing to do with torch is the program's own; any other may be one of the thin headers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evaluators.compile.blame import is_own_error
from evaluators.runner.compiling import compile_extension
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.toolchain import CompileError, Toolchain

HEADERS = Path(torch.__file__).parent / "include"
TOOLS = Toolchain("9.0")
CPP = "#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor x) {\n%s\n  return x;\n}\n"
CUDA = "#include <torch/types.h>\n__global__ void k(float* x, int n) {\n%s\n}\n"
BOUND = """#include <torch/extension.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
m.def("forward", torch::wrap_pybind_function(forward), "forward");
%s}
"""
TWICE = CPP + 2 * "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"
OWN = {
    "functions that are nowhere": (BOUND, ""),
    "two modules": (TWICE, ""),
    "two modules with functions": (TWICE.replace("{}", '{ m.def("f", &f); }'), ""),
    "the type of torch 1": (CPP, '  AT_DISPATCH_FLOATING_TYPES(x.type(), "f", [&] {});'),
    "no semicolon": (CPP, "  int y = 1\n  int z = 2;"),
    "a name that nobody knows": (CPP, "  int y = oops_nowhere;"),
    "no closing bracket": (CPP, "  int y = (1 + 2;"),
    "no semicolon in a kernel": (CUDA, "  int i = threadIdx.x\n  x[i] = 0;"),
    "a variable twice": (CPP, "  int y = 1; float y = 2;"),
    "shared memory of two types": (
        CUDA,
        "  } template <class T> __global__ void g(T* x) { extern __shared__ T s[]; x[0] = s[0]; } "
        "void h() { g<float><<<1, 1>>>(nullptr); g<double><<<1, 1>>>(nullptr);",
    ),
    "a function of the host in a kernel": (CUDA, "  srand(1);"),
    "a kernel for the C++ compiler": (CPP, "  } __global__ void k(float* x) { x[threadIdx.x] = 0;"),
    "an index of CUDA's for the C++ compiler": (CPP, "  int y = blockIdx.x;"),
    "an unknown name in a kernel": (CUDA, "  x[index_nowhere] = 0;"),
}
PERHAPS_TORCHS = {
    "a method that only torch's headers have": (CPP, "  auto y = x.logcumsumexp(0);"),
    "a function of torch": (CPP, "  auto y = torch::logcumsumexp(x, 0);"),
    "a macro of torch's alone": (CPP, '  C10_LOG_API_USAGE_ONCE("a");'),
    "a name of torch's without a prefix": (CUDA, "  CUDA_KERNEL_LOOP(i, n) { x[i] = 0; }"),
    "an error beside one of its own": (CPP, "  int y = oops_nowhere; auto z = x.logcumsumexp(0);"),
    "a wrong type": (CPP, "  int y = x;"),
    "a use of the type of torch 1 that stays": (CPP, "  auto y = x.type().toString();"),
}


def complaint(tmp_path: Path, template: str, line: str) -> str:
    name = "cuda.cu" if template is CUDA else "main.cpp"
    request = ExtensionRequest("a", ((name, template % line),))
    with pytest.raises(CompileError) as error:
        compile_extension(request, TOOLS, tmp_path, thin=True)
    return str(error.value)


def cases(named: dict[str, tuple[str, str]]) -> list[object]:
    needs = pytest.mark.skipif(not TOOLS.nvcc, reason="needs nvcc")
    return [pytest.param(*case, id=name, marks=[needs] if case[0] is CUDA else []) for name, case in named.items()]


@pytest.mark.parametrize(("template", "line"), cases(OWN))
def test_an_error_of_the_program_alone(tmp_path, template, line) -> None:
    assert is_own_error(complaint(tmp_path, template, line), HEADERS)


@pytest.mark.parametrize(("template", "line"), cases(PERHAPS_TORCHS))
def test_an_error_that_torchs_headers_may_not_have(tmp_path, template, line) -> None:
    assert not is_own_error(complaint(tmp_path, template, line), HEADERS)


@pytest.mark.slow
def test_a_name_from_headers_that_torchs_include_is_known(tmp_path) -> None:
    """No file of torch's contains this name of Python's, but torch's headers include the header that does."""
    output = complaint(tmp_path, CPP, "  PyDict_MergeFromSeq2(nullptr, nullptr, 0);")
    assert is_own_error(output, HEADERS)
    assert not is_own_error(output, HEADERS, lambda: TOOLS.torch_words)
    assert "LLONG_MIN" in TOOLS.torch_words
    assert is_own_error(complaint(tmp_path, CPP, "  int y = oops_nowhere;"), HEADERS, lambda: TOOLS.torch_words)


@pytest.mark.parametrize("output", ["", "c++: internal compiler error", "main.o: undefined reference to `f()'"])
def test_a_message_without_a_line_is_not_the_programs_own(output) -> None:
    assert not is_own_error(output, HEADERS)
