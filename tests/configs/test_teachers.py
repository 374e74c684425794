"""Teachers behind endpoints, by name: what does not fit together is refused in one line."""

from __future__ import annotations

import pytest

from configs.frozen import asks_teachers, has_engines, learns
from configs.load import ConfigError, changed_keys, load_config, may_change

ALONE = "schedule.phases=[collect]"
NAMED = ["sft.endpoints.large={url: https://host/v1, model: m}", "sft.teachers=[large,bundled]"]


def test_collecting_alone_needs_neither_learner_nor_engines() -> None:
    alone = load_config("local", [ALONE, *NAMED])
    assert asks_teachers(alone)
    assert not learns(alone)
    assert not has_engines(alone)
    further = load_config("local", ["schedule.phases=[collect,contrastive_rl]"])
    assert learns(further)
    assert has_engines(further)
    assert not asks_teachers(load_config("local", ["schedule.phases=[evolve]"]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["sft.endpoints.large.model=''"],
            r"sft\.endpoints\.large\.model must name the model to ask https://host/v1 for",
        ),
        (["sft.endpoints.large.url=host"], r"sft\.endpoints\.large\.url must be an http\(s\) address, got 'host'"),
        (["sft.endpoints.large.key=sk-12"], r"sft\.endpoints\.large\.key must be the name of the environment variable"),
        (["sft.endpoints.large.asking.share=2"], r"sft\.endpoints\.large\.asking\.share must be from 0 to 1, got 2"),
        (["sft.endpoints.large.modle=m"], r"did you mean sft\.endpoints\.large\.model\?"),
        (["sft.endpoints.bundled={url: http://h, model: m}"], "must have another name"),
        (["sft.endpoints=3"], "sft.endpoints must be a section with a name of yours each"),
        (["sft.teachers=[]"], "sft.teachers must not be empty while schedule.phases has collect"),
        (["sft.teachers=[https://host/v1]"], "sft.teacher_model must name the model to ask of https://host/v1"),
        (["schedule.phases=[collect,sft]"], "must not have both sft and collect"),
        (["placement.share=all"], r"placement.share must be none with schedule.phases=\[collect\]"),
        (["guard.checker=policy"], r"guard.checker=policy asks the run's own engines, .* schedule.phases=\[collect\]"),
        (
            ["sft.endpoints.large.asking.patience=5000"],
            "stall_minutes must be 0 .* sft.endpoints.large.asking.patience",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        load_config("local", [ALONE, *NAMED, *words])
    assert "\n" not in str(raised.value)


def test_an_endpoint_that_no_teacher_names_is_not_looked_at() -> None:
    load_config("local", ["sft.endpoints.later={url: ''}"])


def test_where_a_model_answers_and_who_pays_may_change_and_which_model_it_is_may_not() -> None:
    now = [f"sft.endpoints.large.{key}" for key in ("url=http://x/v1", "key=K", "asking.timeout=9.0", "model=n")]
    changed = changed_keys(load_config("local", NAMED), load_config("local", [*NAMED, *now]))
    assert [key.removeprefix("sft.endpoints.large.") for key in changed if may_change(key)] == [
        "url", "key", "asking.timeout",
    ]  # fmt: skip
    assert [key for key in changed if not may_change(key)] == ["sft.endpoints.large.model"]
