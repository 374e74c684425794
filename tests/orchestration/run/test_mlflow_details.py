"""MLflow shows what a run is about, its tasks, samples, policies and rollouts, each once however often it is sent."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest
from mlflow import MlflowClient

from configs.code_version import CODE_VARIABLE
from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Outcome, Task, Verdict
from learners.records import Rollout
from orchestration.run.directory import RunDirectory
from orchestration.run.judged_rollouts import drawn, read_judged
from orchestration.run.spool import Spool
from orchestration.run.tracking import FLUSH_SECONDS, TaskSet, Tracker, send_rest
from tests.orchestration.faulty_server import FaultyServer, always

FAST, WRONG = "class ModelNew: fast = True", "class ModelNew: fast = False"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TASKS = [Task("level1/1", 1, "relu", "x = 1"), Task("level2/3", 2, "chain", "x = 2")]


def rollout(task: str, prompt: str, response: str, *of_program: object) -> Rollout:
    return Rollout(task, task, prompt, response, (1,), (2, 3), (-1.0, -1.0), 7, "stop", *of_program)  # type: ignore[arg-type]


@pytest.fixture
def run(run: RunDirectory, config: RunConfig) -> RunDirectory:
    """A run that has stored a step and an assessment, of a right program, a wrong one and a response without any."""
    config.evaluator.arch, config.tracking.experiment = "cpu", uuid.uuid4().hex
    for phase, step in (("1-sft", 3), ("assess/1-sft", 0)):
        right, wrong = (Candidate.propose("level1/1", source, "policy:1") for source in (FAST, WRONG))
        speedups = {"eager": Estimate(1.5, 1.4, 1.6, 30), "torch_compile": Estimate(1.2, 1.1, 1.3, 30)}
        took = {"compile": 2.0, "total": 1.0}
        verdicts = [
            Verdict(right.digest, "level1/1", "cpu", Outcome.OK, speedups=speedups, cost=took),
            Verdict(wrong.digest, "level1/1", "cpu", Outcome.WRONG, message="differs by 3.0", cost={"total": 0.5}),
        ]
        rollouts = [
            rollout("level1/1", "write relu", "here", right.digest, "ok", 1.5, 0.7),
            rollout("level1/1", "write relu", "hm", wrong.digest, "wrong", 0.0, -0.7),
            rollout("level2/3", "write chain", "no", None, None, 0.0, None),
        ]
        run.samples.write(phase, step, rollouts)
        run.candidates.write(phase, step, [right, wrong])
        run.verdicts.write(phase, step, verdicts)
    return run


def follow(config: RunConfig, run: RunDirectory, ids: object = None) -> Tracker:
    """What a session tells of one phase and its assessment."""
    with Tracker(config, run, ids) as tracker:  # type: ignore[arg-type]
        tracker.log_tasks([TaskSet.of("training tasks", "training", "bundled", TASKS)])
        tracker.log_metrics("1-sft", {"loss": 1.0}, 3)
        tracker.log_rollouts("1-sft", 3)
        tracker.log_policy("1-sft", 4, "checkpoints/step-4")
        tracker.end_phase("1-sft")
        tracker.log_assessment("1-sft", {"success": 0.5, "odd": float("nan")}, 4)
    return tracker


@pytest.fixture
def tracker(config: RunConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """Of a run that told everything twice, as after a kill before its first commit."""
    monkeypatch.setenv(CODE_VARIABLE, f"{COMMIT}-dirty")
    config.tracking.rollouts = 3
    first = follow(config, run)
    return follow(config, run, {"key": first.ids["key"]})


def test_tags_tell_runs_apart(tracker: Tracker, client: MlflowClient) -> None:
    tags = client.get_run(tracker.ids["parent"]).data.tags
    assert tags["warpsmith.phases"] == "sft + self_supervised + contrastive_rl"
    assert tags["warpsmith.arch"] == "cpu"
    assert tags["warpsmith.exemplars"] == "2 by bucket"
    assert "- seed: 0" in tags["mlflow.note.content"]
    assert (tags["warpsmith.code"], tags["mlflow.source.git.commit"]) == (f"{COMMIT[:10]}-dirty", COMMIT)


def test_tasks_are_inputs_of_the_run(tracker: Tracker, client: MlflowClient) -> None:
    (one,) = client.get_run(tracker.ids["parent"]).inputs.dataset_inputs
    assert one.dataset.name == "training tasks"
    assert {tag.key: tag.value for tag in one.tags} == {"mlflow.data.context": "training"}
    assert json.loads(one.dataset.profile) == {"tasks": 2, "level 1": 1, "level 2": 1}
    other = TaskSet.of("training tasks", "training", "bundled", TASKS[:1])
    assert one.dataset.digest != other.digest


def test_samples_of_an_assessment_are_a_table(tracker: Tracker, client: MlflowClient) -> None:
    parent, path = tracker.ids["parent"], "samples/assess/1-sft.json"
    assert json.loads(client.get_run(parent).data.tags["mlflow.loggedArtifacts"]) == [{"path": path, "type": "table"}]
    table = json.loads(Path(client.download_artifacts(parent, path)).read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["outcome"] for row in rows] == ["ok", "wrong", "no_code"]
    assert (rows[0]["speedup"], rows[0]["over the best baseline"]) == (1.5, 1.2)
    assert [row["program"] for row in rows] == [FAST, WRONG, ""]
    assert rows[1]["message"] == "differs by 3.0"


def test_the_policy_of_a_phase_is_a_model_with_its_scores(tracker: Tracker, client: MlflowClient) -> None:
    (model,) = client.search_logged_models([tracker.ids["experiment"]])
    assert model.name == "demo-1-sft"
    assert model.status == "READY"
    assert model.source_run_id == tracker.ids["phases"]["1-sft"]
    assert model.params["checkpoint"] == "checkpoints/step-4"
    assert {metric.key: metric.value for metric in model.metrics} == {"assess/success": 0.5}
    nested = client.get_run(tracker.ids["phases"]["1-sft"])
    assert nested.data.metrics == {"loss": 1.0, "assess/success": 0.5}
    assert nested.info.status == "FINISHED"


def test_the_policy_before_all_phases_has_a_run_of_its_own(tracker: Tracker, client: MlflowClient, config, run) -> None:
    with Tracker(config, run, tracker.ids) as again:
        again.log_assessment("base", {"success": 0.25}, 0)
    nested = client.get_run(again.ids["phases"]["base"])
    assert nested.data.metrics == {"assess/success": 0.25}
    assert nested.data.tags["mlflow.parentRunId"] == again.ids["parent"]
    assert nested.info.status == "FINISHED"
    models = client.search_logged_models([tracker.ids["experiment"]])
    assert {model.name: model.source_run_id for model in models}["demo-base"] == nested.info.run_id


def test_rollouts_are_traces_from_the_prompt_to_the_verdict(tracker: Tracker, client: MlflowClient) -> None:
    traces = client.search_traces(locations=[tracker.ids["experiment"]])
    by_outcome = {trace.info.tags["warpsmith.outcome"]: trace for trace in traces}
    assert len(traces) == len(by_outcome) == 3
    right = by_outcome["ok"]
    assert right.info.trace_metadata["mlflow.sourceRun"] == tracker.ids["phases"]["1-sft"]
    assert [span.name for span in right.data.spans] == ["rollout", "generate", "build", "judge"]
    root, generate, build, judge = right.data.spans
    assert all(span.parent_id == root.span_id for span in (generate, build, judge))
    assert generate.inputs == {"prompt": "write relu"}
    assert generate.outputs == "here"
    assert build.inputs["program"] == FAST
    assert build.end_time_ns - build.start_time_ns == 2_000_000_000
    assert judge.end_time_ns - judge.start_time_ns == 1_000_000_000
    assert judge.outputs["speedup over eager"] == 1.5
    feedback = {one.name: one.feedback.value for one in right.info.assessments}
    assert feedback == {"outcome": "ok", "speedup": 1.5, "reward": 1.5}
    assert by_outcome["wrong"].data.spans[-1].outputs["message"] == "differs by 3.0"
    assert [span.name for span in by_outcome["no_code"].data.spans] == ["rollout", "generate"]


def test_the_best_rollout_is_among_those_drawn(run: RunDirectory) -> None:
    rollouts = read_judged(run, "1-sft", 3, "cpu")
    assert [one.outcome for one in drawn(rollouts, 1, "x")] == ["ok"]
    assert drawn(rollouts, 2, "x") == drawn(rollouts, 2, "x")
    assert len(drawn(rollouts, 9, "x")) == 3
    assert drawn(rollouts, 0, "x") == drawn([], 2, "x") == []


def test_a_run_may_have_no_traces_and_steps_without_rows(config: RunConfig, run: RunDirectory, client) -> None:
    config.tracking.rollouts = 0
    tracker = follow(config, run)
    assert not client.search_traces(locations=[tracker.ids["experiment"]])
    config.tracking.rollouts = 2
    with Tracker(config, run, tracker.ids) as again:
        again.log_rollouts("1-sft", 99)
    assert run.storage.files("tracking/spool") == []


def test_a_server_that_knows_no_traces_gets_the_rest_at_once(
    server: FaultyServer, config: RunConfig, run: RunDirectory, client: MlflowClient, caplog
) -> None:
    """This server has none of MLflow's newer routes, as an older one."""
    began = time.monotonic()
    tracker = follow(config, run)
    assert time.monotonic() - began < FLUSH_SECONDS / 2, caplog.text
    parent = client.get_run(tracker.ids["parent"])
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics == {"assess/success": 0.5}
    assert "MLflow refuses a record" in caplog.text
    assert [path.rpartition("-")[2] for path in run.storage.files("tracking/refused")] == ["rollouts.json"]
    assert run.storage.files("tracking/spool") == []


def test_traces_that_fail_hold_nothing_else_back_and_come_later(
    server: FaultyServer, config: RunConfig, run: RunDirectory, client: MlflowClient
) -> None:
    server.fault = always("v1/traces", "500")
    tracker = follow(config, run)
    ids = [tracker.ids["parent"], tracker.ids["phases"]["1-sft"]]
    assert [client.get_run(one).info.status for one in ids] == ["FINISHED"] * 2
    (left,) = Spool(run.storage).oldest()
    assert left.kind == "rollouts"
    assert left.body["time"] < left.time
    config.tracking.uri = ""  # the server's own database, which takes traces
    send_rest(config, run)
    assert run.storage.files("tracking/spool") == []
    traces = client.search_traces(locations=[tracker.ids["experiment"]])
    ends = {trace.info.request_time + trace.info.execution_duration for trace in traces}
    assert len(traces) == 2
    assert ends == {left.body["time"]}, "when they were recorded"
    assert [client.get_run(one).info.status for one in ids] == ["FINISHED"] * 2
