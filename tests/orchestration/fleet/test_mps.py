"""The multi-process service of a run starts before its clients, and ends with the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from configs.load import ConfigError, load_config
from orchestration.fleet import mps, placement
from orchestration.fleet.mps import MpsServer
from orchestration.fleet.placement import ENGINE, EVALUATOR, LEARNER, Placement

# A stand-in for NVIDIA's program, as far as we know it: it makes a pipe, stays in the foreground, and waits until it is
# told to quit.
CONTROL = """#!/bin/sh
if [ "$1" = -f ]; then
  echo $$ > "$HEARD/pid"
  touch "$CUDA_MPS_PIPE_DIRECTORY/control"
  while [ ! -e "$HEARD/said" ]; do sleep 0.05; done
else
  cat > "$HEARD/saying" && mv "$HEARD/saying" "$HEARD/said"
fi
"""


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the service's process id, and with the command that it received."""
    program = tmp_path / "bin" / "nvidia-cuda-mps-control"
    program.parent.mkdir()
    program.write_text(CONTROL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HEARD", str(tmp_path))
    return tmp_path


def is_there(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # before it is opened, or after
        return False


def test_a_stop_tells_the_service_to_quit(heard: Path) -> None:
    server = MpsServer()
    folder = Path(server.environment["CUDA_MPS_PIPE_DIRECTORY"])
    process = int((heard / "pid").read_text())
    assert is_there(process)
    server.stop()
    assert (heard / "said").read_text() == "quit -t 10\n"
    assert not is_there(process)
    assert not folder.exists()


def test_the_service_ends_with_a_killed_owner(heard: Path) -> None:
    code = "import time; from orchestration.fleet.mps import MpsServer; server = MpsServer(); print(1, flush=True)"
    owner = subprocess.Popen([sys.executable, "-c", f"{code}; time.sleep(60)"], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "1\n"
    process = int((heard / "pid").read_text())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 20
    while is_there(process):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_missing_service_is_a_config_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="nvidia-cuda-mps-control is not installed"):
        MpsServer()


def test_a_service_that_does_not_come_up_is_a_config_error(heard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "_START_SECONDS", 0.2)
    (heard / "bin" / "nvidia-cuda-mps-control").write_text("#!/bin/sh\n")
    with pytest.raises(ConfigError, match="did not come up"):
        MpsServer()


def test_engines_and_learner_are_clients_and_evaluators_are_not(heard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement.ray, "nodes", lambda: [{"Alive": True}, {"Alive": False}])
    monkeypatch.setattr(placement.ray, "cluster_resources", lambda: {"GPU": 3.0})
    there = Placement(load_config("local", ["evaluator.arch=H200", "placement.mps=true"]))
    there.reserve()
    try:
        for role, client in ((ENGINE, True), (LEARNER, True), (EVALUATOR, False)):
            variables = there.options(role, 0).get("runtime_env", {}).get("env_vars", {})
            assert ("CUDA_MPS_PIPE_DIRECTORY" in variables) == client
    finally:
        there.release()
    assert (heard / "said").exists()


def test_a_cluster_of_several_nodes_is_refused(heard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement.ray, "nodes", lambda: [{"Alive": True}] * 2)
    monkeypatch.setattr(placement.ray, "cluster_resources", lambda: {"GPU": 3.0})
    with pytest.raises(ConfigError, match="several nodes"):
        Placement(load_config("local", ["evaluator.arch=H200", "placement.mps=true"])).reserve()
    assert not (heard / "pid").exists()


def test_a_hanging_service_is_killed(heard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "_QUIT_SECONDS", 0.2)
    server = MpsServer()
    (heard / "bin" / "nvidia-cuda-mps-control").write_text("#!/bin/sh\n")  # the command to quit does not arrive
    server.stop()
    pid, deadline = int((heard / "pid").read_text()), time.monotonic() + 20
    while is_there(pid) and time.monotonic() < deadline:  # killed, and not gone yet
        time.sleep(0.02)
    assert not is_there(pid)
