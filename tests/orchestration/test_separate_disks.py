"""A run whose actors share no folder with its driver: what they need travels by the object store, or through Ray."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.run.directory import RunDirectory
from tests.cluster.pretended import own_address, started
from tests.orchestration.processes import HANG_SECONDS, start
from tests.orchestration.test_object_store import Store, store  # noqa: F401 - a fixture
from tests.ports import free_port

SHORT = ["schedule.phases=[sft,contrastive_rl]", "sft.epochs=1", "contrastive_rl.steps=1", "tracking.enabled=false"]
RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--object-store-memory={200 << 20}"]
_START_SECONDS = 180.0


@contextlib.contextmanager
def head() -> Iterator[str]:
    """The address of a cluster whose one node so far takes no work."""
    port = free_port()
    # The folder's path is short: paths of sockets in it may have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        options = ["--head", f"--port={port}", f"--temp-dir={folder}", "--num-cpus=0", "--include-dashboard=false"]
        with started([*RAY, *options, "--disable-usage-stats"], dict(os.environ)):
            yield f"{own_address()}:{port}"


@contextlib.contextmanager
def other_machine(address: str, hidden: Path) -> Iterator[int]:
    """The process of a node, with room for all actors, where the folder `hidden` is empty and on another disk."""
    command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', str(hidden), *RAY]
    with started([*command, f"--address={address}", "--num-cpus=8"], dict(os.environ)) as process:
        deadline = time.monotonic() + _START_SECONDS
        while _alive_nodes(address) < 2:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline, f"no second node within {_START_SECONDS:.0f} s"
            time.sleep(0.5)
        yield process.pid


def _alive_nodes(address: str) -> int:
    """How many nodes a cluster has; 0 while it does not answer."""
    code = "import ray,sys; ray.init(sys.argv[1],log_to_driver=False); print(sum(n['Alive'] for n in ray.nodes()))"
    found = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, check=False)
    return int(found.stdout) if found.returncode == 0 else 0


@pytest.mark.slow
def test_a_run_needs_no_folder_that_its_nodes_share(
    store: Store,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).returncode:
        pytest.skip("needs to mount a disk of its own")
    cluster = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_worker_niceness": "0"}
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    own = tmp_path / "driver"
    own.mkdir()
    with head() as address, other_machine(address, own) as node:
        process = start(own, *SHORT, f"root={store.root}", f"ray.address={address}")
        try:
            output, _ = process.communicate(timeout=HANG_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, output
        seen = Path(f"/proc/{node}/root{own}")
        assert (own / "runs/small/policy/model.safetensors").is_file()
        assert not (seen / "runs/small/policy").exists()  # the nodes found the policy elsewhere
        assert (seen / "runs/small/store/artifacts").is_dir()  # and made a store of their own
    run = RunDirectory(store.root, "small")
    state = run.read_state()
    assert state is not None
    assert state.finished
    assert run.storage.is_file("policy/config.json")
    assert {row["outcome"] for row in run.verdicts.read().to_pylist()} >= {"ok"}
    assert "password" not in output
