"""However a program asks for extensions, they are built away from its measurement, and it loads what was built."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.compile.farm import Extensions, _has_overloads
from evaluators.evaluator import Evaluator
from evaluators.failures import InfraError, Unbuilt
from evaluators.records import BuildError, Candidate, Outcome, Verdict
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.toolchain import CompileError
from tests.evaluators.sources import DOUBLE

HEADER = """
#pragma once
#include <torch/extension.h>
inline float twice(float x) { return 2 * x; }
"""
BODY = """
torch::Tensor doubled(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto out = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = twice(from[i]);
  return out;
}
"""
START = f"""
import torch
import torch.nn as nn
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load_inline
SOURCE = '''{HEADER.replace("#pragma once", "")}{BODY}'''
def build():
    return load_inline(name="doubling", cpp_sources=SOURCE, functions=["doubled"], extra_cflags=["-O2"])
"""
PROGRAMS = {
    "when imported": START
    + """
extension = build()
class ModelNew(nn.Module):
    def forward(self, x):
        return extension.doubled(x)
""",
    "in the constructor": START
    + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.extension = build()
    def forward(self, x):
        return self.extension.doubled(x)
""",
    "in forward": START
    + """
class ModelNew(nn.Module):
    extension = None
    def forward(self, x):
        self.extension = self.extension or build()
        return self.extension.doubled(x)
""",
    "in its second call": START
    + """
class ModelNew(nn.Module):
    extension, calls = None, 0
    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            return x + x
        self.extension = self.extension or build()
        return self.extension.doubled(x)
""",
    "twice, the second with a macro": START
    + """
extension = build()
another = load_inline(name="b", cpp_sources=SOURCE, functions=["doubled"], extra_cflags=["-O2", "-DANOTHER"])
class ModelNew(nn.Module):
    def forward(self, x):
        return another.doubled(extension.doubled(x) / 2)
""",
    "after one that does not compile": START
    + """
try:
    extension = load_inline(name="broken", cpp_sources="int f() { return oops; }", functions=["f"])
except RuntimeError as error:
    assert "oops" in str(error)
    extension = build()
class ModelNew(nn.Module):
    def forward(self, x):
        return extension.doubled(x)
""",
    "from files with a header": f"""
import os
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load
os.makedirs("sources/parts", exist_ok=True)
open("sources/parts/twice.h", "w").write('''{HEADER}''')
open("sources/doubled.cpp", "w").write('''
#include "parts/twice.h"
{BODY}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("doubled", &doubled); }}
''')
extension = load("from_files", ["sources/doubled.cpp"], extra_cflags=["-O2"])
class ModelNew(nn.Module):
    def forward(self, x):
        return extension.doubled(x)
""",
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(compiled) -> Path:
    """With the glue in it, which takes the longest to compile."""
    folder: Path = compiled["store"]
    return folder


@pytest.fixture(scope="module")
def evaluator(store, limits) -> Iterator[Evaluator]:
    with Evaluator(arch="cpu", limits=limits, store=store) as made:
        yield made


def records(store: Path) -> list[dict[str, str]]:
    return [json.loads(path.read_text()) for path in sorted((store / "extensions").glob("??/*/record.json"))]


def is_right(verdict: Verdict) -> bool:
    """Whether its outputs are right. A busy machine may make its times suspect, which is not tested here."""
    return verdict.outcome in (Outcome.OK, Outcome.SUSPECT) and verdict.correctness is not None


@pytest.mark.parametrize("case", PROGRAMS)
def test_a_program_gets_its_extension_however_it_builds(evaluator, store, case) -> None:
    verdict = evaluator.evaluate(DOUBLE, PROGRAMS[case])
    assert is_right(verdict), (verdict.message, verdict.guard)
    compiled = records(store)
    again = evaluator.evaluate(DOUBLE, PROGRAMS[case] + "\nx = 1\n")
    assert is_right(again), (again.message, again.guard)
    assert again.candidate != verdict.candidate
    assert records(store) == compiled, "the extension is loaded; nothing is compiled"


