"""Configurations of earlier versions are read in today's keys, and what they lose is told."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs import retired
from configs.checks import leaves
from configs.load import ConfigError, StoredConfig, load_config, parse_config
from configs.schema import RunConfig
from evaluators.reward import WORTHS, Worth

REPOSITORY = Path(__file__).parents[2]
PUBLISHED = sorted((REPOSITORY / "docs/results").glob("*/config.yaml"))

PAPER: dict[str, dict[str, Any]] = {
    "sft": {"beat_exemplars": True},  # the paper says nothing of it
    "contrastive_rl": {"hide_best": False, "refill": 0, "scale_advantages": True},
    "reward": {"offset": 0.0, "copies": 1.0, "beat_exemplars": False, "per_task_smoothing": True},
    "evaluator": {"limits": {"processes": 64}},
}


def stored(**changes: Any) -> StoredConfig:
    """An old configuration with the paper's settings but for `changes`, by dotted key with `__` for the dot."""
    settings = copy.deepcopy(PAPER)
    for key, value in changes.items():
        section, _, name = key.partition("__")
        settings.setdefault(section, {})[name] = value
    return parse_config(yaml.safe_dump({"name": "old", **settings}), "runs/old/config.yaml")


def lost(config: StoredConfig) -> list[str]:
    return [loss.key for loss in config.losses]


def test_settings_that_the_code_has_now_are_dropped_silently() -> None:
    expected = RunConfig(name="old")
    expected.contrastive_rl.normaliser = "signal"
    expected.stall_minutes = 0.0
    assert stored() == StoredConfig(expected, ())


def test_runs_from_before_the_choice_go_on_without_groups_that_carry_no_signal() -> None:
    assert RunConfig(name="new").contrastive_rl.normaliser == "all"
    assert stored().config.contrastive_rl.normaliser == "signal"
    assert stored(contrastive_rl__normaliser="all").config.contrastive_rl.normaliser == "all"


def test_runs_from_before_the_stall_bound_have_none_whatever_their_time_outs_are() -> None:
    assert stored(learner__timeout=1e5).config.stall_minutes == 0.0
    assert parse_config("name: new\nstall_minutes: 90", "runs/new/config.yaml").config.stall_minutes == 90.0


DEMO = {"reward__offset": 0.9, "reward__copies": 0.2}
BEATING = {
    "reward__offset": 1.0,
    "reward__beat_exemplars": True,
    "contrastive_rl__hide_best": True,
}


@pytest.mark.parametrize(("changes", "worth"), [({}, "speedup"), (DEMO, "gain"), (BEATING, "beat_shown")])
def test_settings_that_a_worth_stands_for_become_it(changes: dict[str, Any], worth: str) -> None:
    config = stored(**changes)
    assert (config.config.reward.worth, config.losses) == (worth, ())


def test_settings_between_the_worths_become_the_nearest_and_the_rest_is_told() -> None:
    config = stored(**DEMO, contrastive_rl__hide_best=True)
    assert config.config.reward.worth == "gain"
    assert list(map(str, config.losses)) == [
        "contrastive_rl.hide_best was true, which this version does not have; now false, by reward.worth=gain"
    ]


def test_the_meaning_of_a_worth_is_the_same_here_as_where_it_rewards() -> None:
    here = {
        name: Worth(
            offset=keys["reward.offset"],
            copy_share=keys["reward.copies"],
            over_fastest_shown=keys["reward.beat_exemplars"],
            shows_only_slower=keys["contrastive_rl.hide_best"],
        )
        for name, keys in retired._WORTHS.items()
    }
    assert here == WORTHS


@pytest.mark.parametrize(
    ("draw", "refill", "tasks", "now", "losses"),
    [
        ("rounds", 0, 8, "rounds", []),
        ("rounds", 2, 8, "replace", []),
        ("rounds", 1, 3, "replace", []),
        ("rounds", 2, 4, "replace", ["contrastive_rl.refill"]),
        ("signal", 0, 8, "signal", []),
        ("signal", 2, 8, "signal", ["contrastive_rl.refill"]),
    ],
)
def test_refill_becomes_a_way_to_draw(draw: str, refill: int, tasks: int, now: str, losses: list[str]) -> None:
    config = stored(contrastive_rl__draw=draw, contrastive_rl__refill=refill, contrastive_rl__tasks_per_step=tasks)
    assert (config.config.contrastive_rl.draw, lost(config)) == (now, losses)


@pytest.mark.parametrize(
    ("mean", "scaled", "losses"),
    [("token", True, []), ("constant", False, []), ("token", False, ["s"]), ("constant", True, ["s"])],
)
def test_unscaled_advantages_belong_to_a_constant_mean(mean: str, scaled: bool, losses: list[str]) -> None:
    config = stored(contrastive_rl__loss_mean=mean, contrastive_rl__scale_advantages=scaled)
    assert lost(config) == ["contrastive_rl.scale_advantages" for _ in losses]


def test_another_value_of_what_is_a_constant_now_is_told() -> None:
    config = stored(evaluator__limits={"processes": 8}, reward__per_task_smoothing=False)
    assert list(map(str, config.losses)) == [
        "evaluator.limits.processes was 8, which this version does not have; now always 64",
        "reward.per_task_smoothing was false, which this version does not have; now always true",
    ]


def test_a_users_file_with_retired_keys_is_refused_with_the_remedies(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("reward: {offset: 0.9}\nlearner: {lora: {dropout: 0}}\n")
    with pytest.raises(ConfigError) as refused:
        load_config("mine.yaml")
    assert str(refused.value) == (
        "mine.yaml: reward.offset is gone, use reward.worth=gain; "
        "learner.lora.dropout is gone, leave it out (it is always 0.0)"
    )
    with pytest.raises(ConfigError, match=r"^override reward\.copies=1: reward\.copies is gone, use reward\.worth="):
        load_config("local", ["reward.copies=1"])


def test_no_retired_key_is_back() -> None:
    assert not {key for key, _, _ in leaves(RunConfig(name="x"))} & {*retired._CONSTANTS, *retired._USE}


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_published_configurations_can_be_read(path: Path) -> None:
    expected = {
        "coder": ("gain", ["contrastive_rl.refill"]),
        "first-window": ("beat_shown", []),
        "half-hour": ("gain", ["reward.copies", "contrastive_rl.refill"]),
        "hour": ("beat_shown", []),
        "rehearsed": ("beat_shown", []),
        "second-window": ("beat_shown", []),
        "right-alone": ("speedup", ["sft.beat_exemplars", "contrastive_rl.refill"]),
    }
    config = parse_config(path.read_text(), str(path))
    assert (config.config.reward.worth, lost(config)) == expected[path.parent.name]


def test_the_number_of_kept_checkpoints_counted_the_committed_one() -> None:
    for kept, last in ((1, 0), (2, 1), (5, 4)):
        text = yaml.safe_dump({"name": "old", "keep_checkpoints": kept})
        config = parse_config(text, "runs/old/config.yaml")
        assert (config.config.keep_last, config.losses) == (last, ())
    with pytest.raises(ConfigError, match="keep_checkpoints is gone, use keep_last, which does not count"):
        load_config("local", ["keep_checkpoints=2"])
