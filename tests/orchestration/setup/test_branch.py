"""A branch has what another run has done, is a run of its own, and may change what comes later and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from configs.load import ConfigError
from orchestration.report import build_report
from orchestration.report.publish import publish
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import BundleError
from orchestration.run.spool import Spool
from orchestration.run.state import RunState
from orchestration.setup.continuation import Continuation
from orchestration.step.constants import NEAREST_LESSONS
from prompts.buffer import ExemplarBuffer
from tests.orchestration.run.bundled import SmallRun, begin_run, copy_of, judge_constants, small_policy, warpsmith

TAUGHT = {"phase": "sft", "step": 2}
ARM = ["name=arm", "seed=1", "contrastive_rl.contrastive_share=0", "contrastive_rl.steps=7"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    folder = tmp_path_factory.mktemp("made")
    return begin_run(folder / "runs", small_policy(folder / "policy"))


@pytest.fixture
def small(tmp_path: Path, made: SmallRun) -> SmallRun:
    """A bundled run that has finished its SFT."""
    small = copy_of(made, tmp_path / "runs")
    small.commit(finished=True, **TAUGHT)
    assert small.bundle().exit_code == 0
    return small


def branch(small: SmallRun, overrides: Sequence[str] = ARM, root: str = "branches") -> RunDirectory:
    place = f"root={small.folder.parent / root}"
    return Continuation.read(small.folder, [place, *overrides], branch=True).unpack()


def page_of(run: RunDirectory, folder: Path) -> str:
    return publish(build_report(run), run, folder).read_text("utf-8")


def state_of(run: RunDirectory) -> RunState:
    state = run.read_state()
    assert state is not None
    return state


def test_a_branch_does_not_tell_mlflow_what_the_run_has_still_to_tell(small: SmallRun) -> None:
    Spool(small.run.storage).add("end", {"status": "KILLED"})
    assert small.bundle().exit_code == 0
    assert len(Spool(branch(small).storage)) == 0


def test_a_branch_has_what_the_run_has_done_and_goes_on(small: SmallRun) -> None:
    run, before = branch(small), state_of(small.run)
    state = state_of(run)
    assert (state.phase, state.step, state.policy_version) == ("sft", 2, before.policy_version)
    assert not state.finished
    assert state.extra["1-sft"] == before.extra["1-sft"]
    assert state.extra["assessed"] == ["base", "1-sft"]
    assert run.metrics.read("1-sft").equals(small.run.metrics.read("1-sft"))
    checkpoint = str(state.checkpoint)
    weights = Path("deepspeed") / "weights.pt"
    ours, theirs = (one.checkpoints.fetch(checkpoint) / weights for one in (run, small.run))
    assert ours.read_bytes() == theirs.read_bytes()
    config = run.read_config()
    assert (config.name, config.seed, config.contrastive_rl.steps) == ("arm", 1, 7)


def test_a_branch_judges_constant_policies_again_since_it_may_teach_other_lessons(small: SmallRun) -> None:
    judge_constants(small)
    assert small.bundle().exit_code == 0
    run = branch(small)
    assert state_of(run).extra["assessed"] == ["base", "1-sft"]
    assert run.samples.read(NEAREST_LESSONS).num_rows == 40
    judge_constants(SmallRun(run, small.policy, small.folder))
    assert run.samples.read(NEAREST_LESSONS).num_rows == 40, "replaced, not doubled"


def test_a_branch_is_a_run_of_its_own_and_the_same_command_again_is_the_same(small: SmallRun) -> None:
    first = branch(small).identity()
    assert first != small.run.identity()
    assert branch(small).identity() == first
    assert branch(small, root="others").identity() == first
    others = [branch(small, ["name=arm", *words], f"of-{words[0]}").identity() for words in (["seed=2"], ["seed=3"])]
    assert len({first, *others}) == 3
    with pytest.raises(BundleError, match="holds another run"):
        branch(small, ["name=arm", "seed=2"])


def test_exemplars_are_drawn_by_the_branchs_seed_and_else_as_the_run_would(small: SmallRun) -> None:
    def drawn(run: RunDirectory, seed: int) -> list[str]:
        table, config = run.buffers.read(str(state_of(run).buffer)), run.read_config()
        buffer = ExemplarBuffer.from_table(table, config.buffer, seed)
        assert len(buffer) > 8
        task = next(iter(buffer._tasks))
        return [shown.source for _ in range(20) for shown in buffer.exemplars(task, "reference")]

    as_the_run = drawn(small.run, 0)
    assert drawn(branch(small, ["name=same"]), 0) == as_the_run
    first, second = (drawn(branch(small, [f"name=seed{seed}", f"seed={seed}"]), seed) for seed in (1, 2))
    assert first != as_the_run
    assert first != second


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["sft.batch_size=3"], r"sft\.batch_size must not change in a branch, because 1-sft depends on it"),
        (["reward.worth=gain"], r"reward\.worth must not change"),
        (["tasks.levels=[1]"], r"tasks\.levels must not change"),
        (["schedule.phases=[contrastive_rl]"], r"schedule\.phases of a branch must begin with .*\(sft\)"),
    ],
)
def test_what_is_done_cannot_change(small: SmallRun, overrides: list[str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        branch(small, ["name=arm", *overrides])


def test_later_phases_can_be_left_out_and_changed(small: SmallRun) -> None:
    run = branch(small, ["name=arm", "schedule.phases=[sft,contrastive_rl]", "contrastive_rl.kl=0.5"])
    assert run.read_config().schedule.phases == ["sft", "contrastive_rl"]


def test_a_run_within_a_phase_has_no_branches(small: SmallRun) -> None:
    small.commit(phase="contrastive_rl", step=2)
    assert small.bundle().exit_code == 0
    with pytest.raises(BundleError, match="a branch begins at the end of a phase, and the run stands within 1-contr"):
        branch(small)


def test_a_scratch_policy_keeps_its_seed(small: SmallRun) -> None:
    with pytest.raises(ConfigError, match="scratch is made of it"):
        branch(small, [*ARM, "policy.model=scratch"])


def test_the_page_of_a_branch_says_whose_beginning_it_has(small: SmallRun, tmp_path: Path) -> None:
    run = branch(small)
    text = page_of(run, tmp_path / "page")
    assert f"A branch of the run demo ({small.run.identity()}) after 1-sft, policy version 4." in text
    assert "- `seed`: 0 there, 1 here" in text
    assert "A branch" not in page_of(small.run, tmp_path / "other")


def test_the_command_takes_a_branch_of_a_bundle_alone(small: SmallRun) -> None:
    done = warpsmith("run", "local", "--branch", "--dry-run")
    assert done.exit_code == 2
    assert "--branch needs --from-bundle" in done.stderr
    done = warpsmith("run", "--from-bundle", str(small.folder), "--branch", "name=arm", "seed=1", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "seed: 1" in done.output
