"""A stranger's request is a request, or refused in so many words."""

from __future__ import annotations

import json

import pytest

from evaluators.shared.extension import ExtensionRequest

GOOD = {"name": "a", "sources": [["main.cpp", "int x;"]], "headers": [["parts/a.h", ""]], "cflags": ["-O2"]}


def test_a_request_is_read_as_it_was_sent() -> None:
    request = ExtensionRequest.from_json(GOOD)
    assert request.headers == (("parts/a.h", ""),)
    assert ExtensionRequest.from_json(json.loads(json.dumps(request.to_json()))) == request


@pytest.mark.parametrize(
    "changed",
    [
        {"name": 3},
        {"sources": []},
        {"sources": "main.cpp"},
        {"sources": [["main.cpp"]]},
        {"sources": [["../main.cpp", ""]]},
        {"sources": [["/etc/main.cpp", ""]]},
        {"sources": [["a/../../main.cpp", ""]]},
        {"sources": [[".hidden", ""]]},
        {"sources": [["a.cpp", ""], ["a.cpp", ""]]},
        {"headers": [["main.cpp", ""]]},
        {"cflags": [1]},
        {"cflags": ["a\0b"]},
        {"ldflags": {"a": 1}},
        {"name": "a-b"},
        {"name": "a" * 300},
        {"cflags": ["\ud800"]},
        {"sources": [["a.cpp", "\ud800"]]},
        {"sources": [["a.cpp", "a\0b"]]},
        {"sources": [["a", ""]], "headers": [["a/b.h", ""]]},
    ],
)
def test_what_is_no_request_is_refused(changed) -> None:
    with pytest.raises(ValueError, match=r"extension|file"):
        ExtensionRequest.from_json(GOOD | changed)


@pytest.mark.parametrize(
    ("source", "python", "module"),
    [
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", True, "extension"),
        ("PYBIND11_MODULE(mine, m) {}", True, "mine"),
        ("TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}", False, "mine"),
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\nTORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}", True, "mine"),
    ],
)
def test_a_name_that_can_be_seen_is_kept(source, python, module) -> None:
    assert ExtensionRequest("mine", (("main.cpp", source),), python=python).module == module
