"""The file of a sweep: what it means, and what is refused before any run begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.load import ConfigError
from orchestration.experiments.sweep import Sweep, read_sweep
from orchestration.run.state import RunState

ABLATION = Path(__file__).resolve().parents[3] / "configs" / "experiments" / "ablation.yml"


def write(folder: Path, text: str) -> Path:
    path = folder / "study.yml"
    path.write_text(text)
    return path


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    (tmp_path / "small.yaml").write_text("sft: {epochs: 3}\n")
    text = f"root: {tmp_path}/runs\narms: [small, local]\nseeds: [0, 5]\nsettings: [sft.epochs=7]\n"
    return read_sweep(write(tmp_path, text), ["sft.batch_size=2"])


def test_every_arm_is_run_with_a_seed_before_the_next_seed(sweep: Sweep) -> None:
    assert [trial.name for trial in sweep.trials] == ["small-s0", "local-s0", "small-s5", "local-s5"]
    assert [trial.config.seed for trial in sweep.trials] == [0, 0, 5, 5]
    assert sweep.name == "study"


def test_settings_of_the_file_and_of_the_command_reach_every_run(sweep: Sweep, tmp_path: Path) -> None:
    for trial in sweep.trials:
        assert (trial.config.sft.epochs, trial.config.sft.batch_size) == (7, 2)
        assert trial.config.root == f"{tmp_path}/runs"
    assert Path(sweep.trials[0].words[0]) == tmp_path / "small.yaml"


def test_a_run_is_finished_only_in_its_present_configuration(sweep: Sweep) -> None:
    trial = sweep.trials[0]
    assert not trial.is_finished()
    trial.run.write_config(trial.config)
    trial.run.write_state(RunState(phase="sft", step=3))
    assert not trial.is_finished()
    trial.run.write_state(RunState(phase="sft", step=3, finished=True))
    assert trial.is_finished()
    trial.config.sft.epochs = 9
    assert not trial.is_finished(), "it can be extended"


def test_the_ablation_of_the_paper_has_all_its_arms_with_the_same_tasks_and_samples() -> None:
    sweep = read_sweep(ABLATION)
    assert len(sweep.seeds) == 3
    wanted = {
        "vanilla",
        "evolve",
        "stage1",
        "stages12",
        "grpo",
        *(f"contrastive-{s}" for s in ("random", "island", "bucket")),
    }
    assert wanted <= set(sweep.arms)
    assert len({(str(trial.config.tasks), trial.config.evaluator.preset) for trial in sweep.trials}) == 1
    for trial in sweep.trials:
        config, phases = trial.config, trial.config.schedule.phases
        asked = {
            "vanilla": config.vanilla.rounds * config.vanilla.samples,
            "evolve": config.evolve.rounds * config.evolve.samples,
        }
        assert asked.get(phases[-1], config.assessment.samples) == 8, trial.name


def test_arms_of_the_ablation_share_what_they_have_in_common() -> None:
    """No arm trains by itself what another arm trains in the same way."""
    trained = {"stage1": ["sft"], "stages12": ["sft", "self_supervised"]}
    for trial in read_sweep(ABLATION).trials:
        phases, origin = trial.config.schedule.phases, trial.origin
        begins = [arm for arm, shared in trained.items() if phases[: len(shared)] == shared and trial.arm != arm]
        assert (origin.arm if origin else None) == (begins[-1] if begins else None), trial.name
        assert origin is None or origin.seed == trial.seed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("arms: [absent]\nseeds: [0]", "arms: absent is no configuration"),
        ("arms: [local, local]\nseeds: [0]", "arms must be a list of configurations, each once"),
        ("arms: [local]\nseeds: []", "seeds must be a list of whole numbers"),
        ("arms: [local]\nseeds: [a]", "seeds must be a list of whole numbers"),
        ("arms: [local]\nseeds: [0]\nrun: x", "unknown key run; a sweep has root, arms, seeds, settings, branches"),
        ("arms: [local, demo]\nseeds: [0]\nbranches: [demo]", "branches must be a mapping from arm to arm"),
        (
            "arms: [local, demo]\nseeds: [0]\nbranches: {local: demo}",
            "local: demo must be two of arms, demo before local",
        ),
        ("arms: [local, demo]\nseeds: [0]\nbranches: {demo: h200}", "demo: h200 must be two of arms"),
        (
            "arms: [local, demo]\nseeds: [0]\nbranches: {demo: local}",
            "arm demo: local-s0: .* must not change in a branch",
        ),
        ("arms: [local]\nseeds: [0]\nsettings: [sft.epoch=1]", "arm local: .*did you mean sft.epochs"),
        ("arms: [local]\nseeds: [0]\nroot: 3", "root must be a folder"),
        ("[1, 2", "not valid YAML"),
        ("local", "a sweep must be a mapping"),
    ],
)
def test_a_fault_is_told_in_one_line_with_the_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        read_sweep(write(tmp_path, text))
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / "study.yml"))


def test_two_arms_whose_runs_would_be_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("same.yaml", "other/same.yaml"):
        (tmp_path / name).write_text("seed: 1\n")
    with pytest.raises(ConfigError, match="two arms are named same"):
        read_sweep(write(tmp_path, "arms: [same, other/same]\nseeds: [0]"))


def test_a_file_that_is_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_sweep(tmp_path / "absent.yml")
