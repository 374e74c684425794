"""A kill loses nothing that was committed, and a repeated step never doubles rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from configs.load import ConfigError
from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from learners.records import Rollout
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import RunDirectoryError
from orchestration.run.state import RunState
from orchestration.run.storage import Storage

REPOSITORY = Path(__file__).parents[3]


def rollout(text: str, **changes) -> Rollout:
    return replace(Rollout("t1", "g", "prompt", text, (1, 2), (3,), (-0.5,), 0), **changes)


def verdict(candidate: str, speedup: float, best: float | None = None, outcome: Outcome = Outcome.OK) -> Verdict:
    speedups = {"eager": Estimate(speedup, speedup - 0.1, speedup + 0.1, 20)}
    if best is not None:
        speedups["torch_compile"] = Estimate(best, best, best, 20)
    return Verdict(candidate, "t1", "cpu", outcome, speedups=speedups if outcome is Outcome.OK else {})


@pytest.fixture(params=["local", "remote"])
def run(request, tmp_path) -> RunDirectory:
    """A run in a local folder, and one on a file system without renames or locks: both must behave alike."""
    if request.param == "local":
        return RunDirectory(tmp_path / "runs", "demo")
    mock, _ = pafs.FileSystem.from_uri("mock:///")
    return RunDirectory("mock://bucket/runs", "demo", storage=Storage(mock, "bucket/runs/demo", "mock://bucket/demo"))


def test_making_and_reading_an_absent_run_directory_writes_nothing(tmp_path):
    run = RunDirectory(tmp_path / "runs", "demo")
    assert run.read_state() is None
    assert not run.exists()
    assert run.samples.read().num_rows == 0
    assert run.kernels.read() == []
    assert run.checkpoints.paths() == []
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        run.read_config()
    assert list(tmp_path.iterdir()) == []


def test_a_file_uri_and_its_path_are_the_same_directory(tmp_path):
    RunDirectory(f"file://{tmp_path}", "demo").write_state(RunState(step=3))
    assert RunDirectory(tmp_path, "demo").read_state() == RunState(step=3)


def test_config_and_state_read_back_as_they_were_written(run):
    config = RunConfig(name="demo", seed=4)
    state = RunState(2, "sft", 7, 5, "checkpoints/a", "buffer/b", {"run": "x"}, {"mu": 0.5}, True)
    run.write_config(config)
    run.write_state(RunState())
    run.write_state(state)
    assert run.read_config() == config
    assert run.read_state() == state
    assert run.exists()


def test_the_config_of_an_earlier_version_says_what_it_lost(run):
    run.storage.write("config.yaml", b"name: demo\nseed: 4\nreward: {per_task_smoothing: false}\n")
    stored = run.read_stored_config()
    assert stored.config == run.read_config() == RunConfig(name="demo", seed=4, stall_minutes=0.0)
    assert [loss.key for loss in stored.losses] == ["reward.per_task_smoothing"]


def test_a_state_of_another_version_is_an_error_that_says_so(run):
    run.storage.write("state.json", b'{"stage": 1}')
    with pytest.raises(RunDirectoryError, match=r"state\.json: another version wrote it \(it has stage\)"):
        run.read_state()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_state_is_an_error_that_names_the_file(text, run):
    run.storage.write("state.json", text.encode())
    with pytest.raises(RunDirectoryError, match=r"state\.json: not a run's state"):
        run.read_state()


def test_a_state_with_the_random_generators_of_older_versions_is_read(run):
    run.storage.write("state.json", json.dumps({"step": 3, "rng": {}}).encode())
    assert run.read_state() == RunState(step=3)


def test_a_config_of_the_run_that_no_longer_fits_is_a_config_error_that_names_it(run):
    run.storage.write("config.yaml", b"name: a\nseed: x\n")
    with pytest.raises(ConfigError, match=r"config\.yaml: seed must be a whole number"):
        run.read_config()


def run_script(body: str, folder: Path, **options) -> subprocess.Popen[str]:
    imports = (
        "import sys\n"
        "from orchestration.run.directory import RunDirectory\n"
        "from orchestration.run.state import RunState\n"
    )
    code = imports + textwrap.dedent(body)
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, **options)


def test_a_kill_between_writing_and_renaming_leaves_the_old_state(tmp_path):
    script = """
        import os, signal
        run = RunDirectory(sys.argv[1], "demo")
        run.write_state(RunState(step=1))
        run.metrics.write("1-sft", 1, {"loss": 1.0})
        os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
        run.METHOD
    """
    for method in ["write_state(RunState(step=2))", 'metrics.write("1-sft", 2, {"loss": 0.5})']:
        process = run_script(script.replace("METHOD", method), tmp_path)
        assert process.wait(timeout=60) == -signal.SIGKILL
        run = RunDirectory(tmp_path, "demo")
        assert run.read_state() == RunState(step=1)
        assert run.metrics.read().column("step").to_pylist() == [1]
    assert list((tmp_path / "demo").glob(".state.json.*")), "the kill came before the temporary file was written"


def test_a_commit_is_never_seen_half_written(tmp_path):
    process = run_script(
        """
        run = RunDirectory(sys.argv[1], "demo")
        run.write_state(RunState(step=0)); print("ready", flush=True)
        for step in range(100_000):
            run.write_state(RunState(step=step, extra={"filler": "x" * 20_000}))
        """,
        tmp_path,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        run, deadline, seen = RunDirectory(tmp_path, "demo"), time.monotonic() + 1.0, set()
        while time.monotonic() < deadline:
            seen.add(run.read_state().step)
    finally:
        process.kill()
        process.wait(timeout=30)
    assert len(seen) > 3


def test_a_second_process_is_refused_and_told_who_runs(tmp_path):
    holder = run_script(
        """
        with RunDirectory(sys.argv[1], "demo").lock():
            print("held", flush=True); sys.stdin.read()
        """,
        tmp_path,
        stdin=subprocess.PIPE,
    )
    run = RunDirectory(tmp_path, "demo")
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunDirectoryError, match=f"process {holder.pid} on .* is running in it"), run.lock():
            pass
    finally:
        holder.kill()
        holder.wait(timeout=30)
    with run.lock(), pytest.raises(RunDirectoryError, match=f"process {os.getpid()} "), run.lock():
        pass
    with run.lock():
        pass


def test_repeating_a_step_replaces_its_rows(run):
    run.samples.write("1-contrastive_rl", 3, [rollout("old"), rollout("old too")])
    run.samples.write("1-contrastive_rl", 4, [rollout("next")])
    run.samples.write("1-contrastive_rl", 3, [rollout("new", candidate_digest="d", reward=1.5)])
    table = run.samples.read("1-contrastive_rl")
    assert table.column("response").to_pylist() == ["new", "next"]
    assert table.column("step").to_pylist() == [3, 4]
    assert table.column("reward").to_pylist() == [1.5, None]


def test_phases_are_stored_separately_and_read_together(run):
    run.samples.write("assess/base", 0, [rollout("a")])
    run.samples.write("assess/1-sft", 0, [rollout("b")])
    assert run.samples.read("assess/base").column("phase").to_pylist() == ["assess/base"]
    assert sorted(run.samples.read(columns=["response"]).column("response").to_pylist()) == ["a", "b"]
    assert run.samples.read(columns=["response"]).column_names == ["phase", "step", "response"]
    assert run.samples.read("assess").num_rows == 0


def test_verdicts_candidates_and_metrics_read_back(run):
    candidate = Candidate.propose("t1", "class ModelNew: pass", "policy:3")
    run.candidates.write("1-sft", 1, [candidate])
    run.verdicts.write("1-sft", 1, [verdict(candidate.digest, 1.5, 1.2), verdict("x", 0, outcome=Outcome.TIMEOUT)])
    run.verdicts.write("1-sft", 2, [])
    run.metrics.write("1-sft", 1, {"loss": 0.5, "kl": 0})
    good, _ = map(Verdict.from_row, run.verdicts.read("1-sft").to_pylist())
    assert good == verdict(candidate.digest, 1.5, 1.2)
    assert run.candidates.read().to_pylist()[0]["source"] == candidate.source
    metrics = run.metrics.read("1-sft").to_pydict()
    assert dict(zip(metrics["name"], metrics["value"], strict=True)) == {"loss": 0.5, "kl": 0.0}


def test_samples_are_an_ordinary_partitioned_data_set(tmp_path):
    run = RunDirectory(tmp_path, "demo")
    run.samples.write("assess/base", 12, [rollout("a")])
    rows = ds.dataset(tmp_path / "demo" / "samples", partitioning="hive").to_table().to_pylist()
    assert (rows[0]["phase"], rows[0]["step"], rows[0]["response"]) == ("assess/base", 12, "a")


def test_a_column_that_an_older_file_lacks_is_null(run):
    run.metrics.write("1-sft", 0, {"loss": 1.0})
    (path,) = run.storage.files("metrics")
    table = pq.read_table(pa.BufferReader(run.storage.read(path)))
    sink = pa.BufferOutputStream()
    pq.write_table(table.drop_columns(["time"]).append_column("unknown", pa.array([7])), sink)
    run.storage.write(path, sink.getvalue().to_pybytes())
    assert run.metrics.read().to_pylist() == [{"phase": "1-sft", "step": 0, "name": "loss", "value": 1.0, "time": None}]


def test_a_buffer_snapshot_keeps_its_metadata_and_is_never_overwritten(run):
    first = pa.table({"score": [1.0]}).replace_schema_metadata({"islands": "4"})
    second = pa.table({"score": [1.0, 2.0]})
    paths = [run.buffers.write(first, 5), run.buffers.write(second, 5)]
    assert paths[0] != paths[1]
    assert run.buffers.read(paths[0]).schema.metadata == {b"islands": b"4"}
    third = run.buffers.write(pa.table({"score": [3.0]}), 6)
    run.buffers.prune(1, paths[0])
    assert run.storage.files("buffer") == sorted([paths[0], third])
    with pytest.raises(RunDirectoryError, match="no such buffer snapshot"):
        run.buffers.read(paths[1])


def test_only_a_faster_program_replaces_the_best(run):
    slow, fast = (Candidate.propose("t1", f"ModelNew = {n}", "policy:1") for n in "12")
    assert run.kernels.save("t1", "cpu", slow, verdict(slow.digest, 1.5, 1.2))
    assert not run.kernels.save("t1", "cpu", fast, verdict(fast.digest, 9.0, 1.1))
    assert not run.kernels.save("t1", "cpu", fast, verdict(fast.digest, 9.0, outcome=Outcome.HACK))
    assert run.kernels.read()[0].candidate == slow
    assert run.kernels.save("t1", "cpu", fast, verdict(fast.digest, 1.3))
    assert run.kernels.save("../t2", "H100", slow, verdict(slow.digest, 1.01))
    kernels = {(kernel.task_id, kernel.arch): kernel for kernel in run.kernels.read()}
    assert kernels["t1", "cpu"].candidate == fast
    assert kernels["t1", "cpu"].verdict == verdict(fast.digest, 1.3)
    assert set(kernels) == {("t1", "cpu"), ("../t2", "H100")}
    assert run.storage.read("kernels/t1/cpu.py").decode() == fast.source
    assert json.loads(run.storage.read("kernels/t1/cpu.json"))["verdict"]["outcome"] == "ok"
    run.kernels.discard(slow, "cpu")
    assert {kernel.task_id for kernel in run.kernels.read()} == {"t1", "../t2"}, "it is no longer the best one"
    run.kernels.discard(fast, "cpu")
    assert [kernel.task_id for kernel in run.kernels.read()] == ["../t2"]
    assert run.kernels.save("t1", "cpu", slow, verdict(slow.digest, 1.1))


def test_the_best_of_many_programs_is_stored_for_each_task(run):
    slow, best, middle, other = (
        Candidate.propose(task, f"ModelNew = {n}", "policy:1") for n, task in enumerate(("t1", "t1", "t1", "t2"))
    )
    judged = [(slow, 1.1), (best, 1.4), (middle, 1.3), (other, 0.5)]
    run.kernels.save_best_of("cpu", [(candidate, verdict(candidate.digest, value)) for candidate, value in judged])
    assert {kernel.candidate for kernel in run.kernels.read()} == {best, other}
    run.kernels.save_best_of(
        "cpu", [(middle, verdict(middle.digest, 1.39)), (best, verdict(best.digest, 9.0, outcome=Outcome.HACK))]
    )
    assert {kernel.candidate for kernel in run.kernels.read()} == {best, other}


def publish(run: RunDirectory, name: str, text: str) -> str:
    folder = run.checkpoints.new_folder(name)
    (folder / "deep").mkdir()
    (folder / "deep" / "weights").write_text(text)
    return run.checkpoints.publish(folder, name)


def test_a_checkpoint_counts_once_published_and_is_replaced_whole(run):
    (run.checkpoints.new_folder("step-1") / "half").write_text("")
    assert run.checkpoints.paths() == []
    path = publish(run, "step-1", "one")
    assert path == "checkpoints/step-1"
    assert not (run.checkpoints.fetch(path) / "half").exists()
    publish(run, "step-1", "two")
    assert (run.checkpoints.fetch(path) / "deep" / "weights").read_text() == "two"
    with pytest.raises(RunDirectoryError, match="no such checkpoint"):
        run.checkpoints.fetch("checkpoints/step-2")


def test_a_kill_while_a_checkpoint_is_replaced_keeps_the_old_one(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path, "demo")
    path = publish(run, "step-1", "one")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestration.run.storage.shutil.move", killed)
    with pytest.raises(KeyboardInterrupt):
        publish(run, "step-1", "two")
    assert (run.checkpoints.fetch(path) / "deep" / "weights").read_text() == "one"


def test_pruning_keeps_the_newest_checkpoints_and_the_protected_one(run):
    paths = []
    for step in (2, 9, 10, 11):
        paths.append(publish(run, f"step-{step}", "x"))
        time.sleep(0.02)
    assert run.checkpoints.paths() == paths
    assert run.checkpoints.prune(2, paths[0]) == [paths[1]]
    assert run.checkpoints.paths() == [paths[0], *paths[2:]]
