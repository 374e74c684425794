"""Several architectures in a configuration: sections with names of the user's own."""

import pytest

from configs.archs import counted_archs, evaluator_on, sampled_archs
from configs.load import ConfigError, changed_keys, dump_config, load_config, may_change, parse_config
from configs.schema import ArchConfig

SEVERAL = [
    "evaluator.arch=H200",
    "evaluator.baselines=[eager,cuda_graph]",
    "evaluation.archs.A100.workers=3",
    "evaluation.archs.A100.share=1.0",
    "evaluation.archs.RTX-4090={}",
    "evaluation.archs.cpu={share: 0.5, builders: 2}",
]


def test_architectures_survive_a_dump() -> None:
    config = load_config("local", SEVERAL)
    assert config.evaluation.archs["A100"] == ArchConfig(workers=3, share=1.0)
    assert parse_config(dump_config(config), "dumped").config == config


def test_keys_of_one_architecture_are_set_one_by_one_and_the_others_stay() -> None:
    config = load_config("local", [*SEVERAL, "evaluation.archs.A100.builders=4"])
    assert config.evaluation.archs["A100"] == ArchConfig(workers=3, builders=4, share=1.0)


def test_evaluators_of_an_architecture_take_the_rest_from_the_first() -> None:
    config = load_config("local", [*SEVERAL, "evaluator.threads=2"])
    on_a100, on_cpu = evaluator_on(config, "A100"), evaluator_on(config, "cpu")
    assert (on_a100.arch, on_a100.workers, on_a100.threads) == ("A100", 3, 2)
    assert on_a100.baselines == ["eager", "cuda_graph"]
    assert on_cpu.baselines == ["eager"]  # a CPU has no other
    assert evaluator_on(config, "H200") is config.evaluator


def test_a_reward_counts_architectures_that_judge_every_program() -> None:
    alone, worst = load_config("local", SEVERAL), load_config("local", [*SEVERAL, "evaluation.reward=worst"])
    assert counted_archs(alone) == []
    assert sampled_archs(alone) == {"A100": 1.0, "RTX-4090": 0.1, "cpu": 0.5}
    assert counted_archs(worst) == ["A100"]
    assert sampled_archs(worst) == {"RTX-4090": 0.1, "cpu": 0.5}


def test_only_the_size_of_a_pool_may_change_in_a_run() -> None:
    before, after = load_config("local", SEVERAL), load_config("local", [*SEVERAL, "evaluation.archs.L40S={}"])
    assert changed_keys(before, after) == changed_keys(after, before)
    assert {key for key in changed_keys(before, after) if not may_change(key)} == {
        "evaluation.archs.L40S.share",
        "evaluation.archs.L40S.capability",
    }


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("evaluation.archs=3", "must be a section with"),
        ("evaluation.archs.L40S=3", "evaluation.archs.L40S must be a section with keys such as workers"),
        ("evaluation.archs.L40S.worker=1", "unknown key evaluation.archs.L40S.worker; did you mean"),
        ("evaluation.archs.L40S.workers=0", "evaluation.archs.L40S.workers must be at least 1, got 0"),
        ("evaluation.archs.l40s={}", "evaluation.archs.l40s must be named cpu, or like an accelerator"),
        ("evaluation.archs.H200={}", "evaluation.archs.H200 is evaluator.arch already"),
        ("reward.worth=beat_shown", "reward.worth=beat_shown is over what a prompt shows"),
        ("evaluation.archs.A100.share=0.5", "evaluation.reward=mean is over evaluator.arch and"),
        ("placement.learner=h100", "placement.learner must be empty or an accelerator's name"),
        ("placement={share: training, learner: H100}", "must be the same while they share GPUs"),
        ("placement={share: all, learner: H100, engines: H100}", "must be empty or evaluator.arch (H200)"),
    ],
)
def test_a_fault_is_named_with_its_remedy(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config("local", [*SEVERAL, "evaluation.reward=mean", override])
    assert message in str(raised.value)
