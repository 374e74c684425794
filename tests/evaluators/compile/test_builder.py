"""What a candidate compiles is compiled once, away from any measurement, and a compiler's message can be read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from evaluators.compile.builder import Builder
from evaluators.compile.hints import needs_build
from evaluators.compile.messages import compiler_message
from evaluators.evaluator import Evaluator
from evaluators.host.cpu_device import CpuDevice
from evaluators.records import Artifact, BuildError, Candidate, Outcome
from tests.evaluators.outcomes import assert_ok
from tests.evaluators.sources import DOUBLE
from tests.folders import open_folder

# The smallest headers that give Python a function: pybind11 alone, and pointers in place of tensors.
INLINE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <pybind11/pybind11.h>
#include <cstdint>
void twice(std::int64_t from, std::int64_t to, std::int64_t count) {
  const float* in = reinterpret_cast<const float*>(from);
  float* out = reinterpret_cast<float*>(to);
  for (std::int64_t i = 0; i < count; ++i) out[i] = 2 * in[i]%s
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
"""
extension = load_inline(name="twice", cpp_sources=source, no_implicit_headers=True, extra_cflags=["-O1"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        extension.twice(x.data_ptr(), out.data_ptr(), x.numel())
        return out
'''
PLAIN = """
import torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        return 2 * x
"""


def _counted(ask, compilations, request, folder, *, thin):
    if request:  # not the glue
        compilations.append(thin)
    return ask(request, folder, thin=thin)


def candidate(source: str) -> Candidate:
    return Candidate.propose(DOUBLE.id, source, "test")


@pytest.fixture(scope="module")
def store() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def compilations() -> list[bool]:
    """The compilations of all builders of `built`: whether each was with the thin headers."""
    return []


@pytest.fixture(scope="module")
def built(store, limits, compilations) -> list[Artifact | BuildError]:
    """The same candidate, built by two builders at once."""
    builders = [Builder(CpuDevice(), store, limits) for _ in range(2)]
    for builder in builders:
        builder.farm._ask = partial(_counted, builder.farm._ask, compilations)
    results: list[Artifact | BuildError] = []
    threads = [
        threading.Thread(target=lambda builder=builder: results.append(builder.build(DOUBLE, candidate(INLINE % ";"))))
        for builder in builders
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for builder in builders:
        builder.close()
    return results


@pytest.mark.slow
def test_builders_that_share_a_store_build_a_candidate_once(built, compilations) -> None:
    first, second = built
    assert isinstance(first, Artifact), first
    assert first == second
    assert sorted(compilations) == [
        False,
        True,
    ]  # once with the thin headers, which have no pybind11, then with torch's


@pytest.fixture(scope="module")
def sharing(store, limits) -> Iterator[Evaluator]:
    """An evaluator with the builders' store."""
    with Evaluator(arch="cpu", limits=limits, store=store) as made:
        yield made


@pytest.mark.slow
def test_an_evaluator_loads_the_artifact(built, sharing) -> None:
    verdict = sharing.evaluate(DOUBLE, INLINE % ";")
    assert_ok(verdict)
    assert verdict.cost["compile"] == built[0].seconds > 1.0  # the seconds of the build itself, which was the only one
    assert_ok(sharing.evaluate(DOUBLE, INLINE % ";" + "\nx = 1\n", artifact=built[0]))


@pytest.mark.slow
def test_a_compiler_error_is_short_and_names_no_folder(sharing, store) -> None:
    broken = INLINE.replace("#include <pybind11/pybind11.h>\n", "").replace("PYBIND11_MODULE", "void* f") % " oops"
    verdict = sharing.evaluate(DOUBLE, broken)
    assert verdict.outcome is Outcome.BUILD_ERROR, verdict.message
    assert "error: " in verdict.message
    assert "oops" in verdict.message
    assert len(verdict.message) < 2000
    for word in ("/tmp", "/root", "/home", str(store), "site-packages"):
        assert word not in verdict.message
    again = sharing.evaluate(DOUBLE, broken + "\n# the same\n", preset="thorough")
    assert again.message == verdict.message
    assert again.cost["compile"] == verdict.cost["compile"] > 0.5  # of the one build that there was


def test_an_unfinished_build_is_made_again(sharing) -> None:
    artifact = sharing.builder.build(DOUBLE, candidate(PLAIN))
    assert isinstance(artifact, Artifact)
    record = Path(f"{artifact.path}.json")
    assert json.loads(record.read_text())["error"] is None
    record.unlink()
    Path(artifact.path).mkdir(exist_ok=True)
    (Path(artifact.path) / "half").write_text("")
    assert sharing.builder.build(DOUBLE, candidate(PLAIN)) == artifact
    assert not (Path(artifact.path) / "half").exists()
    assert record.is_file()


@pytest.mark.parametrize(
    ("source", "answer"),
    [(PLAIN, False), (INLINE, True), ("torch.compile(f)", True), ("import triton", True), ("re_compile = 1", False)],
)
def test_a_source_that_mentions_a_compiler_needs_a_build(source, answer) -> None:
    assert needs_build(source) is answer


def test_a_compiler_message_keeps_errors_and_their_lines() -> None:
    text = "\n".join(
        [
            "RuntimeError: Error building extension 'a': [1/2] c++ -I/usr/lib/x /home/me/ext/main.cpp",
            "FAILED: main.o",
            *[f"/usr/include/c++/12/header{number}.h:3:4: note: in instantiation" for number in range(500)],
            "/home/me/ext/main.cpp:6:12: error: expected ';' before '}' token",
            "    6 |   return x",
            "      |           ^",
            "ninja: build stopped: subcommand failed.",
        ]
    )
    message = compiler_message(text)
    assert message.splitlines()[0] == "main.cpp:6:12: error: expected ';' before '}' token"
    assert "6 |   return x" in message
    assert "note" not in message
    assert len(compiler_message("error: x\n" * 10000 + "y" * 100000)) <= 2000
    assert compiler_message("/a/b/c.py: something else") == "c.py: something else"
