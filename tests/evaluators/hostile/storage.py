"""A verdict is the same after it has been stored and read."""

from __future__ import annotations

import json

from evaluators.records import Verdict, verdict_table


def assert_storable(verdict: Verdict) -> None:
    assert Verdict.from_row(json.loads(json.dumps(verdict.to_row()))) == verdict
    assert Verdict.from_row(verdict_table([verdict]).to_pylist()[0]) == verdict