def test_the_thin_headers_served_them_all(evaluator, store) -> None:
    """The cache has an entry for the glue, for each extension, and for the one that does not compile."""
    evaluator.evaluate(DOUBLE, PROGRAMS["when imported"])
    headers = [record["headers"] for record in records(store) if not record["error"]]
    assert set(headers) == {"thin"}


def test_an_extension_that_is_not_built_is_named_to_the_caller(evaluator, store, limits) -> None:
    """The actors do so, so that a GPU does not wait for a compiler."""
    with Evaluator(arch="cpu", limits=limits, store=store, builds=False) as measuring:
        source = PROGRAMS["in forward"] + "\nx = 2\n"  # found without its device
        artifact = evaluator.builder.build(DOUBLE, Candidate.propose(DOUBLE.id, source, "test"))
        assert measuring.evaluate(DOUBLE, source, artifact=artifact).outcome in (Outcome.OK, Outcome.SUSPECT)
        source = PROGRAMS["in its second call"] + "\nx = 2\n"
        artifact = evaluator.builder.build(DOUBLE, Candidate.propose(DOUBLE.id, source, "test"))
        assert not isinstance(artifact, BuildError)
        with pytest.raises(Unbuilt) as missing:
            measuring.evaluate(DOUBLE, source, artifact=artifact)
        more = evaluator.builder.build(DOUBLE, Candidate.propose(DOUBLE.id, source, "test"), [missing.value.request])
        assert measuring.evaluate(DOUBLE, source, artifact=more).outcome in (Outcome.OK, Outcome.SUSPECT)


def test_a_program_that_asks_for_another_extension_each_time_is_given_up(evaluator) -> None:
    source = PROGRAMS["in forward"].replace("'''\n\n#include", "'''\n//%s\n#include", 1)
    source = source.replace("SOURCE = '''", "import os\nSOURCE = '// ' + os.urandom(8).hex() + '''")
    verdict = evaluator.evaluate(DOUBLE, source)
    assert verdict.outcome is Outcome.BUILD_ERROR, verdict.message
    assert "another extension" in verdict.message


def test_a_compiler_that_a_program_starts_is_refused(evaluator) -> None:
    source = """
import subprocess
import torch.nn as nn
subprocess.run(["g++", "--version"])
class ModelNew(nn.Module):
    def forward(self, x):
        return 2 * x
"""
    verdict = evaluator.evaluate(DOUBLE, source)
    assert verdict.outcome is Outcome.RUNTIME_ERROR, verdict.message
    assert "load_inline alone: g++ is refused" in verdict.message


REQUEST = ExtensionRequest("lost", (("main.cpp", "int lost;\n"),), ("-DSOME",))


@pytest.mark.parametrize("cause", ["ended by signal 9", "No space left on device"])
def test_a_lost_compiler_is_started_again_and_the_program_is_not_blamed(evaluator, monkeypatch, caplog, cause) -> None:
    farm = evaluator.builder.farm
    real, lost = farm._ask, [1]

    def ask(request, folder, *, thin):
        if lost[0]:
            lost[0] -= 1
            return {"lost": cause}
        return real(request, folder, thin=thin)

    monkeypatch.setattr(farm, "_ask", ask)
    monkeypatch.setattr(farm, "_can_compile", lambda: False)
    request = replace(REQUEST, cflags=(f"-DSOME={len(cause)}",), python=False)
    with caplog.at_level(logging.WARNING):
        assert farm.build(request).record["error"] == ""
    assert cause in caplog.text
    lost[0] = 2
    request = replace(request, cflags=(f"-DOTHER={len(cause)}",))
    with pytest.raises(InfraError, match=cause):
        farm.build(request)
    assert farm.build(request).record["error"] == ""


def test_a_library_that_was_not_built_raises_unbuilt(evaluator) -> None:
    with pytest.raises(Unbuilt, match="lost"):
        Extensions(evaluator.builder.cache, ())(replace(REQUEST, cflags=("-DNEVER",)))


