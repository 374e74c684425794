"""A stranger's request is a request, or refused in so many words."""

from __future__ import annotations

import json

import pytest

from evaluators.build.extension import ExtensionRequest

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
    ],
)
def test_what_is_no_request_is_refused(changed) -> None:
    with pytest.raises(ValueError, match=r"extension|file"):
        ExtensionRequest.from_json(GOOD | changed)
