"""The whole system end to end, with the real Ray, vLLM, DeepSpeed and MLflow: killed in the middle, and resumed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import mlflow
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from orchestration.commands.main import app
from orchestration.report import build_report
from orchestration.report.side_by_side import stage_as_json
from orchestration.run.directory import RunDirectory
from tests.orchestration.mlflow_figures import assessments_in_mlflow, figures_in_report
from tests.orchestration.processes import HANG_SECONDS, REPOSITORY, left_of, pids_of, start, wait_for
from tests.orchestration.small import BUILT, HELD_OUT, SMALL


class Finished(NamedTuple):
    """A run, its state when it was killed, and what its two processes printed."""

    run: RunDirectory
    interrupted: dict[str, object]
    first: str
    second: str


def kill_and_finish(root: Path) -> Finished:
    """A run whose learner died, that was killed during contrastive RL and then started again, at another rate and with
    JSON logs."""
    run = RunDirectory(str(root), "small")
    first = start(root, BUILT)
    try:
        wait_for(first, run, "sft", 1)
        (learner,) = pids_of(root, "ray::LearnerRank")
        os.kill(learner, signal.SIGKILL)
        wait_for(first, run, "contrastive_rl", 1)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        before, _ = first.communicate(timeout=60)
    state = json.loads((root / "small" / "state.json").read_text())
    second = start(root, BUILT, "contrastive_rl.learning_rate=0.002", "logging.format=json")
    output, _ = second.communicate(timeout=HANG_SECONDS)
    assert second.returncode == 0, output
    return Finished(run, state, before, output)


IN_BACKGROUND = {"finished": kill_and_finish}


@pytest.fixture(scope="session")
def finished(in_background) -> Finished:
    found: Finished = in_background("finished")
    return found


@pytest.mark.slow
def test_a_killed_run_goes_on_at_its_last_commit_and_finishes(
    finished: Finished,
) -> None:
    run, interrupted, output = finished.run, finished.interrupted, finished.second
    state = run.read_state()
    assert state is not None
    assert state.finished
    assert interrupted["phase"] == "contrastive_rl"
    assert "1-sft  " not in output, "the resumed run repeated a finished phase"
    assert state.policy_version > int(str(interrupted["policy_version"]))


@pytest.mark.slow
def test_log_lines_of_a_run_say_where_it_is(finished: Finished) -> None:
    assert not [line for line in finished.first.splitlines() if line.startswith("{")]
    printed = [json.loads(line) for line in finished.second.splitlines() if line.startswith("{")]
    lines = [line for line in printed if not line["name"].startswith("ray.")]  # which warns while it starts
    assert {(line["run"], line["role"]) for line in lines} == {("small", "driver")}
    steps = [(line["phase"], line["step"]) for line in lines if line["message"].startswith("the step took")]
    assert steps == sorted(set(steps), key=steps.index), "each once"
    assert steps[-1] == ("1-contrastive_rl", 2)


@pytest.mark.slow
def test_a_run_like_this_one_can_be_planned(finished: Finished) -> None:
    words = ["plan", "local", *SMALL, BUILT, "evaluator.workers=2", "--like", str(finished.run.local_path), "--json"]
    done = CliRunner().invoke(app, [word for word in words if not word.startswith("tasks.audit=")])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    (kind,), (option,) = plan["types"], plan["options"]
    assert kind["accelerator"] == "cpu"
    assert kind["basis"].startswith("measured: ")
    rl = next(stage for stage in option["stages"] if stage["phase"] == "contrastive_rl")
    assert (rl["steps"], rl["responses"]) == (3, 8)
    assert all(rl["step"][part] > 0.0 for part in ("generation", "judging", "learning", "push"))
    assert not any("generation, learning" in gap for gap in plan["missing"])


@pytest.mark.slow
def test_a_marked_task_is_left_out_and_the_log_says_so_once(finished: Finished) -> None:
    run = finished.run
    said = "1 tasks that cannot tell a good program from a cheat are left out"
    for output in (finished.first, finished.second):
        text = " ".join(output.split())
        assert text.count(said) == 1, output
        assert "level1/avg_pool1d (constant)" in text
    assert set(run.samples.read()["task_id"].to_pylist()) == {"level1/softmax", "level1/gelu_tanh", HELD_OUT}
    assert set(run.verdicts.read()["task"].to_pylist()) <= {"level1/softmax", "level1/gelu_tanh", HELD_OUT}
    assert list(run.read_marks()) == ["level1/avg_pool1d"]


@pytest.mark.slow
def test_a_held_out_task_is_assessed_and_nothing_else(finished: Finished) -> None:
    run = finished.run
    assert run.read_held_out() == [HELD_OUT]
    seen: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}  # by whether it was in an assessment
    for row in run.samples.read().to_pylist():
        if not row["phase"].startswith("constant/"):
            seen[row["phase"].startswith("assess/")][row["task_id"]] += 1
    assert seen[True][HELD_OUT] == 8  # two samples in four stages
    assert HELD_OUT not in seen[False]
    taught = {row["task_id"] for row in run.candidates.read("1-sft").to_pylist()}
    assert taught == {"level1/softmax", "level1/gelu_tanh"}
    state = run.read_state()
    assert state is not None
    assert {lesson["task_id"] for lesson in state.extra["1-sft"]["lessons"]} <= taught
    assert state.buffer is not None
    assert HELD_OUT not in run.buffers.read(state.buffer)["task_id"].to_pylist()
    for stage in ("base", "1-contrastive_rl"):
        metrics = {row["name"]: row["value"] for row in run.metrics.read(f"assess/{stage}").to_pylist()}
        assert (metrics["rollouts"], metrics["held_out/rollouts"]) == (4, 2)


@pytest.mark.slow
def test_entropy_is_measured_on_the_held_out_task_before_sft_and_after_each_epoch(finished: Finished) -> None:
    rows = finished.run.metrics.read("1-sft").to_pylist()
    entropies = {row["step"]: row["value"] for row in rows if row["name"] == "held_out/token_entropy"}
    assert list(entropies) == [0, 1, 2]
    base = {row["name"]: row["value"] for row in finished.run.metrics.read("assess/base").to_pylist()}
    assert entropies[0] == pytest.approx(base["held_out/token_entropy"], rel=0.1), "the same policy, also at 1"
    assert all(0.0 < entropy < 1.1 * entropies[0] for entropy in entropies.values())


@pytest.mark.slow
def test_constant_policies_were_judged_once_and_stand_beside_the_stages(finished: Finished) -> None:
    references = finished.run.verdicts.read("constant/reference").to_pylist()
    assert Counter(row["task"] for row in references) == Counter(["level1/softmax", "level1/gelu_tanh", HELD_OUT])
    assert {row["outcome"] for row in references} == {"ok"}
    lessons = finished.run.samples.read("constant/nearest_lesson").to_pylist()
    outcomes = {row["task_id"]: row["outcome"] for row in lessons}
    assert outcomes.pop(HELD_OUT) != "ok", "another task's program"
    assert outcomes == {"level1/softmax": "ok", "level1/gelu_tanh": "ok"}, "their own lessons"
    for group in build_report(finished.run).groups:
        assert [stage.label for stage in group.constants] == ["reference", "nearest lesson"]


@pytest.mark.slow
def test_a_finished_run_becomes_a_page(finished: Finished, tmp_path: Path) -> None:
    assert finished.run.local_path is not None
    main, folder = "orchestration.commands.main", str(finished.run.local_path)
    command = [sys.executable, "-m", main, "report", folder, "--publish", "page"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page" / "README.md").read_text()
    training, held_out = page.split("\n## Held-out tasks\n")
    for stage in ("base", "sft", "self_supervised", "contrastive_rl"):
        assert f"| {stage} | 2 | 4 |" in training
        assert f"| {stage} | 1 | 2 |" in held_out
    assert (tmp_path / "page" / "progress.svg").is_file()
    samples = pq.read_table(tmp_path / "page" / "samples.parquet")
    assert len(samples) == len(finished.run.samples.read())


@pytest.mark.slow
def test_no_step_is_lost_or_doubled(finished: Finished) -> None:
    run = finished.run
    samples = run.samples.read().to_pylist()
    counts = Counter((row["phase"], row["step"]) for row in samples)
    assert [counts["1-contrastive_rl", step] for step in range(3)] == [8, 8, 8]
    assert counts["1-self_supervised", 0] == 4
    for stage in ("base", "1-sft", "1-self_supervised", "1-contrastive_rl"):
        assert counts[f"assess/{stage}", 0] == 6


@pytest.mark.slow
def test_every_rollout_carries_the_policy_version_that_made_it(
    finished: Finished,
) -> None:
    run = finished.run
    by_stage: dict[tuple[str, int], set[int]] = {}
    for row in run.samples.read(columns=["policy_version", "response_ids", "logprobs"]).to_pylist():
        by_stage.setdefault((row["phase"], row["step"]), set()).add(row["policy_version"])
        assert len(row["response_ids"]) == len(row["logprobs"])
    on_policy = {stage: versions for stage, versions in by_stage.items() if stage[0] != "1-contrastive_rl"}
    assert all(len(versions) == 1 for versions in on_policy.values())
    assert on_policy["assess/base", 0] == {0}
    (first,) = by_stage["1-contrastive_rl", 0]
    learners = {step: first + step for step in range(3)}  # the versions that learnt from these steps
    ages = {learners[step] - version for step in learners for version in by_stage["1-contrastive_rl", step]}
    assert ages == {0, 1}  # contrastive_rl.max_staleness=1


@pytest.mark.slow
def test_every_rollout_says_how_fast_the_fastest_program_in_its_prompt_is(finished: Finished) -> None:
    shown: dict[bool, list[float]] = {True: [], False: []}  # by whether it was in an assessment
    for row in finished.run.samples.read(columns=["prompt", "fastest_shown"]).to_pylist():
        printed = [float(one) for one in re.findall(r"^Implementation \d+, ([\d.]+)x:$", row["prompt"], re.MULTILINE)]
        assert row["fastest_shown"] == pytest.approx(max([1.0, *printed]), abs=0.006)
        shown[row["phase"].startswith("assess/")].append(max(printed, default=0.0))
    assert max(shown[False]) > 1.0, "some show programs faster than the reference"
    assert set(shown[True]) == {0.0}, "assessments show none"


@pytest.mark.slow
def test_the_metrics_say_how_old_rollouts_were_and_what_the_roles_did(finished: Finished) -> None:
    metrics: dict[str, list[float]] = {}
    for row in finished.run.metrics.read("1-contrastive_rl").to_pylist():
        metrics.setdefault(row["name"], []).append(row["value"])
    assert 0 < max(metrics["staleness"]) <= max(metrics["staleness_max"]) == 1
    for role in ("engines", "builders", "evaluators", "learner"):
        assert all(0 <= share <= 1 for share in metrics[f"utilisation/{role}"]), (role, metrics)
    assert max(metrics["utilisation/engines"]) > 0  # what this policy writes is no program: the others may have nothing
    assert min(metrics["utilisation/learner"]) > 0
    assert metrics["stragglers"] == [0.0] * 3


@pytest.mark.slow
def test_teachers_programs_were_verified_and_fill_the_buffer(
    finished: Finished,
) -> None:
    run = finished.run
    verdicts = run.verdicts.read("1-sft").to_pylist()
    assert Counter(row["outcome"] for row in verdicts)["ok"] >= 4
    state = run.read_state()
    assert state is not None
    assert state.buffer is not None
    assert run.buffers.read(state.buffer).num_rows >= 4
    assert run.kernels.read()


@pytest.mark.slow
def test_repairs_are_learnt_of_mistakes_that_failed(finished: Finished) -> None:
    state = finished.run.read_state()
    assert state is not None
    repairs, failed = state.extra["1-sft"]["repairs"], finished.run.verdicts.read("1-sft").to_pylist()
    assert repairs
    messages = {(row["task"], row["outcome"], row["message"]) for row in failed}
    assert {(repair["task_id"], repair["outcome"], repair["message"]) for repair in repairs} <= messages
    assert "ok" not in {repair["outcome"] for repair in repairs}


def sorted_by_name(runs: list[Any]) -> list[Any]:
    return sorted(runs, key=lambda one: one.info.run_name)


@pytest.mark.slow
def test_mlflow_shows_one_parent_and_one_nested_run_a_phase(
    finished: Finished,
) -> None:
    run = finished.run
    assert run.local_path is not None
    client = mlflow.MlflowClient(f"sqlite:///{run.local_path.parent}/mlflow.db")
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    parents = [one for one in runs if "mlflow.parentRunId" not in one.data.tags]
    nested = [one for one in runs if one.data.tags.get("mlflow.parentRunId") == parents[0].info.run_id]
    assert len(parents) == 1
    assert sorted(one.info.run_name for one in nested) == ["1-contrastive_rl", "1-self_supervised", "1-sft", "base"]
    assert all(one.info.status == "FINISHED" for one in [*parents, *nested])
    rl = next(one for one in nested if one.info.run_name == "1-contrastive_rl")
    assert [point.step for point in client.get_metric_history(rl.info.run_id, "reward")] == [0, 1, 2]
    assert parents[0].data.params["contrastive_rl.steps"] == "3"
    assert parents[0].data.tags["resumed.contrastive_rl.learning_rate"] == "0.002"
    artifacts = {item.path for item in client.list_artifacts(parents[0].info.run_id)}
    assert {"report", "kernels", "samples"} <= artifacts
    inputs = parents[0].inputs.dataset_inputs
    assert sorted(one.dataset.name for one in inputs) == ["held_out tasks", "training tasks"]
    models = client.search_logged_models([parents[0].info.experiment_id])
    assert sorted(one.name for one in models) == [f"{run.name}-{one.info.run_name}" for one in sorted_by_name(nested)]
    assert all(one.metrics for one in models)
    traces = client.search_traces(locations=[parents[0].info.experiment_id], max_results=500)
    by_run = Counter(trace.info.trace_metadata["mlflow.sourceRun"] for trace in traces)
    assert by_run[rl.info.run_id] == 3 * 2, "two rollouts of each step"
    assert {span.name for trace in traces for span in trace.data.spans} >= {"rollout", "generate"}


@pytest.mark.slow
def test_a_comparison_has_the_numbers_that_mlflow_shows(finished: Finished) -> None:
    run = finished.run
    assert run.local_path is not None
    client = mlflow.MlflowClient(f"sqlite:///{run.local_path.parent}/mlflow.db")
    state = run.read_state()
    assert state is not None
    logged = assessments_in_mlflow(client, state.tracking["parent"])
    report = build_report(run)
    for group, prefix in zip(report.groups, ("", "held_out/"), strict=True):
        assert len(group.stages) == len(logged) == 4
        for stage, in_mlflow in zip(group.stages, logged, strict=True):
            expected = figures_in_report(stage_as_json(stage), prefix)
            assert {key: in_mlflow[key] for key in expected} == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_the_report_shows_every_stage(finished: Finished) -> None:
    run, output = finished.run, finished.second
    assert run.local_path is not None
    page = (run.local_path / "report" / "index.html").read_text()
    for stage in ("base", "sft", "self_supervised", "contrastive_rl"):
        assert stage in page
        assert stage in output


@pytest.mark.slow
def test_a_run_whose_learner_died_goes_on_with_another(finished: Finished) -> None:
    assert finished.first.count("learner rank 0 died") == 1
    metrics = finished.run.metrics.read("1-sft").to_pylist()
    assert [row["step"] for row in metrics if row["name"] == "train/loss"] == [1, 2]


@pytest.mark.slow
def test_nothing_is_left_running(finished: Finished) -> None:
    run = finished.run
    assert run.local_path is not None
    assert left_of(run.local_path.parent) == []


@pytest.mark.slow
def test_a_run_that_is_asked_to_end_early_is_finished_with_the_step_under_way(
    finished: Finished, tmp_path: Path
) -> None:
    assert finished.run.local_path is not None
    root = tmp_path / "copy"
    shutil.copytree(finished.run.local_path.parent, root)
    run = RunDirectory(str(root), "small")
    process = start(root, BUILT, "contrastive_rl.learning_rate=0.002", "contrastive_rl.steps=500")
    try:
        wait_for(process, run, "contrastive_rl", 4)
        process.send_signal(signal.SIGUSR1)
        output, _ = process.communicate(timeout=HANG_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, output
    state = run.read_state()
    assert state is not None
    assert state.finished
    assert 4 <= state.step < 500
    assessed = run.samples.read("assess/1-contrastive_rl", columns=["policy_version"]).to_pylist()
    assert {row["policy_version"] for row in assessed} == {state.policy_version}
    assert left_of(root) == []


@pytest.mark.slow
def test_ctrl_c_is_one_line_and_leaves_nothing_running(tmp_path: Path) -> None:
    """While the actors start, and while they work: two runs at once."""
    seconds = {tmp_path / "starting": 0.0, tmp_path / "working": 12.0}
    for root in seconds:
        root.mkdir()
    processes = {root: start(root, "tasks.held_out.tasks=[]") for root in seconds}
    outputs = {}
    try:
        for root, process in processes.items():
            wait_for(process, RunDirectory(str(root), "small"), "", 0)
        began = time.monotonic()
        for root, process in processes.items():
            time.sleep(max(0.0, began + seconds[root] - time.monotonic()))
            assert process.poll() is None, process.communicate()[0]
            assert pids_of(root)
            os.killpg(process.pid, signal.SIGINT)
            outputs[root], _ = process.communicate(timeout=90)
    finally:
        for process in processes.values():
            process.kill()
    for root, output in outputs.items():
        assert processes[root].returncode == 130, output
        true_when_busy = ("cannot tell a good program", "does not have everything yet")
        said = [line for line in output.splitlines() if not any(words in line for words in true_when_busy)]
        assert said == ["stopped; the same command again goes on after the last committed step"]
        assert left_of(root) == []