def test_a_program_that_ends_its_own_compiler_is_to_blame(evaluator) -> None:
    """A compiler's output repeats the program's own text, and flags can start anything in the compiler's place."""
    farm = evaluator.builder.farm
    pretends = ExtensionRequest("a", (("main.cpp", "#error No space left on device\n"),), python=False)
    assert "No space" in farm.build(pretends).record["error"]
    kills = ExtensionRequest("a", (("main.cpp", "int x;\n"),), ("-wrapper", "/bin/sh,-c,kill -9 $PPID"), python=False)
    assert farm.build(kills).record["error"]
    nothing = ExtensionRequest("a", (("main.cpp", "int x;\n"),), ldflags=("--version",), python=False)
    entry = farm.build(nothing)
    assert "no library" in entry.record["error"]
    assert not entry.kept


def test_a_result_that_may_differ_the_next_time_is_not_kept(evaluator, monkeypatch) -> None:
    farm = evaluator.builder.farm
    request = replace(REQUEST, cflags=("-DLATE",), python=False)
    real = farm._ask
    monkeypatch.setattr(farm, "_ask", lambda *_, **__: {"late": "compiling took longer than allowed: 1 s"})
    assert "longer" in farm.build(request).record["error"]
    monkeypatch.setattr(farm, "_ask", lambda *_, **__: {"complaint": "g++: error: Resource temporarily unavailable"})
    assert "unavailable" in farm.build(request).record["error"]
    monkeypatch.setattr(farm, "_ask", real)
    assert farm.build(request).record["error"] == ""


def test_overloads_are_left_to_torchs_headers(evaluator) -> None:
    """Tested on the request alone, since compiling it takes most of a minute."""
    source = 'PYBIND11_MODULE(a, m) { m.def("f", one); m.def("g", two); m.def("f", three); }'
    assert _has_overloads(ExtensionRequest("a", (("main.cpp", source),)))
    assert not _has_overloads(ExtensionRequest("a", (("main.cpp", source.replace('"f", three', '"ff", x')),)))
    assert not _has_overloads(ExtensionRequest("a", (("main.cpp", TWO_MODULES),)))


TWO_MODULES = """#include <torch/extension.h>
torch::Tensor f(torch::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
m.def("f", torch::wrap_pybind_function(f), "f");
}
"""


def test_a_second_module_gets_torchs_message_without_torchs_headers(evaluator, monkeypatch) -> None:
    """This is the fault of most of CUDA-L1's published programs with inline CUDA."""
    farm, asked = evaluator.builder.farm, []
    ask = farm._ask
    monkeypatch.setattr(farm, "_ask", lambda *a, thin: (asked.append(thin), ask(*a, thin=thin))[1])
    error = farm.build(ExtensionRequest("two", (("main.cpp", TWO_MODULES),))).record["error"]
    assert asked == [True]
    assert error.startswith("main.cpp:4:1: error: redefinition of 'PyObject* PyInit_extension()'")
    assert "warpsmith" not in error
    assert error.count("error:") == 1


def test_flags_are_split_as_a_shell_does(evaluator) -> None:
    source = PROGRAMS["when imported"].replace('["-O2"]', '["-O2 -DFIRST=1", " -DSECOND=\'2\' "]')
    verdict = evaluator.evaluate(DOUBLE, source)
    assert is_right(verdict), (verdict.message, verdict.guard)


def test_without_the_glue_torchs_headers_serve(evaluator, monkeypatch, caplog) -> None:
    farm = evaluator.builder.farm
    monkeypatch.setattr(farm, "_glue_compiles", None)
    monkeypatch.setattr(farm, "glue", lambda: (_ for _ in ()).throw(CompileError("glue.cpp:1:1: error: no such thing")))
    assert not farm._is_for_thin(ExtensionRequest("a", (("main.cpp", BODY),)))
    assert farm._is_for_thin(ExtensionRequest("a", (("main.cpp", BODY),), python=False))
    assert "no such thing" in caplog.text
