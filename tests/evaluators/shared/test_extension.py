"""A request for an extension keeps its content on the way to the compilers, and its name if a source shows it."""

from __future__ import annotations

import json
import time

import pytest

from evaluators.shared.extension import ExtensionRequest


def test_a_request_is_read_as_it_was_sent() -> None:
    request = ExtensionRequest("a", (("main.cpp", "int x;"),), ("-O2",), headers=(("parts/a.h", ""),), python=False)
    assert ExtensionRequest.from_json(json.loads(json.dumps(request.to_json()))) == request


@pytest.mark.parametrize(
    ("source", "python", "module"),
    [
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", True, "extension"),
        ("PYBIND11_MODULE(mine, m) {}", True, "mine"),
        ("TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}", False, "mine"),
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\nTORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}", True, "mine"),
    ],
)
def test_a_name_that_a_program_can_notice_is_kept(source, python, module) -> None:
    assert ExtensionRequest("mine", (("main.cpp", source),), python=python).module == module


def test_a_long_request_is_named_in_little_time() -> None:
    """The judge names a request several times, and a candidate chooses its length."""
    request = ExtensionRequest("name", (("main.cpp", "// nam e\n" * 450_000),))
    start = time.thread_time()
    assert all(request.module == "extension" for _ in range(4))
    assert time.thread_time() - start < 0.1
