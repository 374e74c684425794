"""A sweep on this machine: what became of each run. A run itself takes minutes, so its process is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from orchestration.experiments import in_turn
from orchestration.experiments.sweep import read_sweep
from orchestration.run.state import RunState

STOPPED_EARLY, FAILED = "h200-s0", "local-s1"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """What a sweep told, and the runs that it takes for failed: of four, one was asked to end early, and one failed."""

    def run(words: Sequence[str], environment: Mapping[str, str]) -> int:
        (trial,) = (trial for trial in read_sweep(path).trials if trial.words == words)
        trial.run.write_config(trial.config)
        trial.run.write_state(RunState(phase="sft", step=3, finished=trial.name not in (STOPPED_EARLY, FAILED)))
        return 1 if trial.name == FAILED else 0

    path, lines = tmp_path / "study.yml", list[str]()
    monkeypatch.setattr(in_turn, "_run", run)
    path.write_text(f"root: {tmp_path}/runs\narms: [local, h200]\nseeds: [0, 1]\n")
    failed = in_turn.run_in_turn(read_sweep(path), lines.append, {})
    return lines, [trial.name for trial in failed]


def test_a_run_that_ended_early_is_not_taken_for_finished_and_stops_no_other(
    told: tuple[list[str], list[str]],
) -> None:
    lines, failed = told
    assert failed == [STOPPED_EARLY, FAILED]
    assert lines == [
        "1/4  local-s0",
        "2/4  h200-s0",
        "2/4  h200-s0: ended early; the same command goes on with it",
        "3/4  local-s1",
        "3/4  local-s1: ended with exit code 1; the same command tries it again",
        "4/4  h200-s1",
    ]


def test_a_branch_whose_origin_has_failed_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def run(words: Sequence[str], environment: Mapping[str, str]) -> int:
        begun.append(next(word for word in words if word.startswith("name=")))
        return 1

    monkeypatch.setattr(in_turn, "_run", run)
    (tmp_path / "taught.yaml").write_text("schedule: {phases: [sft]}\n")
    (tmp_path / "further.yaml").write_text("schedule: {phases: [sft, self_supervised]}\n")
    path, lines = tmp_path / "study.yml", list[str]()
    path.write_text(
        f"root: {tmp_path}/runs\narms: [taught, further, demo]\nseeds: [0]\nbranches: {{further: taught}}\n"
    )
    failed = in_turn.run_in_turn(read_sweep(path), lines.append, {})
    assert [trial.name for trial in failed] == ["taught-s0", "further-s0", "demo-s0"]
    assert begun == ["name=taught-s0", "name=demo-s0"]
    assert "2/3  further-s0: begins where taught-s0 ends, which did not end well" in lines
