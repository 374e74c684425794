"""`warpsmith watch` shows a run from outside, follows it to its end, and leaves no trace in it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from configs.load import load_config
from orchestration.report.watching import Watch
from orchestration.run.directory import RunDirectory
from orchestration.run.pulse import read_pulse
from orchestration.run.state import RunState
from orchestration.run.watchdog import STALLED
from tests.orchestration.report.growing_run import STEPS, GrowingRun

NOW = 1_800_000_000.0
COMMAND = (sys.executable, "-m", "orchestration.commands.main", "watch")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


@pytest.fixture
def growing(tmp_path: Path) -> GrowingRun:
    made = GrowingRun(tmp_path)
    made.assess()
    return made


class Clock:
    """Stands until it is set."""

    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watched(growing: GrowingRun, clock: Clock) -> Watch:
    return Watch(growing.run, "growing", clock)


def everything(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file and folder: its times, and its content."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        about = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = about.st_mtime_ns, about.st_ctime_ns, content
    return found


def test_one_view_has_all_of_a_run(warpsmith: Any, growing: GrowingRun) -> None:
    for speeds in ((1.5, None), (3.0, 80.0, None)):
        growing.train(speeds)
    growing.beat(time.time(), still=1.0, verdicts={"ok": 3})
    done = warpsmith("watch", "growing", "--once")
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    for expected in (
        "growing running as process 77 on another-machine (growing)",
        f"1-contrastive_rl, step 3 of {STEPS}",
        "ends in about 10 min",  # six steps of 90 s, and an assessment of 60 s
        "after base 1 60.0 50.0%",
        f"contrastive_rl 2/{STEPS} 90.0 40.0%",
        "1-contrastive_rl, step 2 90.0 s",
        "at work in it engines 45.0 s (50%), builders 22.5 s (25%), evaluators 67.5 s (75%), learner 9.0 s (10%)",
        "engines 1/1 3 2 50% 0",
        "evaluators 2/2 7 2 75% 1",
        "outcomes of 1-contrastive_rl",
        "wrong 44.4%",
        "mean speed-up 1.75x 3.00x ▁█",
        "level1/gelu_tanh 3.00x 2.40x",
        "caught by the guard clocks 1",
        "! lost and replaced since the process began: 1 evaluators",
        "3.33 judged a minute",  # of the last step: the pulse is one look
    ):
        assert expected in text, (expected, done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_watching_leaves_the_folder_as_it_is(warpsmith: Any, growing: GrowingRun, tmp_path: Path) -> None:
    growing.train()
    (tmp_path / "growing" / "lock").write_text("1 on elsewhere")
    before = everything(tmp_path / "growing")
    for _ in range(2):
        assert warpsmith("watch", "growing", "--once").exit_code == 0
    assert everything(tmp_path / "growing") == before


def test_a_folder_that_may_only_be_read_is_watched_while_its_lock_is_held(growing: GrowingRun, tmp_path: Path) -> None:
    with growing.run.lock():
        watched = Watch(growing.run, "growing")
        assert watched.look().activity.startswith(f"running as process {os.getpid()} on ")
        with pytest.raises(Exception, match="is running in it"), RunDirectory(tmp_path, "growing").lock():
            raise AssertionError("two processes")
    assert watched.look().ended == "stopped"


def test_only_what_is_new_is_read(growing: GrowingRun, watched: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int]] = []
    of_step = growing.run.metrics.read_step
    monkeypatch.setattr(growing.run.metrics, "read_step", lambda *key: read.append(key) or of_step(*key))
    growing.train()
    watched.look()
    assert sorted(read) == [("1-contrastive_rl", 0), ("assess/base", 0)]
    read.clear()
    growing.train()
    assert [line.done for line in watched.look().lines] == [1, 2]
    assert read == [("1-contrastive_rl", 1)]


def test_the_rate_is_of_the_verdicts_between_looks(growing: GrowingRun, watched: Watch, clock: Clock) -> None:
    growing.train()
    for seconds, ok, wrong in ((0, 10, 0), (30, 22, 8), (60, 30, 20)):
        clock.now = NOW + seconds
        growing.beat(clock.now, verdicts={"ok": ok, "wrong": wrong})
        view = watched.look()
    assert view.judged_a_minute == pytest.approx(40.0)
    clock.now += 1
    growing.beat(clock.now, began=clock.now, verdicts={})
    assert watched.look().judged_a_minute == pytest.approx(60 * 6 / 90.0), "another process counts anew"


def test_a_run_that_stands_still_is_told(growing: GrowingRun, watched: Watch, clock: Clock) -> None:
    growing.train()
    growing.beat(NOW, still=60.0)
    assert not any("moved" in line for line in watched.look().warnings)
    growing.beat(NOW, still=600.0)
    (line,) = (line for line in watched.look().warnings if "moved" in line)
    assert line == "nothing has moved for 10 min; after 60 min the run ends itself (stall_minutes)"


def test_a_process_without_a_word_is_told_and_one_that_was_killed(
    growing: GrowingRun, watched: Watch, clock: Clock
) -> None:
    growing.train()
    growing.beat(NOW)
    clock.now = NOW + 19
    assert watched.look().activity == "running as process 77 on another-machine"
    clock.now = NOW + 120
    assert (watched.look().ended, watched.look().exit_code) == ("killed", 1)
    with growing.run.lock():
        view = watched.look()
        assert view.ended == ""
        assert "the process has said nothing of itself for 2 min" in view.warnings


@pytest.mark.parametrize(("ended", "code"), [("stopped", 0), ("interrupted", 130), ("stalled", STALLED), ("failed", 1)])
def test_it_ends_with_the_run_and_with_its_exit_code(
    warpsmith: Any, growing: GrowingRun, ended: str, code: int
) -> None:
    growing.train()
    growing.beat(time.time(), ended=ended, message="no room on the disk" if ended == "failed" else "")
    done = warpsmith("watch", "growing", "--interval", "0.1")
    assert done.exit_code == code, done.output
    assert re.search(rf"^\d\d:\d\d:\d\d  growing: {ended}$", done.stdout, re.MULTILINE)
    assert "`warpsmith run` continues it" in done.stdout
    assert ("failed: no room on the disk; " in done.stdout) == (ended == "failed")


def test_lines_follow_a_run_to_its_end(growing: GrowingRun, tmp_path: Path) -> None:
    growing.beat(time.time() + 600)  # its process lives, however busy this machine is
    command = [*COMMAND, str(tmp_path / "growing"), "--interval", "0.1"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begin = [process.stdout.readline() for _ in range(3)]
        assert begin[0].endswith(": running as process 77 on another-machine, 1-contrastive_rl, step 1 of 8\n")
        assert "after base" in begin[1]
        assert begin[2].endswith("! lost and replaced since the process began: 1 evaluators\n")
        growing.train()
        assert re.search(r"  contrastive_rl +1/8  success 50.0%  .* best so far 1.60x", process.stdout.readline())
        growing.train()
        assert "contrastive_rl           2/8" in process.stdout.readline()
        growing.finish()
        rest = process.stdout.read()
        assert process.wait(240) == 0
    assert "growing  finished" in rest
    assert "best programs" in rest
    assert "\x1b" not in rest


@pytest.fixture
def terminal() -> Any:
    """A terminal of 100 columns and 40 rows: our end, and that of a command."""
    ours, theirs = pty.openpty()
    os.set_inheritable(theirs, True)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    yield ours, theirs
    os.close(ours)


def read_until(ours: int, text: str, seconds: float = 240.0) -> str:
    seen, deadline = "", time.monotonic() + seconds
    while text not in seen:
        ready, _, _ = select.select([ours], [], [], max(deadline - time.monotonic(), 0.0))
        assert ready, f"{text!r} did not come: {seen[-2000:]!r}"
        try:
            seen += os.read(ours, 1 << 16).decode("utf-8", "replace")
        except OSError:  # the other end is closed
            assert text in seen, seen[-2000:]
    return seen


@pytest.mark.slow
def test_a_terminal_is_redrawn_in_place_and_ctrl_c_ends_it_quietly(
    growing: GrowingRun, tmp_path: Path, terminal: tuple[int, int]
) -> None:
    ours, theirs = terminal
    growing.train()
    growing.beat(time.time() + 600)
    environment = {**ENVIRONMENT, "TERM": "xterm-256color"}
    command = [*COMMAND, str(tmp_path / "growing"), "--interval", "0.1"]
    process = subprocess.Popen(
        command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    read_until(ours, "1/8")
    growing.train()
    seen = read_until(ours, "2/8")
    assert "\x1b[1A" in seen, "the cursor goes up, over the view before"
    process.send_signal(signal.SIGINT)
    assert process.wait(240) == 130
    rest = ""
    while select.select([ours], [], [], 0.2)[0]:
        try:
            rest += os.read(ours, 1 << 16).decode("utf-8", "replace")
        except OSError:
            break
    assert "Traceback" not in rest
    assert "\x1b[?25h" in rest, "the cursor is shown again"


def test_a_run_on_an_object_store_is_watched_by_reading_alone(object_store: str) -> None:
    run = RunDirectory(object_store.format("watch"), "demo")
    run.write_config(load_config("local", ["name=demo"]))
    run.write_state(RunState(1, "sft", 3, 3))
    watched = Watch(RunDirectory(object_store.format("watch"), "demo"), "demo")
    assert watched.look().ended == "stopped"
    with run.lock(60.0):
        names = run.storage.times("")
        view = watched.look()
        assert view.activity == f"running as process {os.getpid()} on {os.uname().nodename}"
        assert run.storage.times("").keys() == names.keys()
    assert read_pulse(run.storage) is None


def test_bad_input_is_one_line(warpsmith: Any, growing: GrowingRun, tmp_path: Path) -> None:
    done = warpsmith("watch", "nothing")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "nothing: not a run directory" in done.stderr
    (tmp_path / "growing" / "state.json").write_text("{")
    done = warpsmith("watch", "growing", "--once")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "not a run's state" in done.stderr
