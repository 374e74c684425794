"""`warpsmith submit`, `logs`, `status` and `stop` against a small server of the Ray Jobs API."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import cast

import pytest
from click.testing import Result
from typer.testing import CliRunner

from cluster.attempts import finished_line
from cluster.client import Jobs
from cluster.follow import follow
from orchestration.commands.main import app
from tests.cluster.fake_jobs import FakeJob, FakeJobs, serving

LINES = "".join(f"line {number} of a run\n" for number in range(40))
NOTE = "00:00:07  1-sft                  1/3   loss 0.500  1.0 s\n"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobs]:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("cluster.follow._RECONNECT_SECONDS", 0.05)
    monkeypatch.setattr("cluster.stop._LOOKS_EVERY", 0.05)
    with serving() as fake:
        yield fake


def invoke(cluster: FakeJobs, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--address", cluster.url])


def submit(cluster: FakeJobs, *arguments: str) -> Result:
    """A run whose configuration alone travels: packing the checkout takes a second each time."""
    words = ["submit", "local", "root=/shared", "name=first", "--installed", *arguments]
    return CliRunner().invoke(app, [*words, "--address", cluster.url])


def refused(done: Result, code: int = 2) -> str:
    """The one line of a refusal."""
    assert done.exit_code == code, done.output
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stderr.startswith("error: ")
    return done.stderr


def test_the_first_attempt_is_named_after_the_run(cluster: FakeJobs) -> None:
    done = submit(cluster)
    assert done.exit_code == 0, done.output
    assert list(cluster.jobs) == ["first"]
    assert f"warpsmith logs --follow first --address {cluster.url}" in done.stdout
    assert cluster.submitted("first")["metadata"]["warpsmith.run"] == "first"


def test_the_same_command_attaches_to_a_job_under_way(cluster: FakeJobs) -> None:
    submit(cluster)
    again = submit(cluster)
    assert again.exit_code == 0
    assert "job first: under way" in again.stderr
    assert list(cluster.jobs) == ["first"]


@pytest.mark.parametrize(("status", "code"), [("FAILED", 1), ("STOPPED", None), ("SUCCEEDED", 0)])
def test_an_attempt_that_ended_without_the_run_is_followed_by_another(
    cluster: FakeJobs, status: str, code: int | None
) -> None:
    submit(cluster)
    cluster.end("first", status, code)
    again = submit(cluster)
    assert again.exit_code == 0
    assert f"job first-2: started, which resumes the run; job first is {status}" in again.stderr
    cluster.end("first-2", "FAILED", 1)
    submit(cluster)
    assert list(cluster.jobs) == ["first", "first-2", "first-3"]


def test_a_finished_run_says_so_and_starts_no_job(cluster: FakeJobs) -> None:
    submit(cluster)
    cluster.jobs["first"].log = LINES + finished_line("first") + "\n"
    cluster.end("first", "SUCCEEDED", 0)
    again = submit(cluster, "--wait")
    assert again.exit_code == 0
    assert "first: finished, by job first" in again.stderr
    assert list(cluster.jobs) == ["first"]


def test_a_finished_run_with_changed_keys_is_extended(cluster: FakeJobs) -> None:
    submit(cluster)
    cluster.jobs["first"].log = finished_line("first") + "\n"
    cluster.end("first", "SUCCEEDED", 0)
    submit(cluster, "schedule.cycles=2")
    assert list(cluster.jobs) == ["first", "first-2"]


def test_another_configuration_is_refused_while_a_job_is_under_way(cluster: FakeJobs) -> None:
    submit(cluster)
    assert "another configuration" in refused(submit(cluster, "seed=5"))
    assert list(cluster.jobs) == ["first"]


def test_another_run_of_the_same_name_is_refused_while_a_job_is_under_way(cluster: FakeJobs) -> None:
    submit(cluster)
    assert "/shared/first" in refused(submit(cluster, "root=/elsewhere"))


def test_two_commands_at_one_moment_start_one_job(cluster: FakeJobs) -> None:
    submit(cluster)
    cluster.hidden = {"first"}  # as the other command saw it, before the first had submitted
    again = submit(cluster)
    assert "job first: under way" in again.stderr
    assert list(cluster.jobs) == ["first"]


def test_an_id_that_another_job_has_is_passed_over(cluster: FakeJobs) -> None:
    cluster.jobs["first"] = FakeJob(request={"metadata": {}})
    submit(cluster)
    assert list(cluster.jobs) == ["first", "first-2"]
    assert "knows no such run" not in invoke(cluster, "status", "first").output


def test_a_name_that_is_no_word_of_an_address_is_reached(cluster: FakeJobs) -> None:
    submit(cluster, "name=a run (of 2)")
    assert list(cluster.jobs) == ["a-run-of-2"]
    assert "job a-run-of-2 is RUNNING" in invoke(cluster, "status", "a run (of 2)").stdout


@pytest.mark.parametrize(
    ("status", "code", "expected"), [("SUCCEEDED", 0, 0), ("FAILED", 3, 3), ("FAILED", None, 1), ("STOPPED", None, 1)]
)
def test_waiting_ends_with_the_exit_code_of_the_run(
    cluster: FakeJobs, status: str, code: int | None, expected: int
) -> None:
    cluster.log_of_new = LINES
    cluster.when_read = lambda identity: cluster.end(identity, status, code, "why it ended")
    done = submit(cluster, "--wait")
    assert done.exit_code == expected, done.output
    assert done.stdout == LINES
    assert f"job first: {status}" in done.stderr
    assert ("why it ended" in done.stderr) == (status == "FAILED")


def test_lines_are_printed_once_however_often_the_connection_breaks(cluster: FakeJobs) -> None:
    submit(cluster)
    cluster.jobs["first"].log, cluster.jobs["first"].cuts = LINES, [0, 100, 101, 350]
    cluster.end("first", "SUCCEEDED", 0)
    done = invoke(cluster, "logs", "first", "--follow")
    assert done.exit_code == 0, done.output
    assert done.stdout == LINES
    assert cluster.jobs["first"].connections == 5


def test_logs_without_follow_print_what_is_there(cluster: FakeJobs) -> None:
    cluster.log_of_new = LINES
    submit(cluster)
    done = invoke(cluster, "logs", "first")
    assert (done.exit_code, done.stdout) == (0, LINES)


def test_a_job_that_the_cluster_forgets_ends_the_waiting(cluster: FakeJobs) -> None:
    submit(cluster)
    cluster.jobs["first"].cuts = [0]
    cluster.when_read = lambda identity: cluster.jobs.clear()
    assert "the same `warpsmith submit` resumes the run" in refused(invoke(cluster, "logs", "first", "-f"), 1)


def test_a_cluster_that_stays_silent_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.errors import Silence

    with serving() as fake:
        fake.jobs["first"] = FakeJob()
        jobs = Jobs(fake.url)
    with pytest.raises(Silence, match="has not answered for 1 s"):
        follow(jobs, "first", silence=1)


def test_ctrl_c_leaves_the_job_alone(cluster: FakeJobs) -> None:
    cluster.log_of_new = LINES
    cluster.when_read = lambda identity: os.kill(os.getpid(), signal.SIGINT)
    done = submit(cluster, "--wait")
    assert done.exit_code == 130
    assert f"job first goes on; stop it: warpsmith stop first --address {cluster.url}" in done.stderr
    assert cluster.jobs["first"].status == "RUNNING"
    assert cluster.stopped == []


def test_ctrl_c_counts_although_a_library_takes_the_cancellation_for_its_own() -> None:
    class Deaf:
        address = "nowhere"

        async def tail(self, identity: str) -> AsyncIterator[str]:
            os.kill(os.getpid(), signal.SIGINT)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(60)
            yield ""

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        follow(cast(Jobs, Deaf()), "first")
    assert time.monotonic() - start < 30
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_status_names_all_jobs_of_a_run_and_how_far_it_has_come(cluster: FakeJobs) -> None:
    submit(cluster)
    cluster.end("first", "FAILED", 1, "the node died")
    submit(cluster)
    cluster.jobs["first-2"].log = LINES + NOTE + LINES
    lines = invoke(cluster, "status", "first").stdout.splitlines()
    assert lines[0].startswith("first: job first-2 is RUNNING, began ")
    assert lines[1].startswith("before: job first is FAILED, began ")
    assert lines[1].endswith("ended after 5 s")
    assert lines[2:] == ["directory: /shared/first", f"latest: {NOTE.strip()}"]
    told = json.loads(invoke(cluster, "status", "first", "--json").stdout)
    assert [(job["identity"], job["status"]) for job in told["jobs"]] == [("first", "FAILED"), ("first-2", "RUNNING")]
    assert told["latest"] == NOTE.strip()


def test_stop_stops_the_job_under_way_and_waits_for_it(cluster: FakeJobs) -> None:
    submit(cluster)
    cluster.jobs["first"].log = NOTE
    done = invoke(cluster, "stop", "first")
    assert done.exit_code == 0, done.output
    assert cluster.stopped == ["first"]
    assert "job first is STOPPED" in done.stdout
    assert NOTE.strip() in done.stdout
    assert "no job works on it" in refused(invoke(cluster, "stop", "first"))


@pytest.mark.parametrize("command", ["status", "logs", "stop"])
def test_an_unknown_run_is_refused_with_those_that_there_are(cluster: FakeJobs, command: str) -> None:
    submit(cluster)
    assert "other: " in (line := refused(invoke(cluster, command, "other")))
    assert "it has first" in line


def test_a_job_that_is_no_run_is_not_stopped(cluster: FakeJobs) -> None:
    cluster.jobs["theirs"] = FakeJob()
    assert "knows no such run" in refused(invoke(cluster, "stop", "theirs"))
    assert cluster.stopped == []


def test_a_token_is_asked_for(cluster: FakeJobs) -> None:
    cluster.token = "right"
    assert "RAY_AUTH_MODE=token" in refused(submit(cluster))


def test_a_server_that_is_not_ray_is_refused_in_one_line(cluster: FakeJobs) -> None:
    done = CliRunner().invoke(app, ["status", "first", "--address", f"{cluster.url}/elsewhere"])
    assert "no Ray dashboard answers" in refused(done)


def test_the_checkout_travels_without_what_a_job_does_not_need(cluster: FakeJobs) -> None:
    done = CliRunner().invoke(app, ["submit", "local", "root=/shared", "--address", cluster.url])
    assert done.exit_code == 0, done.output
    (package,) = cluster.packages
    with zipfile.ZipFile(io.BytesIO(package)) as packed:
        names = packed.namelist()
    assert {"pyproject.toml", "configs/local.yaml", "orchestration/driver.py"} <= set(names)
    tops = {name.split("/")[0] for name in names}
    assert not tops & {".git", ".venv", "runs", "mlruns", "data", "docs", "tests"}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert len(package) < 8 << 20


def test_a_checkout_that_is_too_large_is_refused_with_its_largest_files(
    cluster: FakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.client.LARGEST_UPLOAD", 100)
    line = refused(submit(cluster))
    assert "run.yaml" in line
    assert cluster.packages == []
    assert cluster.jobs == {}
