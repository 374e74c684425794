"""Every key is documented, once, and the reference page says what the schema says."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from configs import reference, schema
from configs.checks import leaves
from configs.schema import ArchConfig, EvaluationConfig, RunConfig, SftConfig, TeacherConfig


def sections(section: Any) -> list[Any]:
    values = [getattr(section, item.name) for item in fields(section)]
    named = [one for value in values if isinstance(value, dict) for one in value.values()]
    inner = [one for one in (*values, *named) if is_dataclass(one)]
    return [section, *(below for one in inner for below in sections(one))]


WHOLE = RunConfig(
    name="x",
    evaluation=EvaluationConfig(archs={"NAME": ArchConfig()}),
    sft=SftConfig(endpoints={"NAME": TeacherConfig()}),
)
SECTIONS = sections(WHOLE)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: type(section).__name__)
def test_every_key_and_every_section_is_documented(section: Any) -> None:
    comments = reference.documentation()[type(section).__name__]
    keys = {item.name for item in fields(section) if not is_dataclass(getattr(section, item.name))}
    assert {key for key in keys if not comments[key]} == set()
    assert type(section).__doc__
    assert not type(section).__doc__.startswith(type(section).__name__), "a docstring of its own"


def test_the_page_is_the_one_that_the_schema_makes() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "stale: run `make reference`"


def test_the_page_has_a_row_for_each_key() -> None:
    rows = [line for line in reference.page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows].count("learner.zero_stage") == 1
    assert sorted(row.split("`")[1] for row in rows) == sorted(key for key, _, _ in leaves(WHOLE))


def row_of(key: str) -> list[str]:
    (row,) = [line for line in reference.page().splitlines() if line.startswith(f"| `{key}` ")]
    return [cell.strip() for cell in row.strip("| ").split(" | ")]


def test_a_row_has_choices_range_default_text_and_the_place_in_the_paper() -> None:
    key, kind, bounds, default, text, *paper = row_of("contrastive_rl.group_size")
    assert (key, kind, bounds, default) == ("`contrastive_rl.group_size`", "whole number", "at least 2", "`16`")
    assert text == "responses to one prompt: G in CUDA-L1 section 2.4.5"
    assert paper == ["section 2.4.5"]
    assert row_of("buffer.strategy")[1] == "`bucket`, `island`, `random`"
    assert row_of("buffer.strategy")[-1] == "section 2.4.3, table 5"
    assert row_of("learner.gradient_clip")[2:4] == ["at least 0", "`1.0`"]


def test_no_class_of_the_schema_is_left_out() -> None:
    classes = {value for value in vars(schema).values() if isinstance(value, type) and is_dataclass(value)}
    assert classes == {type(section) for section in SECTIONS}
